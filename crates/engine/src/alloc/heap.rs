//! The locked state of one device, and the moves that need no call to it: find, cut, hand out, take back, merge.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::address::AddressTable;
use super::arena::{Arena, Block, GROWABLE, INDEXED, LARGE, Life, NIL};
use super::counters::Counters;
use super::policy::{Departures, Rules};
use super::pools::{NO_SHELF, Pool, PoolId, Scope};
use super::ports::RawSegment;
use super::settings::Settings;
use super::shelf::Shelf;
use super::slots::{DENSE, Streams, bit};
use super::stats::PoolStat;
use super::{Allocation, Handle};
use crate::history::{Action, Recorder, StackId};

/// A segment, or a range of address space that growable segments are mapped into.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seg {
    pub(super) raw: RawSegment,
    pub(super) unit: u64,
    /// Who made it.
    pub(super) stack: StackId,
}

/// Everything about one device that the lock guards.
#[derive(Debug)]
pub(super) struct Heap {
    pub(super) arena: Arena,
    /// In the order in which they were made.
    pub(super) segs: Vec<Seg>,
    /// How many of them are gone.
    pub(super) dead_segs: usize,
    pub(super) shelves: Vec<Shelf>,
    spare_shelves: Vec<u32>,
    /// Index 0 is the default pool.
    pub(super) pools: Vec<Pool>,
    pub(super) private_reserved: BTreeMap<PoolId, PoolStat>,
    /// Shelves of the default pool for streams lately used: they stay.
    recent: [(u64, [u32; 2]); 16],
    /// Open pool scopes, the outermost first.
    pub(super) routes: Vec<(u32, Scope)>,
    pub(super) streams: Streams,
    /// By stream slot: blocks that wait for a mark of that stream, in the order of their marks.
    pub(super) queues: Vec<VecDeque<(u64, u32)>>,
    /// The bits of the slots whose queue holds something.
    pub(super) waiting: u64,
    /// How many queues that share a bit hold something.
    pub(super) waiting_beyond: u32,
    /// Blocks given back that still need their marks, since a capture was under way or a mark failed.
    pub(super) parked: Vec<u32>,
    /// Uses of a block that were recorded under capture.
    pub(super) capture_uses: HashMap<u32, u64>,
    /// Streams under capture.
    pub(super) captures: Vec<u64>,
    pub(super) addresses: AddressTable,
    pub(super) counters: Counters,
    pub(super) settings: Settings,
    pub(super) rules: Rules,
    pub(super) departures: Departures,
    pub(super) total: u64,
    /// The backend can map memory piece by piece.
    pub(super) can_grow: bool,
    /// From the fraction.
    pub(super) limit: Option<u64>,
    /// In bytes.
    pub(super) budget: Option<u64>,
    /// Bytes that calls to the device, now under way, may add.
    pub(super) in_flight: u64,
    /// Bytes that threads are giving back to the device just now: still reserved, and nobody's to use.
    pub(super) leaving: u64,
    /// How often somebody has ended giving something back.
    pub(super) departed: u64,
    /// Garbage collection is on.
    pub(super) collecting: bool,
    /// Garbage collection is or was on, so free blocks bear the time when they were shelved.
    pub(super) ticking: bool,
    /// Nobody is handed a block any more.
    pub(super) closed: bool,
    /// The cache is closed, or its events are recorded.
    pub(super) unusual: bool,
    /// Closing took all blocks from whoever had them.
    pub(super) seized: bool,
    /// While events are recorded.
    pub(super) recorder: Option<Box<Recorder>>,
    /// Whose call the owner of the lock works for, if that was asked.
    pub(super) caller: StackId,
}

/// Of how many pools that are gone the statistics are kept. The original keeps all, which a process that captures for as long as
/// it lives can't afford.
const REMEMBERED_POOLS: usize = 64;

impl Heap {
    pub(super) fn new(total: u64, settings: Settings, can_grow: bool, departures: Departures) -> Self {
        let mut heap = Heap {
            arena: Arena::new(),
            segs: Vec::new(),
            dead_segs: 0,
            shelves: Vec::new(),
            spare_shelves: Vec::new(),
            pools: vec![Pool { users: 1, ..Pool::default() }],
            private_reserved: BTreeMap::new(),
            recent: [(0, [NO_SHELF; 2]); 16],
            routes: Vec::new(),
            streams: Streams::default(),
            queues: Vec::new(),
            waiting: 0,
            waiting_beyond: 0,
            parked: Vec::new(),
            capture_uses: HashMap::new(),
            captures: Vec::new(),
            addresses: AddressTable::default(),
            counters: Counters::default(),
            rules: Rules::new(&settings, can_grow),
            settings,
            departures,
            total,
            can_grow,
            limit: None,
            budget: None,
            in_flight: 0,
            leaving: 0,
            departed: 0,
            collecting: false,
            ticking: false,
            closed: false,
            unusual: false,
            seized: false,
            recorder: None,
            caller: StackId::EMPTY,
        };
        heap.limit = super::policy::fraction_limit(heap.settings.per_process_memory_fraction, total);
        heap.update_collecting();
        heap
    }

    pub(super) fn update_collecting(&mut self) {
        self.collecting = self.settings.garbage_collection_threshold > 0.0 && self.cap().is_some();
        if self.collecting && !self.ticking {
            // Until now no clock has ticked and no block was stamped: all were shelved at 0.
            self.ticking = true;
            let free: Vec<u32> = self.arena.iter().filter(|(_, b)| b.life == Life::Free).map(|(id, _)| id).collect();
            free.into_iter().for_each(|id| self.arena[id].requested = 0);
        }
    }

    /// What reserved memory must not pass.
    pub(super) fn cap(&self) -> Option<u64> {
        match (self.limit, self.budget) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    pub(super) fn capturing(&self) -> bool {
        !self.captures.is_empty()
    }

    /// The pool that a request for `stream` goes to.
    #[inline]
    fn route(&self, stream: u64) -> u32 {
        if self.routes.is_empty() {
            return 0;
        }
        let mut routes = self.routes.iter();
        let open = if self.departures.innermost_pool_wins {
            routes.rfind(|(_, scope)| scope.takes(stream))
        } else {
            routes.find(|(_, scope)| scope.takes(stream))
        };
        open.map_or(0, |(pool, _)| *pool)
    }

    /// The shelf for a request of `rounded` bytes on `stream`.
    #[inline(always)]
    pub(super) fn shelf_for(&mut self, kind: usize, stream: u64) -> u32 {
        let (id, shelves) = self.recent[((stream ^ (stream >> 6)) & 15) as usize];
        let shelf = shelves[kind & 1];
        if id == stream && shelf != NO_SHELF && self.routes.is_empty() { shelf } else { self.find_shelf(kind, stream) }
    }

    #[inline(never)]
    fn find_shelf(&mut self, kind: usize, stream: u64) -> u32 {
        let pool = self.route(stream);
        let slot = self.slot(stream);
        let mut shelf = self.pools[pool as usize].halves[kind & 1].shelf(slot);
        if shelf == NO_SHELF {
            shelf = self.put_up_shelf(pool, kind, stream, slot);
        }
        if pool == 0 {
            let recent = &mut self.recent[((stream ^ (stream >> 6)) & 15) as usize];
            if recent.0 != stream {
                *recent = (stream, [NO_SHELF; 2]);
            }
            recent.1[kind & 1] = shelf;
        }
        shelf
    }

    /// The slot of a stream.
    pub(super) fn slot(&mut self, stream: u64) -> u32 {
        let (slot, inherits) = self.streams.slot(stream);
        if inherits {
            self.inherit_shelves(slot, stream);
        }
        slot
    }

    /// What was cached for a stream that is gone, and whose work has ended, is the next one's of its slot.
    #[cold]
    fn inherit_shelves(&mut self, slot: u32, stream: u64) {
        for pool in &mut self.pools {
            for half in &mut pool.halves {
                let Some(shelf) = self.shelves.get_mut(half.shelf(slot) as usize) else { continue };
                let before = std::mem::replace(&mut shelf.stream, stream);
                let unmapped = half.unmapped.range((before, 0, 0)..=(before, u64::MAX, u32::MAX));
                let unmapped: Vec<(u64, u64, u32)> = unmapped.copied().collect();
                for entry in unmapped {
                    half.unmapped.remove(&entry);
                    half.unmapped.insert((stream, entry.1, entry.2));
                }
            }
        }
    }

    /// Nobody asks for a stream's shelves by its number any more.
    pub(super) fn forget_shelves(&mut self, stream: u64) {
        if let Some(recent) = self.recent.iter_mut().find(|recent| recent.0 == stream) {
            *recent = (0, [NO_SHELF; 2]);
        }
    }

    #[cold]
    fn put_up_shelf(&mut self, pool: u32, kind: usize, stream: u64, slot: u32) -> u32 {
        let shelf = Shelf::new(pool, kind, stream, slot);
        let id = match self.spare_shelves.pop() {
            Some(id) => {
                self.shelves[id as usize] = shelf;
                id
            }
            None => {
                self.shelves.push(shelf);
                (self.shelves.len() - 1) as u32
            }
        };
        self.pools[pool as usize].halves[kind & 1].set_shelf(slot, id);
        id
    }

    /// Forgets a private pool that has neither users nor memory, nor an open scope.
    pub(super) fn erase_pool_if_empty(&mut self, pool: u32) {
        let entry = &self.pools[pool as usize];
        let in_use = entry.users > 0 || entry.visitors > 0 || self.routes.iter().any(|r| r.0 == pool);
        if pool == 0 || entry.gone || in_use || entry.reserved > 0 || entry.ranges > 0 {
            return;
        }
        for half in &entry.halves {
            for shelf in half.shelves() {
                self.spare_shelves.push(shelf);
            }
        }
        self.pools[pool as usize] = Pool { gone: true, ..Pool::default() };
        while self.private_reserved.len() > self.pools.len() + REMEMBERED_POOLS {
            let is_gone = |id: &&PoolId| !self.pools.iter().any(|pool| pool.id == Some(**id));
            let Some(oldest) = self.private_reserved.keys().find(is_gone).copied() else { break };
            self.private_reserved.remove(&oldest);
        }
    }

    /// The least free block that may serve the request, by the order of its shelf. Counts as one search.
    #[inline(always)]
    pub(super) fn search(&mut self, shelf: u32, rounded: u64) -> u32 {
        if self.collecting {
            let (pool, kind) = (self.shelves[shelf as usize].pool, self.shelves[shelf as usize].kind);
            self.pools[pool as usize].halves[kind].clock += 1;
        }
        self.best_fit(shelf, rounded)
    }

    /// [`search`](Heap::search) without the clock.
    #[inline(always)]
    pub(super) fn best_fit(&mut self, shelf: u32, rounded: u64) -> u32 {
        let list = &self.shelves[shelf as usize];
        let mut id = list.at_least(&self.arena, rounded);
        if id == NIL {
            return NIL;
        }
        if self.arena[id].is(GROWABLE) {
            id = self.growable_fit(shelf, id);
            if id == NIL {
                return NIL;
            }
        }
        let block = &self.arena[id];
        let exempt = block.is(GROWABLE) && self.departures.growable_ignores_split_limit;
        if exempt || self.rules.fits(block.size, rounded) { id } else { NIL }
    }

    #[cold]
    fn growable_fit(&self, shelf: u32, first: u32) -> u32 {
        let list = &self.shelves[shelf as usize];
        let mut id = first;
        if !self.rules.growable {
            // Turned off since: growable blocks serve nobody any more.
            while id != NIL && self.arena[id].is(GROWABLE) {
                id = list.after(&self.arena, id);
            }
            return id;
        }
        // A block counts as large as it could grow to: what can't grow is used up first.
        let could_be = |id: u32| {
            let block = &self.arena[id];
            let next = if block.next == NIL { None } else { Some(&self.arena[block.next]) };
            block.size + next.filter(|n| n.life == Life::Unmapped).map_or(0, |n| n.size)
        };
        loop {
            let next = list.after(&self.arena, id);
            if !self.arena[id].is(GROWABLE) || next == NIL || could_be(next) >= could_be(id) {
                return id;
            }
            id = next;
        }
    }

    pub(super) fn clock(&self, shelf: u32) -> u64 {
        let shelf = &self.shelves[shelf as usize];
        self.pools[shelf.pool as usize].halves[shelf.kind].clock
    }

    /// Puts a block on its shelf, as of now.
    #[inline(always)]
    pub(super) fn shelve(&mut self, id: u32) {
        let shelf = self.arena[id].shelf;
        if self.ticking {
            self.arena[id].requested = self.clock(shelf);
        }
        self.arena[id].life = Life::Free;
        self.shelves[shelf as usize].insert(&mut self.arena, id);
    }

    /// Takes a free block off its shelf.
    #[inline(always)]
    pub(super) fn unshelve(&mut self, id: u32) {
        let shelf = self.arena[id].shelf as usize;
        self.shelves[shelf].remove(&mut self.arena, id);
    }

    /// Hands a block out that is on no shelf, cutting it to size first.
    #[inline(always)]
    pub(super) fn hand_out(&mut self, id: u32, rounded: u64, requested: u64, indexed: bool) -> Allocation {
        let Block { addr, size: whole, prev, next, seg, flags, .. } = self.arena[id];
        let kind = usize::from(flags & LARGE != 0);
        let counted = flags & GROWABLE == 0;
        let was_split = prev != NIL || next != NIL;
        let mut size = whole;
        if self.rules.splits(kind, whole, rounded) && self.arena.has_room() {
            size = rounded;
            let high = self.arena.cut(id, rounded, Life::Free);
            self.shelve(high);
            if counted && was_split {
                self.counters.inactive_split_bytes.sub(kind, size);
            } else if counted {
                self.counters.inactive_split.add(kind, 1);
                self.counters.inactive_split_bytes.add(kind, whole - rounded);
            }
        } else if was_split && counted {
            self.counters.inactive_split.sub(kind, 1);
            self.counters.inactive_split_bytes.sub(kind, whole);
        }
        let block = &mut self.arena[id];
        block.requested = requested;
        block.links = 0;
        block.life = Life::Active;
        block.generation = block.generation.wrapping_add(1);
        let handle = Handle::new(id, block.generation);
        if indexed {
            block.flags |= INDEXED;
            self.addresses.insert(&mut self.arena, id);
        }
        self.counters.take(kind, size, requested);
        if size >= self.rules.max_split {
            self.counters.oversize_allocations.add(1);
        }
        let raw = &self.segs[seg as usize].raw;
        Allocation { handle, addr, size, segment: raw.token, offset: addr - raw.addr }
    }

    /// The block of a handle, if it is in its user's hands.
    #[inline(always)]
    pub(super) fn live(&self, handle: Handle) -> Option<u32> {
        let id = handle.index();
        let block = self.arena.get(id)?;
        (block.life == Life::Active && block.generation == handle.generation()).then_some(id)
    }

    /// The live block that starts at an address.
    #[inline(always)]
    pub(super) fn live_at(&mut self, addr: u64) -> Option<u32> {
        match self.addresses.find(&self.arena, addr) {
            Some(id) => Some(id),
            None => self.scan_for(addr),
        }
    }

    /// A block handed out by handle is not in the table. To name it by address is rare, so a scan will do.
    #[cold]
    fn scan_for(&self, addr: u64) -> Option<u32> {
        self.arena.iter().find(|(_, b)| b.addr == addr && b.life == Life::Active).map(|(id, _)| id)
    }

    /// First half of giving back: the user's part. Returns the streams that still use the block.
    #[inline(always)]
    pub(super) fn give_back(&mut self, id: u32, more_uses: u64) -> u64 {
        let block = &self.arena[id];
        let (size, uses) = (block.size, block.links | more_uses);
        if block.is(INDEXED) {
            self.addresses.remove(&mut self.arena, id);
            self.arena[id].flags &= !INDEXED;
        }
        if size >= self.rules.max_split {
            self.counters.oversize_allocations.sub(1);
        }
        if uses == 0 {
            return 0;
        }
        let shelf = self.arena[id].shelf as usize;
        let slot = self.shelves[shelf].slot;
        let own = if slot < DENSE { bit(slot) } else { 0 };
        uses & self.streams.known() & !own
    }

    /// [`end`](Heap::end), noted if events are recorded.
    #[inline]
    pub(super) fn finish(&mut self, id: u32) {
        if self.recorder.is_some() {
            let both: &[Action] = &[Action::FreeRequested, Action::FreeCompleted];
            self.note_given(id, if self.arena[id].life == Life::Pending { &both[1..] } else { both });
        }
        self.end(id);
    }

    /// Second half: really free. Merges with free neighbours and goes back on the shelf.
    #[inline(always)]
    pub(super) fn end(&mut self, id: u32) {
        let Block { size: own, requested, prev, next, life, flags, .. } = self.arena[id];
        let kind = usize::from(flags & LARGE != 0);
        self.counters.end(kind, own, requested, life == Life::Pending);
        let (mut count, mut bytes) = (0i64, 0i64);
        if prev != NIL && self.arena[prev].life == Life::Free {
            count -= 1;
            bytes -= self.arena[prev].size as i64;
            self.unshelve(prev);
            self.absorb(id, prev);
        }
        if next != NIL && self.arena[next].life == Life::Free {
            count -= 1;
            bytes -= self.arena[next].size as i64;
            self.unshelve(next);
            self.absorb(id, next);
        }
        self.shelve(id);
        if flags & GROWABLE == 0 {
            let block = &self.arena[id];
            if block.is_split() {
                count += 1;
                bytes += block.size as i64;
            }
            self.counters.inactive_split.change(kind, count);
            self.counters.inactive_split_bytes.change(kind, bytes);
        }
    }

    /// Makes a neighbour part of a block; the neighbour is on no list any more.
    #[inline(always)]
    pub(super) fn absorb(&mut self, id: u32, neighbour: u32) {
        let Block { addr, size, prev, next, .. } = self.arena[neighbour];
        let block = &mut self.arena[id];
        block.size += size;
        if prev == id {
            block.next = next;
            if next != NIL {
                self.arena[next].prev = id;
            }
        } else {
            block.addr = addr;
            block.prev = prev;
            if prev != NIL {
                self.arena[prev].next = id;
            }
        }
        self.arena.vacate(neighbour);
    }

    /// Takes in a segment that the device has just given; the block that fills it is on no shelf.
    pub(super) fn take_in(&mut self, raw: RawSegment, shelf: u32, unit: u64, life: Life) -> u32 {
        if self.dead_segs > 64 && self.dead_segs > self.segs.len() / 2 {
            self.renumber_segments();
        }
        self.segs.push(Seg { raw, unit, stack: self.maker() });
        let at = (self.segs.len() - 1) as u32;
        let large = if self.shelves[shelf as usize].kind == 1 { LARGE } else { 0 };
        let growable = if unit > 0 { GROWABLE } else { 0 };
        self.arena.put(Block::new(raw.addr, raw.len, shelf, at, life, large | growable))
    }

    /// Forgets the segments that are gone. The others keep their order, so that the order of the shelves holds.
    fn renumber_segments(&mut self) {
        let mut numbers = vec![u32::MAX; self.segs.len()];
        self.arena.iter().for_each(|(_, block)| numbers[block.seg as usize] = 0);
        for (next, number) in numbers.iter_mut().filter(|number| **number == 0).enumerate() {
            *number = next as u32;
        }
        let mut old = numbers.iter();
        self.segs.retain(|_| old.next().is_some_and(|&number| number != u32::MAX));
        self.arena.iter_mut().for_each(|block| block.seg = numbers[block.seg as usize]);
        self.dead_segs = 0;
    }

    /// Counts bytes of the device that a pool has taken.
    pub(super) fn reserve(&mut self, shelf: u32, bytes: u64) {
        let (pool, kind) = (self.shelves[shelf as usize].pool, self.shelves[shelf as usize].kind);
        self.counters.reserved.add(kind, bytes);
        self.counters.device_allocs += 1;
        let pool = &mut self.pools[pool as usize];
        pool.reserved += bytes;
        if let Some(id) = pool.id {
            self.private_reserved.entry(id).or_default().add(kind, bytes);
        }
    }

    /// Counts bytes that a pool has given back to the device.
    pub(super) fn unreserve(&mut self, shelf: u32, bytes: u64) {
        let (pool, kind) = (self.shelves[shelf as usize].pool, self.shelves[shelf as usize].kind);
        self.counters.reserved.sub(kind, bytes);
        self.counters.device_frees += 1;
        let pool = &mut self.pools[pool as usize];
        pool.reserved -= bytes;
        if let Some(id) = pool.id {
            self.private_reserved.entry(id).or_default().sub(kind, bytes);
        }
    }

    /// The shelves of half a pool, in the order of their streams.
    pub(super) fn shelves_by_stream(&self, pool: u32, kind: usize) -> Vec<u32> {
        let mut shelves: Vec<u32> = self.pools[pool as usize].halves[kind].shelves().collect();
        shelves.sort_by_key(|&s| self.shelves[s as usize].stream);
        shelves
    }

    /// The free blocks of half a pool, by stream, then in the order of their shelf.
    pub(super) fn free_blocks(&self, pool: u32, kind: usize) -> Vec<u32> {
        let mut out = Vec::new();
        for shelf in self.shelves_by_stream(pool, kind) {
            let shelf = &self.shelves[shelf as usize];
            if !shelf.is_empty() {
                out.extend(shelf.in_order(&self.arena));
            }
        }
        out
    }
}
