//! Running a graph: on one thread, or its strands on several.
//!
//! # Protocol
//!
//! Replays of one graph don't overlap (H31, its caller), so a graph has one [`Run`] whose counters serve all of them.
//!
//! - Every strand has a counter of the strands that it still waits for. Who ends a strand lowers the counters of those
//!   after it; who brings one to 0 sets it back for the next replay and makes the strand *ready*: the first it runs itself,
//!   the others go into the *ring*. Host functions go to the callback threads.
//! - The ring is an array of as many slots as there are strands. A ticket names a slot; tickets rise for ever, so
//!   slots need no clearing: a slot that bears its ticket is full. A strand enters once a replay, so no slot is written
//!   before it was read.
//! - `left` counts strands that have not ended. Who ends the last one has ended the replay.
//! - The *owner* is the thread that has the token of the stream. It runs what is ready, looks a while for more, and then
//!   blocks the stream until there is more: it sets `waiting`, then looks again, while who makes strands ready, or ends the
//!   replay, does so first and then reads `waiting`. A fence on both sides makes sure that one of them sees the other.
//! - *Helpers* are workers that found the run with the crew, where it is listed while there is more ready than its threads
//!   run. They leave when nothing has been ready for a while. One that is late meets the next replay, and helps with it.
//!
//! No allocation and no lock per node: a lock is taken where a helper is called, a stream blocked, a function called.

use super::program::{Program, Shape, Task};
use crate::crew::Crew;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, fence, relax, spin};
use crate::wait::Waiter;
use anyaccel_hal::HostStatus;
use std::fmt;
use std::sync::Arc;

/// The state of a graph that several threads can run.
pub(crate) struct Run {
    pub(super) shape: Shape,
    /// What the replay under way runs, and its number. Set by the owner before it makes anything ready, and kept until the
    /// next replay begins, which it does not before this one has ended: so who runs a strand may follow `tasks`.
    active: Mutex<Option<(Arc<Program>, u64)>>,
    /// The program in `active`.
    tasks: AtomicPtr<Program>,
    needs: Box<[AtomicU32]>,
    ring: Box<[AtomicU64]>,
    /// The next ticket to take out.
    head: AtomicU64,
    /// The next ticket to put in.
    tail: AtomicU64,
    left: AtomicUsize,
    waiting: AtomicBool,
    waiter: Mutex<Option<Waiter>>,
    /// Whether it is listed with the crew.
    listed: AtomicBool,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("strands", &self.shape.strands.len()).finish_non_exhaustive()
    }
}

/// How far the owner has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// All strands have ended.
    Ended,
    /// Others run what is left.
    Waits,
}

impl Run {
    pub(super) fn new(shape: Shape) -> Self {
        let needs = shape.strands.iter().map(|strand| AtomicU32::new(strand.needs)).collect();
        let ring = shape.strands.iter().map(|_| AtomicU64::new(0)).collect();
        Self {
            shape,
            active: Mutex::new(None),
            tasks: AtomicPtr::new(std::ptr::null_mut()),
            needs,
            ring,
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            left: AtomicUsize::new(0),
            waiting: AtomicBool::new(false),
            waiter: Mutex::new(None),
            listed: AtomicBool::new(false),
        }
    }

    /// A replay begins. For the owner, before anything else of it.
    pub(super) fn begin(self: &Arc<Self>, crew: &Arc<Crew>, program: &Arc<Program>, replay: u64) {
        self.tasks.store(Arc::as_ptr(program).cast_mut(), Ordering::Release);
        let before = self.active.lock().replace((Arc::clone(program), replay));
        drop(before);
        self.left.store(self.shape.strands.len(), Ordering::Release);
        self.make_ready(crew, self.shape.roots.iter().copied(), false);
    }

    /// Runs what is ready. For the owner.
    pub(super) fn go_on(self: &Arc<Self>, crew: &Arc<Crew>) -> Progress {
        loop {
            while let Some(strand) = self.take() {
                self.run(crew, strand);
            }
            if self.left.load(Ordering::Acquire) == 0 {
                return Progress::Ended;
            }
            if !spin(|| self.has_ready() || self.left.load(Ordering::Acquire) == 0) {
                return Progress::Waits;
            }
        }
    }

    /// Registers the owner's stream to be woken; false if there is something to do, then nothing was registered.
    pub(crate) fn register(&self, stream: Waiter) -> bool {
        let mut waiter = self.waiter.lock();
        *waiter = Some(stream);
        self.waiting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !self.has_ready() && self.left.load(Ordering::Acquire) > 0 {
            return true;
        }
        self.waiting.store(false, Ordering::Relaxed);
        let ours = waiter.take();
        drop(waiter);
        drop(ours);
        false
    }

    /// Wakes the owner if it waits.
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) {
            let mut waiter = self.waiter.lock();
            self.waiting.store(false, Ordering::Relaxed);
            let woken = waiter.take();
            drop(waiter);
            if let Some(waiter) = woken {
                waiter.wake();
            }
        }
    }

    fn has_ready(&self) -> bool {
        self.head.load(Ordering::Acquire) < self.tail.load(Ordering::Acquire)
    }

    fn put(&self, strand: u32) {
        let ticket = self.tail.fetch_add(1, Ordering::AcqRel);
        let slot = &self.ring[(ticket % self.ring.len() as u64) as usize];
        slot.store(stamp(ticket) | u64::from(strand), Ordering::Release);
    }

    fn take(&self) -> Option<u32> {
        loop {
            let ticket = self.head.load(Ordering::Acquire);
            if ticket >= self.tail.load(Ordering::Acquire) {
                return None;
            }
            let slot = self.ring[(ticket % self.ring.len() as u64) as usize].load(Ordering::Acquire);
            if slot & STAMP != stamp(ticket) {
                // Its writer is about to fill it.
                relax();
                continue;
            }
            if self.head.compare_exchange_weak(ticket, ticket + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(slot as u32);
            }
        }
    }

    /// Makes strands ready; with `keep` the first that any thread may run is returned instead.
    fn make_ready(self: &Arc<Self>, crew: &Arc<Crew>, strands: impl Iterator<Item = u32>, keep: bool) -> Option<u32> {
        let (mut own, mut more) = (None, 0);
        for strand in strands {
            if self.shape.strands[strand as usize].call {
                if !crew.call(self, strand) {
                    // The crew is closed: no thread will come.
                    self.call(crew, strand);
                }
            } else if keep && own.is_none() {
                own = Some(strand);
            } else {
                self.put(strand);
                more += 1;
            }
        }
        if more > 0 {
            self.wake();
            // Roots are the owner's to begin with; one of them it takes itself.
            if more > usize::from(!keep) && !self.shape.serial && crew.workers() > 1 {
                self.offer(crew);
            }
        }
        own
    }

    fn offer(self: &Arc<Self>, crew: &Arc<Crew>) {
        if !self.listed.swap(true, Ordering::AcqRel) {
            crew.offer(self);
        }
    }

    /// Whether a helper would find something. Asked under the crew's lock; after a no it is not listed any more.
    pub(crate) fn wants_help(&self) -> bool {
        if self.has_ready() {
            return true;
        }
        self.listed.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        self.has_ready() && !self.listed.swap(true, Ordering::AcqRel)
    }

    /// Runs what is ready until there has been nothing for a while. For workers that found it.
    pub(crate) fn help(self: &Arc<Self>, crew: &Arc<Crew>) {
        loop {
            while let Some(strand) = self.take() {
                self.run(crew, strand);
            }
            if crew.closed()
                || self.left.load(Ordering::Acquire) == 0
                || !spin(|| self.has_ready() || self.left.load(Ordering::Acquire) == 0)
            {
                return;
            }
        }
    }

    /// Runs a strand, and those that it makes ready one after the other.
    fn run(self: &Arc<Self>, crew: &Arc<Crew>, strand: u32) {
        let mut next = Some(strand);
        while let Some(strand) = next {
            let tasks = self.shape.strands[strand as usize].tasks.clone();
            // SAFETY: the program of this replay, which has not ended: this strand is running. So `active` keeps it.
            let program = unsafe { &*self.tasks.load(Ordering::Acquire) };
            for task in &program.tasks[tasks.start as usize..tasks.end as usize] {
                // SAFETY: its turn: what it comes after in the graph has ended, and so has what is before the replay.
                unsafe { task.work(crew) };
            }
            next = self.ended(crew, strand);
        }
    }

    /// A strand that is a host function. For callback threads.
    pub(crate) fn call(self: &Arc<Self>, crew: &Arc<Crew>, strand: u32) {
        let active = self.active.lock().clone();
        let Some((program, replay)) = active else { return };
        let status = if crew.closed() { HostStatus::Cancelled } else { HostStatus::Run };
        let at = self.shape.strands[strand as usize].tasks.start;
        if let Task::Call(function) = &program.tasks[at as usize] {
            function.call(replay, status);
        }
        if status == HostStatus::Run
            && let Some(next) = self.ended(crew, strand)
        {
            // Not this thread's kind of work.
            self.put(next);
            self.wake();
        }
    }

    /// A strand has ended. Returns one that this makes ready, for the same thread.
    fn ended(self: &Arc<Self>, crew: &Arc<Crew>, strand: u32) -> Option<u32> {
        let links = self.shape.strands[strand as usize].links.clone();
        let links = &self.shape.links[links.start as usize..links.end as usize];
        let ready = links.iter().copied().filter(|&next| {
            let needs = &self.needs[next as usize];
            let last = needs.fetch_sub(1, Ordering::AcqRel) == 1;
            if last {
                needs.store(self.shape.strands[next as usize].needs, Ordering::Relaxed);
            }
            last
        });
        let own = self.make_ready(crew, ready, true);
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake();
        }
        own
    }
}

/// The upper half of a slot: what ticket it bears, never 0 for a full one.
const STAMP: u64 = !0 << 32;

const fn stamp(ticket: u64) -> u64 {
    (ticket % (u32::MAX as u64) + 1) << 32
}
