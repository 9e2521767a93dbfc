//! A shelf: the free blocks of one (pool, stream), ordered by (size, age of the segment, address).
//!
//! Sizes fall into 3200 bins: 64 exact ones of 512 bytes, then 64 to an octave. A bitmap word covers 64 bins, a summary
//! word the 50 words, so the next occupied bin is two bit scans away. A bin is a treap threaded through the blocks
//! themselves; its priorities are a hash of the index, so it needs neither memory nor a random source.

use super::arena::{Arena, NIL};

const BINS: usize = 3200;
const WORDS: usize = BINS / 64;

/// Where a size belongs. Rises with the size; sizes are at least 512.
#[inline(always)]
fn bin(size: u64) -> usize {
    let units = size >> 9;
    if units < 64 {
        return units as usize;
    }
    let octave = 63 - units.leading_zeros() as usize;
    ((octave - 5) << 6) + ((units >> (octave - 6)) & 63) as usize
}

fn priority(id: u32) -> u32 {
    let x = id.wrapping_mul(0x9e37_79b1);
    (x ^ (x >> 15)).wrapping_mul(0x85eb_ca6b)
}

/// A place in a treap where a child hangs.
#[derive(Clone, Copy)]
enum Hook {
    Root,
    Left(u32),
    Right(u32),
}

/// The free blocks of one stream in one pool.
#[derive(Debug)]
pub(super) struct Shelf {
    /// Index of the pool.
    pub(super) pool: u32,
    /// 0 small, 1 large.
    pub(super) kind: usize,
    /// The stream it serves.
    pub(super) stream: u64,
    /// Slot of that stream.
    pub(super) slot: u32,
    summary: u64,
    words: [u64; WORDS],
    roots: Box<[u32; BINS]>,
}

impl Shelf {
    pub(super) fn new(pool: u32, kind: usize, stream: u64, slot: u32) -> Self {
        Shelf { pool, kind, stream, slot, summary: 0, words: [0; WORDS], roots: Box::new([NIL; BINS]) }
    }

    pub(super) fn footprint(&self) -> usize {
        size_of::<Shelf>() + size_of::<[u32; BINS]>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.summary == 0
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, arena: &mut Arena, id: u32) {
        let bin = bin(arena[id].size);
        let root = self.roots[bin];
        if root == NIL {
            arena[id].links = 0;
            self.roots[bin] = id;
            self.words[bin >> 6] |= 1 << (bin & 63);
            self.summary |= 1 << (bin >> 6);
        } else {
            insert_into(arena, &mut self.roots[bin], id);
        }
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, arena: &mut Arena, id: u32) {
        let bin = bin(arena[id].size);
        let root = &mut self.roots[bin];
        if *root == id && arena[id].links == 0 {
            *root = NIL;
        } else {
            remove_from(arena, root, id);
        }
        if *root == NIL {
            let word = &mut self.words[bin >> 6];
            *word &= !(1 << (bin & 63));
            if *word == 0 {
                self.summary &= !(1 << (bin >> 6));
            }
        }
    }

    /// The least block of at least a size.
    #[inline(always)]
    pub(super) fn at_least(&self, arena: &Arena, size: u64) -> u32 {
        self.at_or_above(arena, (size, 0, 0))
    }

    /// The least block whose key is at or above the given one.
    #[inline(always)]
    fn at_or_above(&self, arena: &Arena, key: (u64, u32, u64)) -> u32 {
        let size = key.0;
        let bin = bin(size);
        let mut found = NIL;
        let mut node = self.roots[bin];
        while node != NIL {
            let block = &arena[node];
            if block.key() >= key {
                found = node;
                node = block.left();
            } else {
                node = block.right();
            }
        }
        if found != NIL {
            return found;
        }
        match self.next_bin(bin) {
            Some(bin) => {
                let mut node = self.roots[bin];
                while arena[node].left() != NIL {
                    node = arena[node].left();
                }
                node
            }
            None => NIL,
        }
    }

    /// The block after `id` in order.
    pub(super) fn after(&self, arena: &Arena, id: u32) -> u32 {
        let (size, seg, addr) = arena[id].key();
        self.at_or_above(arena, (size, seg, addr + 1))
    }

    #[inline(always)]
    fn next_bin(&self, bin: usize) -> Option<usize> {
        let word = bin >> 6;
        let rest = self.words[word] & (!0 << 1 << (bin & 63));
        if rest != 0 {
            return Some((word << 6) + rest.trailing_zeros() as usize);
        }
        let words = self.summary & (!0 << 1 << word);
        if words == 0 {
            return None;
        }
        let word = words.trailing_zeros() as usize;
        Some((word << 6) + self.words[word].trailing_zeros() as usize)
    }

    /// Every block, in order.
    pub(super) fn in_order(&self, arena: &Arena) -> Vec<u32> {
        let mut out = Vec::new();
        let mut stack = Vec::new();
        for (w, &word) in self.words.iter().enumerate() {
            let mut word = word;
            while word != 0 {
                let mut node = self.roots[(w << 6) + word.trailing_zeros() as usize];
                word &= word - 1;
                while node != NIL || !stack.is_empty() {
                    while node != NIL {
                        stack.push(node);
                        node = arena[node].left();
                    }
                    if let Some(top) = stack.pop() {
                        out.push(top);
                        node = arena[top].right();
                    }
                }
            }
        }
        out
    }
}

fn hang(arena: &mut Arena, root: &mut u32, hook: Hook, id: u32) {
    match hook {
        Hook::Root => *root = id,
        Hook::Left(parent) => arena[parent].set_left(id),
        Hook::Right(parent) => arena[parent].set_right(id),
    }
}

#[inline(never)]
fn insert_into(arena: &mut Arena, root: &mut u32, id: u32) {
    let key = arena[id].key();
    let mine = priority(id);
    let mut hook = Hook::Root;
    let mut node = *root;
    while node != NIL && priority(node) >= mine {
        let block = &arena[node];
        if key < block.key() {
            (hook, node) = (Hook::Left(node), block.left());
        } else {
            (hook, node) = (Hook::Right(node), block.right());
        }
    }
    hang(arena, root, hook, id);
    // What hung there is parted by the key into the two subtrees of `id`.
    arena[id].links = 0;
    let (mut low, mut high) = (Hook::Left(id), Hook::Right(id));
    while node != NIL {
        if arena[node].key() < key {
            hang(arena, root, low, node);
            (low, node) = (Hook::Right(node), arena[node].right());
        } else {
            hang(arena, root, high, node);
            (high, node) = (Hook::Left(node), arena[node].left());
        }
    }
    hang(arena, root, low, NIL);
    hang(arena, root, high, NIL);
}

#[inline(never)]
fn remove_from(arena: &mut Arena, root: &mut u32, id: u32) {
    let key = arena[id].key();
    let mut hook = Hook::Root;
    let mut node = *root;
    while node != id {
        debug_assert_ne!(node, NIL, "a free block is in its bin");
        if node == NIL {
            return;
        }
        let block = &arena[node];
        if key < block.key() {
            (hook, node) = (Hook::Left(node), block.left());
        } else {
            (hook, node) = (Hook::Right(node), block.right());
        }
    }
    let (mut low, mut high) = (arena[id].left(), arena[id].right());
    while low != NIL && high != NIL {
        if priority(low) >= priority(high) {
            hang(arena, root, hook, low);
            (hook, low) = (Hook::Right(low), arena[low].right());
        } else {
            hang(arena, root, hook, high);
            (hook, high) = (Hook::Left(high), arena[high].left());
        }
    }
    hang(arena, root, hook, if low != NIL { low } else { high });
}

#[cfg(test)]
mod tests {
    use super::super::arena::{Block, Life};
    use super::*;

    #[test]
    fn bins_rise_and_stay_in_range() {
        let mut last = 0;
        for size in (512..200_000u64).step_by(512).chain((18..60).map(|s| 1u64 << s)) {
            let b = bin(size);
            assert!(b >= last && b < BINS, "{size}: {b} after {last}");
            last = b;
        }
        assert!(bin(1 << 63) < BINS);
    }

    #[test]
    fn agrees_with_an_ordered_set() {
        use std::collections::BTreeSet;
        let mut arena = Arena::new();
        let mut shelf = Shelf::new(0, 0, 0, 0);
        let mut model = BTreeSet::new();
        let mut seed = 12345u64;
        let mut rand = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 33
        };
        let mut addr = 4096;
        for _ in 0..20_000 {
            if rand() % 3 != 0 {
                let size = (1 + rand() % 6000) * 512;
                addr += 512;
                let seg = rand() as u32 % 3;
                let id = arena.put(Block::new(addr, size, 0, seg, Life::Free, 0));
                shelf.insert(&mut arena, id);
                model.insert((size, seg, addr, id));
            } else if let Some(&entry) = model.iter().nth(rand() as usize % model.len().max(1)) {
                shelf.remove(&mut arena, entry.3);
                arena.vacate(entry.3);
                model.remove(&entry);
            }
            let size = (1 + rand() % 6500) * 512;
            let want = model.range((size, 0, 0, 0)..).next().map_or(NIL, |e| e.3);
            assert_eq!(shelf.at_least(&arena, size), want);
        }
        let order: Vec<u32> = model.iter().map(|e| e.3).collect();
        assert_eq!(shelf.in_order(&arena), order);
        for (a, b) in order.iter().zip(&order[1..]) {
            assert_eq!(shelf.after(&arena, *a), *b);
        }
    }
}
