//! From handles to what they name.
//!
//! # Protocol
//!
//! - A handle is the index of a place and the number of times that it was filled, which is odd while it is full: so a handle
//!   that was destroyed is refused, even after the place was filled again. It is never 0, and its top bit is clear.
//! - Between the two stands the table's generation. A child of fork has tables of its own, and what it inherited from its parent
//!   must never name, or destroy, what it made itself.
//! - Places are made 256 at a time and never move or go. A place is filled and emptied by who got its index from `spare` and by
//!   who turned its count to even, each one thread. `with` reads without a lock: C2 keeps handles from being destroyed meanwhile.
//! - No lock is held while a value is used or dropped.

use crate::result::{Failure, Result};
use crate::types::{ANYACCEL_ERROR_STALE, ANYACCEL_ERROR_STATE};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

const CHUNK: usize = 256;
const CHUNKS: usize = 1024;
/// Where the generation begins in a handle, above the index.
const GENERATION: u32 = (CHUNK * CHUNKS).trailing_zeros();
/// So many generations are told apart: those of children of children.
pub(crate) const GENERATIONS: u32 = 1 << (u32::BITS - GENERATION);
/// Above the most that a place is filled; then it stays empty.
const WORN_OUT: u32 = (1 << 31) - 2;

struct Place<T> {
    filled: AtomicU32,
    value: UnsafeCell<Option<T>>,
}

type Chunk<T> = Box<[Place<T>]>;

pub(crate) struct Table<T> {
    what: &'static str,
    /// The part of its handles that is the same in all of them.
    generation: u32,
    chunks: [OnceLock<Chunk<T>>; CHUNKS],
    spare: Mutex<Spare>,
}

#[derive(Default)]
struct Spare {
    empty: Vec<u32>,
    made: u32,
}

// SAFETY: a value is moved in and out by one thread at a time and shared in between, by the protocol above.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

impl<T> Table<T> {
    /// An empty one, of that kind of handle, in that generation of the process.
    pub(crate) fn new(what: &'static str, generation: u32) -> Self {
        let generation = generation << GENERATION;
        Self { what, generation, chunks: [const { OnceLock::new() }; CHUNKS], spare: Mutex::default() }
    }

    fn place(&self, handle: u64) -> Option<&Place<T>> {
        // Beyond the last place in any other generation.
        let index = (handle as u32 ^ self.generation) as usize;
        self.chunks.get(index / CHUNK)?.get()?.get(index % CHUNK)
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
        let index = {
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            match spare.empty.pop() {
                Some(index) => index,
                None if (spare.made as usize) < CHUNK * CHUNKS => {
                    spare.made += 1;
                    spare.made - 1
                }
                None => {
                    let text = format!("{} {}s live already: destroy some", CHUNK * CHUNKS, self.what);
                    return Err(Failure::new(ANYACCEL_ERROR_STATE, text));
                }
            }
        };
        let empty = || Place { filled: AtomicU32::new(0), value: UnsafeCell::new(None) };
        let chunk = self.chunks[index as usize / CHUNK].get_or_init(|| (0..CHUNK).map(|_| empty()).collect());
        let place = &chunk[index as usize % CHUNK];
        // SAFETY: the index is this thread's alone, and the count is even, so nobody reads the place.
        unsafe { *place.value.get() = Some(value) };
        let filled = place.filled.load(Ordering::Relaxed) + 1;
        place.filled.store(filled, Ordering::Release);
        Ok(u64::from(filled) << 32 | u64::from(index | self.generation))
    }

    /// Runs `f` with the value of a handle.
    #[inline]
    pub(crate) fn with<R>(&self, handle: u64, f: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        let filled = (handle >> 32) as u32;
        let live = |place: &&Place<T>| filled & 1 == 1 && place.filled.load(Ordering::Acquire) == filled;
        let Some(place) = self.place(handle).filter(live) else { return Err(self.unknown(handle)) };
        // SAFETY: the place is full, and by C2 stays so during the call.
        match unsafe { &*place.value.get() } {
            Some(value) => f(value),
            None => Err(self.unknown(handle)),
        }
    }

    /// Takes a value out; its handle names nothing from then on.
    pub(crate) fn remove(&self, handle: u64) -> Result<T> {
        let filled = (handle >> 32) as u32;
        let taken = |place: &&Place<T>| {
            let odd = filled & 1 == 1;
            odd && place.filled.compare_exchange(filled, filled + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let Some(place) = self.place(handle).filter(taken) else { return Err(self.unknown(handle)) };
        // SAFETY: this thread alone turned the count to even, and the index is not spare yet.
        let value = unsafe { (*place.value.get()).take() };
        if filled < WORN_OUT {
            self.spare.lock().unwrap_or_else(PoisonError::into_inner).empty.push(handle as u32 ^ self.generation);
        }
        value.ok_or_else(|| self.unknown(handle))
    }
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
        let spare = table.spare.lock().expect("no panic");
        assert_eq!(spare.empty.len(), spare.made as usize);
        assert!(spare.made <= 12, "{}", spare.made);
    }
}
