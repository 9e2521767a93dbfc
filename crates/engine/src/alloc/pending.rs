//! Blocks that streams still use after their user gave them back.
//!
//! Such a block gets one mark per stream, made without the lock. Its `events` counts the marks that have not ended, plus
//! one while it is parked. A queue per stream holds (mark, block) in the order of marks; what `completed` says of the
//! stream ends all entries up to there. Queues are looked at by an allocation before its search and by a trim, never
//! while a capture is under way.

use super::arena::Life;
use super::cache::{DeviceCache, Guard};
use super::heap::Heap;
use super::oom::AllocError;
use super::ports::PortError;
use super::recording::SIDE;
use super::slots::{BEYOND, DENSE, bit};
use crate::history::{Action, StackId};
use crate::sync::Ordering;

/// Answers of up to eight streams, collected before the lock is taken.
#[derive(Default)]
pub(super) struct Done {
    len: usize,
    /// (stream, slot, everything up to this mark has ended)
    items: [(u64, u32, u64); 8],
}

impl Done {
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.len != 0
    }
}

impl Heap {
    /// Notes a use of a live block.
    pub(super) fn record(&mut self, id: u32, stream: u64) {
        if self.shelves[self.arena[id].shelf as usize].stream == stream {
            return;
        }
        let bit = bit(self.slot(stream));
        self.arena[id].links |= bit;
        // A use by one of the streams that share a bit says nothing of the others, which no capture may have joined.
        if self.capturing() && bit != BEYOND {
            *self.capture_uses.entry(id).or_default() |= bit;
        }
    }

    /// Uses that are told only when a block is given back may be older than the capture that recorded the same streams:
    /// the end of that capture does not end them.
    pub(super) fn outlasts_capture(&mut self, id: u32, uses: u64) {
        if let Some(captured) = self.capture_uses.get_mut(&id) {
            *captured &= !uses;
        }
    }

    /// The streams of a set of uses, by id: (stream, slot).
    pub(super) fn users(&self, uses: u64) -> Vec<(u64, u32)> {
        self.streams.of(uses)
    }

    /// Ends all entries of a stream's queue up to a mark, unless the stream is gone: then they have ended.
    pub(super) fn retire(&mut self, slot: u32, stream: u64, done: u64) {
        if self.streams.is(slot, stream) {
            self.retire_slot(slot, done);
        }
    }

    fn retire_slot(&mut self, slot: u32, done: u64) {
        while let Some(queue) = self.queues.get_mut(slot as usize)
            && let Some(&(mark, id)) = queue.front()
            && mark <= done
        {
            queue.pop_front();
            if queue.is_empty() {
                self.waiting_beyond -= u32::from(slot >= DENSE);
                // The shared bit may stand for other queues; those who poll it look at each.
                if slot < DENSE || self.waiting_beyond == 0 {
                    self.waiting &= !bit(slot);
                }
            }
            self.one_event_less(id);
        }
    }

    /// Slots of streams whose queue holds something, by stream.
    fn waiting_streams(&self) -> Vec<(u64, u32)> {
        let mut streams = self.streams.of(self.waiting);
        streams.retain(|&(_, slot)| self.queues.get(slot as usize).is_some_and(|queue| !queue.is_empty()));
        streams
    }

    /// A stream is gone, and with it all uses.
    fn forget_stream(&mut self, stream: u64) {
        let Some(slot) = self.streams.forget(stream) else { return };
        self.retire_slot(slot, u64::MAX);
        self.forget_shelves(stream);
        if slot < DENSE {
            // The next stream of this slot was in no capture.
            self.capture_uses.values_mut().for_each(|uses| *uses &= !bit(slot));
        }
    }

    fn one_event_less(&mut self, id: u32) {
        let block = &mut self.arena[id];
        block.events -= 1;
        if block.events == 0 {
            self.finish(id);
        }
    }

    fn enqueue(&mut self, slot: u32, mark: u64, id: u32) {
        let slot = slot as usize;
        if self.queues.len() <= slot {
            self.queues.resize_with(slot + 1, Default::default);
        }
        self.waiting |= bit(slot as u32);
        let queue = &mut self.queues[slot];
        self.waiting_beyond += u32::from(slot >= DENSE as usize && queue.is_empty());
        queue.push_back((mark, id));
        // Two threads may come here in another order than that of their marks.
        let mut at = queue.len() - 1;
        while at > 0 && queue[at - 1].0 > mark {
            queue.swap(at - 1, at);
            at -= 1;
        }
    }
}

impl DeviceCache {
    /// Says in `attention` what the heap holds.
    pub(super) fn publish(&self, heap: &Heap) {
        let parked = if heap.parked.is_empty() { 0 } else { BEYOND };
        self.attention.store(heap.waiting | parked, Ordering::Release);
    }

    /// A stream is gone for good, after all its work has ended: so have its uses, and the next new stream takes its place,
    /// with the memory that was cached for it. To be called once nobody uses the stream any more.
    pub fn forget(&self, stream: u64) {
        let mut heap = self.lock();
        heap.forget_stream(stream);
        self.publish(&heap);
    }

    /// Queues a pending block behind a mark of a stream, unless the stream went while the mark was made.
    fn enqueue(&self, heap: &mut Heap, (stream, slot): (u64, u32), mark: u64, id: u32) {
        if !heap.streams.is(slot, stream) {
            return;
        }
        heap.arena[id].events += 1;
        heap.enqueue(slot, mark, id);
        if let Some(name) = self.names.get(slot as usize) {
            name.store(stream, Ordering::Relaxed);
        }
    }

    /// A block given back that `uses` still use.
    #[cold]
    pub(super) fn defer(&self, mut heap: Guard<'_>, id: u32, uses: u64) {
        let (kind, size) = (heap.arena[id].kind(), heap.arena[id].size);
        if heap.recorder.is_some() {
            heap.note_given(id, &[Action::FreeRequested]);
        } else {
            // A recording may begin while the lock is away.
            heap.caller = StackId::EMPTY;
        }
        heap.counters.defer(kind, size);
        let block = &mut heap.arena[id];
        block.life = Life::Pending;
        block.links = uses;
        if heap.capturing() {
            heap.arena[id].events = 1;
            heap.parked.push(id);
            self.publish(&heap);
            return;
        }
        if !heap.capture_uses.is_empty() {
            heap.capture_uses.remove(&id);
        }
        if uses.is_power_of_two() && uses != BEYOND {
            // One stream, as nearly always.
            let slot = uses.trailing_zeros();
            let stream = heap.streams.id(slot);
            let (mut heap, mark) = self.outside(heap, || self.ports.marks.mark(stream));
            if heap.seized {
                return;
            }
            self.enqueue_all(&mut heap, id, &[(stream, slot)], &[mark]);
            if heap.arena[id].events == 0 {
                heap.finish(id);
            }
            self.publish(&heap);
            return;
        }
        let users = heap.users(uses);
        let (mut heap, marks) = self.outside(heap, || self.mark_all(&users));
        if heap.seized {
            return;
        }
        self.enqueue_all(&mut heap, id, &users, &marks);
        if heap.arena[id].events == 0 {
            heap.finish(id);
        }
        self.publish(&heap);
    }

    fn mark_all(&self, users: &[(u64, u32)]) -> Vec<Result<u64, PortError>> {
        users.iter().map(|&(stream, _)| self.ports.marks.mark(stream)).collect()
    }

    /// Queues a pending block behind its marks. One whose mark failed is parked, to be marked later; on a lost device
    /// everything has ended.
    fn enqueue_all(&self, heap: &mut Heap, id: u32, users: &[(u64, u32)], marks: &[Result<u64, PortError>]) {
        let mut left = 0;
        for (&user, mark) in users.iter().zip(marks) {
            match mark {
                Ok(mark) => self.enqueue(heap, user, *mark, id),
                Err(PortError::DeviceLost(_)) => {}
                Err(_) => left |= bit(user.1),
            }
        }
        heap.arena[id].links = left;
        if left != 0 {
            heap.arena[id].events += 1;
            heap.parked.push(id);
        }
    }

    /// Marks what is parked, unless a capture is under way. Uses recorded under a capture ended with it: the capture
    /// joined those streams.
    pub(super) fn settle<'a>(&'a self, mut heap: Guard<'a>) -> Guard<'a> {
        if heap.capturing() || heap.parked.is_empty() {
            return heap;
        }
        let parked = std::mem::take(&mut heap.parked);
        let mut all = Vec::with_capacity(parked.len());
        for id in parked {
            let captured = heap.capture_uses.remove(&id).unwrap_or(0);
            let uses = heap.arena[id].links & !captured;
            all.push((id, heap.users(uses)));
        }
        let (mut heap, marks) =
            self.outside(heap, || all.iter().map(|(_, users)| self.mark_all(users)).collect::<Vec<_>>());
        if heap.seized {
            return heap;
        }
        for ((id, users), marks) in all.iter().zip(&marks) {
            self.enqueue_all(&mut heap, *id, users, marks);
            heap.one_event_less(*id);
        }
        self.publish(&heap);
        heap
    }

    /// Gives back what host functions left, if anything.
    pub(super) fn drain_side(&self) {
        // Most often there is nothing, and a load is cheaper than a swap.
        let full = |notice: u64| notice & SIDE != 0;
        if !full(self.notice.load(Ordering::Acquire)) || !full(self.notice.fetch_and(!SIDE, Ordering::AcqRel)) {
            return;
        }
        let left = std::mem::take(&mut *self.side.lock());
        for (handle, uses) in left {
            // A stale handle here is a double free by the host function, of which nobody is left to be told.
            let _ = self.give_recorded(self.lock(), handle, uses.0);
        }
    }

    /// Asks the streams with waiting blocks how far they are. Called without the lock, returns without it.
    #[cold]
    pub(super) fn poll(&self, done: &mut Done) -> Result<(), AllocError> {
        self.drain_side();
        if self.attention.load(Ordering::Acquire) & BEYOND != 0 {
            let heap = self.settle(self.lock());
            self.publish(&heap);
        }
        if self.capturing.load(Ordering::Acquire) {
            return Ok(());
        }
        let attention = self.attention.load(Ordering::Acquire);
        if attention & BEYOND == 0 && attention.count_ones() as usize <= done.items.len() {
            let mut left = attention;
            while left != 0 {
                let slot = left.trailing_zeros();
                left &= left - 1;
                let stream = self.names[slot as usize].load(Ordering::Relaxed);
                done.items[done.len] = (stream, slot, self.completed(stream)?);
                done.len += 1;
            }
            if done.len > 1 {
                done.items[..done.len].sort_unstable();
            }
            return Ok(());
        }
        // Many streams: not worth a hot path.
        let heap = self.lock();
        let streams = heap.waiting_streams();
        let (mut heap, answers) =
            self.outside(heap, || streams.iter().map(|&(stream, _)| self.completed(stream)).collect::<Vec<_>>());
        let mut fault = None;
        for (&(stream, slot), answer) in streams.iter().zip(answers) {
            match answer {
                Ok(done) => heap.retire(slot, stream, done),
                Err(e) => fault = fault.or(Some(e)),
            }
        }
        self.publish(&heap);
        fault.map_or(Ok(()), Err)
    }

    fn completed(&self, stream: u64) -> Result<u64, AllocError> {
        match self.ports.marks.completed(stream) {
            Ok(mark) => Ok(mark),
            Err(PortError::DeviceLost(_)) => Ok(u64::MAX),
            Err(fault) => Err(AllocError::Port { device: self.device, call: "completed", fault }),
        }
    }

    pub(super) fn apply(&self, heap: &mut Heap, done: &Done) {
        if heap.capturing() {
            return;
        }
        for &(stream, slot, mark) in &done.items[..done.len] {
            heap.retire(slot, stream, mark);
        }
        self.publish(heap);
    }

    /// Waits for everything that is pending. Returns the first call that failed; the blocks behind it stay pending.
    pub(super) fn wait_for_uses<'a>(&'a self, heap: Guard<'a>) -> (Guard<'a>, Result<(), PortError>) {
        let mut heap = self.settle(heap);
        let mut outcome = Ok(());
        for (stream, slot) in heap.waiting_streams() {
            let there = heap.streams.is(slot, stream);
            let Some(&(mark, _)) = heap.queues[slot as usize].back().filter(|_| there) else { continue };
            let result;
            (heap, result) = self.outside(heap, || self.ports.marks.wait(stream, mark));
            match result {
                Ok(()) => heap.retire(slot, stream, mark),
                Err(PortError::DeviceLost(_)) => heap.retire(slot, stream, u64::MAX),
                Err(fault) => outcome = outcome.and(Err(fault)),
            }
        }
        self.publish(&heap);
        (heap, outcome)
    }
}
