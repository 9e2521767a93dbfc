//! From handles to what they name.
//!
//! # Protocol
//!
//! - A handle is the index of a place and the number of times that it was filled, which is odd while it is full: so a handle
//!   that was destroyed is refused, even after the place was filled again. It is never 0, and its top bit is clear.
//! - Between the two stands the table's generation. A child of fork has tables of its own, and what it inherited from its parent
//!   must never name, or destroy, what it made itself.
//! - Places are made 256 at a time and never move or go. A place is filled by who got its index from `spare`, and emptied by who
//!   destroys its handle: C2 keeps other calls from using it meanwhile, a second that destroys it too. So both, and `with`, reach
//!   the value without a lock.
//! - A place may keep what was in it, to be filled again without an allocation; its even count says that nothing is there.
//! - Empty places are a stack, linked through `below`: its top and the number of changes to it are one word. Who takes the top
//!   has read what lies below it; that number tells whether it still does, since nobody sleeps through 2^44 changes.
//! - There are no locks.

use crate::result::{Failure, Result};
use crate::types::{ANYACCEL_ERROR_STALE, ANYACCEL_ERROR_STATE};
use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const CHUNK: usize = 256;
const CHUNKS: usize = 1024;
/// Bits of the top of the stack: an index plus 1, or 0. The number of changes is above them.
const TOP_BITS: u32 = 20;
const TOP: u64 = (1 << TOP_BITS) - 1;
const _: () = assert!((CHUNK * CHUNKS) as u64 <= TOP);
/// Where the generation begins in a handle, above the index.
const GENERATION: u32 = (CHUNK * CHUNKS).trailing_zeros();
/// So many generations are told apart: those of children of children.
pub(crate) const GENERATIONS: u32 = 1 << (u32::BITS - GENERATION);
/// Above the most that a place is filled; then it stays empty.
const WORN_OUT: u32 = (1 << 31) - 2;

struct Place<T> {
    filled: AtomicU32,
    /// While it is on the stack: the top before it.
    below: AtomicU32,
    value: UnsafeCell<Option<T>>,
}

type Chunk<T> = Box<[Place<T>]>;

pub(crate) struct Table<T> {
    what: &'static str,
    /// The part of its handles that is the same in all of them.
    generation: u32,
    chunks: [OnceLock<Chunk<T>>; CHUNKS],
    spare: AtomicU64,
    made: AtomicU32,
}

// SAFETY: a value is moved in and out by one thread at a time and shared in between, by the protocol above.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

impl<T> Table<T> {
    /// An empty one, of that kind of handle, in that generation of the process.
    pub(crate) fn new(what: &'static str, generation: u32) -> Self {
        let (spare, made) = (AtomicU64::new(0), AtomicU32::new(0));
        let generation = generation << GENERATION;
        Self { what, generation, chunks: [const { OnceLock::new() }; CHUNKS], spare, made }
    }

    /// Takes the index of an empty place from the stack.
    fn take_spare(&self) -> Option<u32> {
        let mut spare = self.spare.load(Ordering::Acquire);
        loop {
            let index = ((spare & TOP) as u32).checked_sub(1)?;
            let below = u64::from(self.at(index)?.below.load(Ordering::Relaxed));
            let next = changed(spare) | below;
            match self.spare.compare_exchange_weak(spare, next, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(now) => spare = now,
            }
        }
    }

    /// Puts the index of a place on the stack, which this thread has emptied.
    fn put_spare(&self, place: &Place<T>, index: u32) {
        let mut spare = self.spare.load(Ordering::Relaxed);
        loop {
            place.below.store((spare & TOP) as u32, Ordering::Relaxed);
            let next = changed(spare) | u64::from(index + 1);
            match self.spare.compare_exchange_weak(spare, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => spare = now,
            }
        }
    }

    /// The index of a place that nobody had yet.
    #[cold]
    fn another(&self) -> Result<u32> {
        let most = (CHUNK * CHUNKS) as u32;
        let more = |made| if made < most { Some(made + 1) } else { None };
        self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| {
            Failure::new(ANYACCEL_ERROR_STATE, format!("{most} {}s live already: destroy some", self.what))
        })
    }

    #[inline]
    fn at(&self, index: u32) -> Option<&Place<T>> {
        let index = index as usize;
        self.chunks.get(index / CHUNK)?.get()?.get(index % CHUNK)
    }

    /// The place of a handle, if it is full under that handle.
    #[inline]
    fn full_place(&self, handle: u64) -> Option<&Place<T>> {
        let filled = (handle >> 32) as u32;
        // Beyond the last place in any other generation.
        let place = self.at(handle as u32 ^ self.generation)?;
        (filled & 1 == 1 && place.filled.load(Ordering::Acquire) == filled).then_some(place)
    }

    #[cold]
    fn unknown(&self, handle: u64) -> Failure {
        if (handle as u32 >> GENERATION) < (self.generation >> GENERATION) && handle >> 32 & 1 == 1 {
            let text = format!("{handle:#x} is from before this process was forked: make a new {} here", self.what);
            return Failure::new(ANYACCEL_ERROR_STALE, text);
        }
        Failure::handle(format!("{handle:#x} is no live {}: it was destroyed already, or never given out", self.what))
    }

    /// Keeps a value, and names it.
    pub(crate) fn insert(&self, value: T) -> Result<u64> {
        self.insert_with(|place| {
            *place = Some(value);
            Ok(())
        })
    }

    /// Fills a place, and names it. It may hold what [`Table::remove_with`] left there. If that fails the place stays empty.
    #[inline]
    pub(crate) fn insert_with(&self, fill: impl FnOnce(&mut Option<T>) -> Result) -> Result<u64> {
        let index = match self.take_spare() {
            Some(index) => index,
            None => self.another()?,
        };
        let place = match self.at(index) {
            Some(place) => place,
            None => self.make(index),
        };
        // SAFETY: the index is this thread's alone, and the count is even, so nobody reads the place.
        if let Err(failure) = fill(unsafe { &mut *place.value.get() }) {
            self.put_spare(place, index);
            return Err(failure);
        }
        let filled = place.filled.load(Ordering::Relaxed) + 1;
        place.filled.store(filled, Ordering::Release);
        Ok(u64::from(filled) << 32 | u64::from(index | self.generation))
    }

    /// The place of an index, the first of its chunk maybe.
    #[cold]
    fn make(&self, index: u32) -> &Place<T> {
        let zero = || AtomicU32::new(0);
        let empty = || Place { filled: zero(), below: zero(), value: UnsafeCell::new(None) };
        let chunk = self.chunks[index as usize / CHUNK].get_or_init(|| (0..CHUNK).map(|_| empty()).collect());
        &chunk[index as usize % CHUNK]
    }

    /// Runs `f` with the value of a handle.
    #[inline]
    pub(crate) fn with<R>(&self, handle: u64, f: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        let Some(place) = self.full_place(handle) else { return Err(self.unknown(handle)) };
        // SAFETY: the place is full, and by C2 stays so during the call.
        match unsafe { &*place.value.get() } {
            Some(value) => f(value),
            None => Err(self.unknown(handle)),
        }
    }

    /// Takes a value out; its handle names nothing from then on.
    pub(crate) fn remove(&self, handle: u64) -> Result<T> {
        self.remove_with(handle, Option::take)?.ok_or_else(|| self.unknown(handle))
    }

    /// Empties the place of a handle, which names nothing from then on. What `f` leaves there is for [`Table::insert_with`].
    #[inline]
    pub(crate) fn remove_with<R>(&self, handle: u64, f: impl FnOnce(&mut Option<T>) -> R) -> Result<R> {
        let filled = (handle >> 32) as u32;
        let Some(place) = self.full_place(handle) else { return Err(self.unknown(handle)) };
        place.filled.store(filled + 1, Ordering::Release);
        // SAFETY: the place was full, and by C2 no other call names it; the index is not spare yet.
        let result = f(unsafe { &mut *place.value.get() });
        if filled < WORN_OUT {
            self.put_spare(place, handle as u32 ^ self.generation);
        }
        Ok(result)
    }
}

/// The next state of the stack, without its top.
fn changed(spare: u64) -> u64 {
    (spare >> TOP_BITS).wrapping_add(1) << TOP_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_name_their_value_until_it_is_removed() -> Result {
        let table = Table::new("number", 0);
        let (one, two) = (table.insert(1)?, table.insert(2)?);
        assert!(one != two && one != 0 && one >> 63 == 0);
        assert_eq!((table.with(one, |&n| Ok(n))?, table.with(two, |&n| Ok(n))?), (1, 2));
        assert_eq!(table.remove(one)?, 1);
        assert!(table.with(one, |_| Ok(())).is_err() && table.remove(one).is_err());
        let three = table.insert(3)?;
        assert!(three as u32 == one as u32 && three != one, "the place again, under another name");
        assert!(table.with(one, |_| Ok(())).is_err() && table.with(three, |&n| Ok(n))? == 3);
        for bad in [0, 1, u64::MAX, 2 << 32, (1 << 32) | 0xffff_ffff, three | 1 << 63] {
            assert!(table.with(bad, |_| Ok(())).is_err() && table.remove(bad).is_err(), "{bad:#x}");
        }
        Ok(())
    }

    #[test]
    fn a_full_table_takes_more_when_one_is_removed() -> Result {
        let table = Table::new("number", 0);
        let handles: Vec<u64> = (0..CHUNK * CHUNKS).map(|n| table.insert(n)).collect::<Result<_>>()?;
        assert!(table.insert(0).is_err() && table.insert(0).is_err());
        let last = handles[handles.len() - 1];
        assert_eq!((table.remove(last)?, table.remove(handles[7])?), (handles.len() - 1, 7));
        let again = [table.insert(1)?, table.insert(2)?];
        assert_eq!(again.map(|handle| handle as u32), [7, last as u32], "what was emptied last comes first");
        assert!(table.insert(0).is_err());
        assert_eq!(table.with(handles[8], |&n| Ok(n))?, 8);
        Ok(())
    }

    #[test]
    fn what_a_place_keeps_is_nothing_until_it_is_filled_again() -> Result {
        let table = Table::new("number", 0);
        let refused = |place: &mut Option<u32>| {
            assert!(place.is_none());
            Err(Failure::argument("no"))
        };
        assert!(table.insert_with(refused).is_err(), "an empty place");
        let one = table.insert(1)?;
        assert_eq!(table.remove_with(one, |kept| *kept)?, Some(1));
        assert!(table.with(one, |_| Ok(())).is_err() && table.remove(one).is_err());
        assert!(table.insert_with(|_| Err(Failure::argument("no"))).is_err(), "a place that kept something");
        assert!(table.with(one, |_| Ok(())).is_err() && table.with(one + (1 << 32), |_| Ok(())).is_err());
        let two = table.insert_with(|place| {
            assert_eq!(*place, Some(1), "the same place");
            *place = Some(2);
            Ok(())
        })?;
        assert!(two as u32 == one as u32 && two != one);
        assert_eq!((table.with(two, |&n| Ok(n))?, table.remove(two)?), (2, 2));
        Ok(())
    }

    #[test]
    fn generations_have_handles_of_their_own() -> Result {
        let tables = [0, 1, 2, GENERATIONS - 1].map(|generation| Table::new("number", generation));
        let handles = tables.iter().map(|table| table.insert(7)).collect::<Result<Vec<_>>>()?;
        for (i, table) in tables.iter().enumerate() {
            for (j, &handle) in handles.iter().enumerate().filter(|&(j, _)| i != j) {
                let failure = format!("{:?}", table.remove(handle).expect_err("another generation's"));
                assert_eq!(failure.contains("forked"), j < i, "{failure}");
            }
            assert_eq!(table.remove(handles[i])?, 7);
            let again = table.insert(8)?;
            assert!(again != handles[i] && again as u32 == handles[i] as u32, "the same place");
        }
        Ok(())
    }

    #[test]
    fn many_threads_fill_and_empty_places() {
        let table = Table::new("number", 0);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let table = &table;
                scope.spawn(move || {
                    for round in 0..2000 {
                        let value = thread * 10_000 + round;
                        let handles: Vec<u64> = (0..3).map(|_| table.insert(value).expect("room")).collect();
                        for handle in handles {
                            assert_eq!(table.with(handle, |&n| Ok(n)).expect("live"), value);
                            assert_eq!(table.remove(handle).expect("live"), value);
                        }
                    }
                });
            }
        });
        let made = table.made.load(Ordering::Relaxed);
        let mut spare: Vec<u32> = std::iter::from_fn(|| table.take_spare()).collect();
        spare.sort_unstable();
        assert_eq!(spare, (0..made).collect::<Vec<_>>(), "each place once");
        assert!(made <= 12, "{made}");
    }
}
