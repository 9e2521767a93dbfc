//! A generator's state, shared by threads and readable after a fork.
//!
//! # Protocol
//!
//! - The state lies in two places, and `current` says which one holds. A change is written to the other place, then
//!   `current` turns to it. So what `current` names is whole at every instant, also in the copy that a fork takes.
//! - Changes and reads hold `owner`: 0, or the number of the process whose thread is inside, for a few stores. Others
//!   spin and yield. Nothing is called inside but plain arithmetic.
//! - In a forked child an owner of another process will never come out. It is put aside; what it had written of the other
//!   place is overwritten.

use crate::fork;
use anyaccel_engine::random::{Generator, Seed};
use std::hint;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread;

/// What a generator is at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Snapshot {
    pub(super) seed: u64,
    pub(super) offset: u64,
    /// Whether somebody chose the seed; a forked child then starts from it, else from one of its own.
    pub(super) chosen: bool,
}

impl Snapshot {
    pub(super) fn of(generator: &Generator) -> Self {
        let state = generator.state();
        Self { seed: state.seed(), offset: state.offset(), chosen: generator.is_chosen() }
    }

    pub(super) fn generator(self) -> Generator {
        let mut generator = Generator::from_entropy(self.seed);
        if self.chosen {
            generator.manual_seed(Seed::from(self.seed));
        }
        // The offset is a generator's, so it is a good one.
        let _good = generator.set_offset(self.offset.into());
        generator
    }
}

#[derive(Default)]
struct Words {
    seed: AtomicU64,
    offset: AtomicU64,
    chosen: AtomicU64,
}

impl Words {
    fn load(&self) -> Snapshot {
        Snapshot {
            seed: self.seed.load(Ordering::Relaxed),
            offset: self.offset.load(Ordering::Relaxed),
            chosen: self.chosen.load(Ordering::Relaxed) != 0,
        }
    }

    fn store(&self, state: Snapshot) {
        self.seed.store(state.seed, Ordering::Relaxed);
        self.offset.store(state.offset, Ordering::Relaxed);
        self.chosen.store(state.chosen.into(), Ordering::Relaxed);
    }
}

/// The state.
#[derive(Default)]
pub(super) struct Shared {
    owner: AtomicU32,
    current: AtomicUsize,
    places: [Words; 2],
}

impl Shared {
    pub(super) fn new(state: Snapshot) -> Self {
        // From then on the process has a number, and a child another.
        fork::install();
        let shared = Self::default();
        shared.places[0].store(state);
        shared
    }

    /// The state.
    pub(super) fn read(&self) -> Snapshot {
        self.change(|state| *state)
    }

    /// Changes the state, and returns what `change` returns. It must be plain arithmetic.
    #[inline]
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Snapshot) -> T) -> T {
        let _inside = Inside::enter(&self.owner);
        let current = self.current.load(Ordering::Relaxed) & 1;
        let before = self.places[current].load();
        let mut state = before;
        let result = change(&mut state);
        if state != before {
            self.places[1 - current].store(state);
            self.current.store(1 - current, Ordering::Release);
        }
        result
    }

    /// The state as it was when this process was forked off its parent, whose it is.
    pub(super) fn left_by_parent(&self) -> Snapshot {
        self.places[self.current.load(Ordering::Acquire) & 1].load()
    }
}

struct Inside<'a>(&'a AtomicU32);

impl<'a> Inside<'a> {
    #[inline]
    fn enter(owner: &'a AtomicU32) -> Self {
        let me = fork::process();
        if owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            Self::wait(owner, me);
        }
        Self(owner)
    }

    #[cold]
    fn wait(owner: &AtomicU32, mut me: u32) {
        for round in 0_u32.. {
            let inside = owner.load(Ordering::Relaxed);
            // Free, or of a process that this one was forked from.
            let passable = inside != me;
            if passable && owner.compare_exchange(inside, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return;
            }
            match round {
                0..64 => hint::spin_loop(),
                64 => {
                    fork::notice();
                    me = fork::process();
                }
                _ => thread::yield_now(),
            }
        }
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Snapshot = Snapshot { seed: 7, offset: 0, chosen: false };

    #[test]
    fn what_threads_take_never_overlaps() {
        let shared = Shared::new(START);
        let mut taken: Vec<u64> = thread::scope(|scope| {
            let take = || -> Vec<u64> {
                let next = |state: &mut Snapshot| {
                    state.offset += 4;
                    state.offset
                };
                (0..5000).map(|_| shared.change(next)).collect()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic inside")).collect()
        });
        taken.sort_unstable();
        assert_eq!(taken, (1..=20_000).map(|at| 4 * at).collect::<Vec<u64>>());
        assert_eq!(shared.read(), Snapshot { offset: 80_000, ..START });
    }

    #[test]
    fn an_owner_of_another_process_is_put_aside_and_its_half_written_state_ignored() {
        let shared = Shared::new(START);
        shared.owner.store(fork::process().wrapping_add(1), Ordering::Relaxed);
        shared.places[1].seed.store(99, Ordering::Relaxed);
        assert_eq!(shared.left_by_parent(), START);
        shared.change(|state| state.offset = 8);
        assert_eq!((shared.read(), shared.owner.load(Ordering::Relaxed)), (Snapshot { offset: 8, ..START }, 0));
    }
}
