//! Objects behind handles `{index, generation}`: handles are never given out twice, and looking one up takes no lock.
//!
//! # Protocol
//!
//! Slots live in chunks of doubling size that never move and go away with the slab. A slot's generation is even while it
//! is vacant and odd while it is live, and only rises.
//!
//! - vacant -> live, live -> vacant, and the list of vacant slots: under the mutex only.
//! - The value is written before the generation becomes odd (release) and taken out after it became even.
//! - `get` reads the chunk's pointer and the generation (acquire) and then borrows the value, without the mutex. That is
//!   sound while nobody removes that handle, which `get` asks of its caller (H1 gives it to a backend).
//! - A slot whose generation would wrap is retired instead of becoming vacant.

use crate::sync::{Guard, Mutex};
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Slots of the first chunk; each further chunk has twice as many.
const FIRST: u32 = 32;
/// 32 << 26 slots are more than any machine holds objects.
const CHUNKS: usize = 27;

struct Slot<T> {
    generation: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

#[derive(Default)]
struct Vacancies {
    /// Vacant slots that were used before.
    vacant: Vec<u32>,
    /// Slots `0..grown` exist and were used at least once.
    grown: u32,
    /// How many are live.
    live: usize,
}

/// A growing set of objects, each named by a `u64` that is never given out again and is never 0.
pub struct Slab<T> {
    chunks: [AtomicPtr<Slot<T>>; CHUNKS],
    vacancies: Mutex<Vacancies>,
}

// SAFETY: values move in and out under the mutex, so from any thread (T: Send), and are shared by get (T: Sync).
unsafe impl<T: Send> Send for Slab<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Slab<T> {}

impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("live", &self.len()).finish()
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The chunk of a slot and its place there.
const fn locate(index: u32) -> (usize, usize) {
    let shifted = index as u64 + FIRST as u64;
    let chunk = shifted.ilog2() - FIRST.ilog2();
    (chunk as usize, (shifted - ((FIRST as u64) << chunk)) as usize)
}

const fn chunk_len(chunk: usize) -> usize {
    (FIRST as usize) << chunk
}

const fn handle(index: u32, generation: u32) -> u64 {
    ((generation as u64) << 32) | index as u64
}

impl<T> Slab<T> {
    /// An empty slab. Allocates nothing.
    pub fn new() -> Self {
        Self {
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
            vacancies: Mutex::new(Vacancies { vacant: Vec::new(), grown: 0, live: 0 }),
        }
    }

    fn lock(&self) -> Guard<'_, Vacancies> {
        self.vacancies.lock()
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let (chunk, at) = locate(index);
        let slots = self.chunks.get(chunk)?.load(Ordering::Acquire);
        if slots.is_null() {
            return None;
        }
        // SAFETY: a chunk that is not null has chunk_len slots, `at` is below that, and it lives as long as the slab.
        Some(unsafe { &*slots.add(at) })
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.lock().live
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps an object and names it.
    pub fn insert(&self, value: T) -> u64 {
        let mut vacancies = self.lock();
        let index = match vacancies.vacant.pop() {
            Some(index) => index,
            None => {
                let index = vacancies.grown;
                let (chunk, at) = locate(index);
                if at == 0 {
                    let slots: Box<[Slot<T>]> = (0..chunk_len(chunk))
                        .map(|_| Slot { generation: AtomicU32::new(0), value: UnsafeCell::new(MaybeUninit::uninit()) })
                        .collect();
                    self.chunks[chunk].store(Box::into_raw(slots).cast(), Ordering::Release);
                }
                vacancies.grown += 1;
                index
            }
        };
        vacancies.live += 1;
        let (chunk, at) = locate(index);
        // SAFETY: the slot exists (made above, or earlier when its index was first used) and is vacant: nobody reads
        // the value of a slot with an even generation, and the mutex keeps other writers out.
        let slot = unsafe { &*self.chunks[chunk].load(Ordering::Relaxed).add(at) };
        let generation = slot.generation.load(Ordering::Relaxed) + 1;
        // SAFETY: as above.
        unsafe { (*slot.value.get()).write(value) };
        slot.generation.store(generation, Ordering::Release);
        handle(index, generation)
    }

    /// The object with that name, `None` if there is none (any more).
    ///
    /// # Safety
    /// Nobody removes this handle while the reference is in use.
    pub unsafe fn get(&self, handle: u64) -> Option<&T> {
        let slot = self.slot(handle as u32)?;
        let generation = (handle >> 32) as u32;
        if generation & 1 == 0 || slot.generation.load(Ordering::Acquire) != generation {
            return None;
        }
        // SAFETY: the generation is odd, so the value was written before it (acquire), and stays by our own contract.
        Some(unsafe { (*slot.value.get()).assume_init_ref() })
    }

    /// Takes the object out and forgets its name for good.
    ///
    /// No reference that [`Slab::get`] gave for this handle may be in use, as its contract says.
    pub fn remove(&self, handle: u64) -> Option<T> {
        let slot = self.slot(handle as u32)?;
        let generation = (handle >> 32) as u32;
        let mut vacancies = self.lock();
        if generation & 1 == 0 || slot.generation.load(Ordering::Relaxed) != generation {
            return None;
        }
        let vacant = generation.wrapping_add(1);
        slot.generation.store(vacant, Ordering::Release);
        // SAFETY: the generation was odd, so there is a value; it is even now, so nobody else reads or takes it.
        let value = unsafe { (*slot.value.get()).assume_init_read() };
        vacancies.live -= 1;
        if vacant != 0 {
            vacancies.vacant.push(handle as u32);
        }
        Some(value)
    }

    /// Copies of all objects that are live at one moment.
    pub fn snapshot(&self) -> Vec<T>
    where
        T: Clone,
    {
        let vacancies = self.lock();
        let mut values = Vec::with_capacity(vacancies.live);
        for index in 0..vacancies.grown {
            if let Some(slot) = self.slot(index)
                && slot.generation.load(Ordering::Acquire) & 1 == 1
            {
                // SAFETY: odd means a value, and removing needs the mutex that is held here.
                values.push(unsafe { (*slot.value.get()).assume_init_ref() }.clone());
            }
        }
        values
    }
}

impl<T> Drop for Slab<T> {
    fn drop(&mut self) {
        for (at, chunk) in self.chunks.iter_mut().enumerate() {
            let slots = *chunk.get_mut();
            if slots.is_null() {
                continue;
            }
            // SAFETY: the pointer came from a boxed slice of that length in insert, and nobody else has the slab.
            let mut slots = unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(slots, chunk_len(at))) };
            for slot in &mut slots {
                if *slot.generation.get_mut() & 1 == 1 {
                    // SAFETY: odd means a value, dropped here once.
                    unsafe { slot.value.get_mut().assume_init_drop() };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Arc;

    #[test]
    fn slots_are_found_where_they_are() {
        let mut next = (0, 0);
        for index in 0..100_000 {
            assert_eq!(locate(index), next, "{index}");
            next.1 += 1;
            if next.1 == chunk_len(next.0) {
                next = (next.0 + 1, 0);
            }
        }
        assert!(locate(u32::MAX).0 >= CHUNKS, "the last index is out of every chunk, not a panic");
    }

    #[test]
    fn handles_are_never_given_out_twice() {
        let slab = Slab::new();
        let mut seen = HashSet::new();
        for round in 0..1000 {
            let handle = slab.insert(round);
            assert_ne!(handle, 0);
            assert!(seen.insert(handle));
            assert_eq!(slab.remove(handle), Some(round));
            assert_eq!(slab.remove(handle), None);
            // SAFETY: nothing is removed meanwhile.
            assert_eq!(unsafe { slab.get(handle) }, None);
        }
        assert!(slab.is_empty());
    }

    #[test]
    fn a_slot_retires_before_its_generation_wraps() {
        let slab = Slab::new();
        let first = slab.insert(1);
        let index = first as u32;
        assert_eq!(slab.remove(first), Some(1));
        let Some(slot) = slab.slot(index) else { panic!("the slot exists") };
        slot.generation.store(u32::MAX - 1, Ordering::Relaxed);
        let last = slab.insert(2);
        assert_eq!(last, handle(index, u32::MAX));
        assert_eq!(slab.remove(last), Some(2));
        let next = slab.insert(3);
        assert_ne!(next as u32, index, "the worn slot is not used again");
        assert_eq!(slab.remove(last), None);
    }

    #[test]
    fn numbers_that_are_no_handles_name_nothing() {
        let slab = Slab::new();
        let live = slab.insert(7);
        for wrong in [0, 1, u64::MAX, live + 1, live + (1 << 32), live - (1 << 32), live | 0xffff_ffff] {
            // SAFETY: nothing is removed meanwhile.
            assert_eq!(unsafe { slab.get(wrong) }, None, "{wrong:#x}");
            assert_eq!(slab.remove(wrong), None, "{wrong:#x}");
        }
        // SAFETY: nothing is removed meanwhile.
        assert_eq!(unsafe { slab.get(live) }, Some(&7));
    }

    #[test]
    fn what_is_left_is_dropped_with_the_slab() {
        let value = Arc::new(());
        let slab = Slab::new();
        let handles: Vec<u64> = (0..1000).map(|_| slab.insert(value.clone())).collect();
        assert!(handles.iter().step_by(2).all(|&handle| slab.remove(handle).is_some()));
        assert_eq!(slab.snapshot().len(), 500);
        assert_eq!(Arc::strong_count(&value), 501);
        drop(slab);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn threads_insert_look_up_and_remove_at_once() {
        let slab = Slab::new();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let slab = &slab;
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    for at in 0..5000 {
                        let value = thread << 32 | at;
                        mine.push((slab.insert(value), value));
                        if at % 3 == 2 {
                            let (handle, value) = mine.swap_remove(mine.len() / 2);
                            assert_eq!(slab.remove(handle), Some(value));
                        }
                        let (handle, value) = mine[mine.len() / 2];
                        // SAFETY: only this thread removes its handles.
                        assert_eq!(unsafe { slab.get(handle) }, Some(&value));
                    }
                });
            }
        });
        assert_eq!(slab.len(), 4 * (5000 - 1666));
    }
}
