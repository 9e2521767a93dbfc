//! From an address to its block, without hashing.
//!
//! Only blocks that were asked for by address are in here; those with a handle don't need it. The first level is the
//! region (16 GiB) and the 2 MiB page in it. A page holds a short chain of blocks, threaded through the blocks; one that
//! grows past [`CHAIN`] becomes a node with 64 entries of 32 KiB, and such an entry likewise one with 64 of 512 bytes,
//! where no two blocks can start. So a lookup takes a few steps and a block costs at most about 20 bytes here.

use super::arena::{Arena, NIL};

const REGION: u32 = 34;
const PAGE: u32 = 21;
const PAGES: usize = 1 << (REGION - PAGE);
/// Longest chain before a page or an entry becomes a node.
const CHAIN: u32 = 12;
const NODE: u32 = 1 << 31;
const COUNT: u32 = 27;
const INDEX: u32 = (1 << COUNT) - 1;
/// A chain of one block.
const ALONE: u32 = 1 << COUNT;

/// An entry is empty (0), a chain (its length and first block) or, with the top bit, a node.
type Entry = u32;

#[derive(Debug)]
struct Region {
    key: u64,
    blocks: u32,
    pages: Box<[Entry]>,
}

#[derive(Debug)]
struct Node {
    entries: [Entry; 64],
    blocks: u32,
}

#[derive(Clone, Copy)]
enum Place {
    Page(usize, usize),
    Entry(usize, usize),
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct AddressTable {
    regions: Vec<Region>,
    last: usize,
    nodes: Vec<Node>,
    spare: Vec<u32>,
}

/// Which entry of a node at `depth` an address falls into.
fn step(addr: u64, depth: u32) -> usize {
    (addr >> (PAGE - 6 * depth)) as usize & 63
}

impl AddressTable {
    #[inline(always)]
    fn region(&mut self, addr: u64) -> Option<usize> {
        let key = addr >> REGION;
        if self.regions.get(self.last).is_some_and(|r| r.key == key) {
            return Some(self.last);
        }
        self.other_region(key)
    }

    #[cold]
    fn other_region(&mut self, key: u64) -> Option<usize> {
        let at = self.regions.binary_search_by_key(&key, |r| r.key).ok()?;
        self.last = at;
        Some(at)
    }

    fn get(&self, place: Place) -> Entry {
        match place {
            Place::Page(r, p) => self.regions[r].pages[p],
            Place::Entry(n, e) => self.nodes[n].entries[e],
        }
    }

    fn set(&mut self, place: Place, entry: Entry) {
        match place {
            Place::Page(r, p) => self.regions[r].pages[p] = entry,
            Place::Entry(n, e) => self.nodes[n].entries[e] = entry,
        }
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, arena: &mut Arena, id: u32) {
        let addr = arena[id].addr;
        let region = match self.region(addr) {
            Some(region) => region,
            None => self.add_region(addr >> REGION),
        };
        self.regions[region].blocks += 1;
        let page = (addr >> PAGE) as usize & (PAGES - 1);
        let entry = &mut self.regions[region].pages[page];
        if *entry == 0 {
            *entry = ALONE | id;
            arena[id].chain = NIL;
            return;
        }
        self.insert_among(arena, id, Place::Page(region, page));
    }

    #[cold]
    fn add_region(&mut self, key: u64) -> usize {
        let at = self.regions.partition_point(|r| r.key < key);
        self.regions.insert(at, Region { key, blocks: 0, pages: vec![0; PAGES].into_boxed_slice() });
        at
    }

    fn insert_among(&mut self, arena: &mut Arena, id: u32, mut place: Place) {
        let addr = arena[id].addr;
        let mut depth = 0;
        loop {
            let entry = self.get(place);
            if entry & NODE != 0 {
                let node = (entry & !NODE) as usize;
                depth += 1;
                self.nodes[node].blocks += 1;
                place = Place::Entry(node, step(addr, depth));
                continue;
            }
            let count = entry >> COUNT;
            if count < CHAIN || depth == 2 {
                arena[id].chain = entry & INDEX;
                self.set(place, ((count + 1).min(15) << COUNT) | id);
                return;
            }
            let node = self.spread(arena, entry & INDEX, depth + 1);
            self.set(place, NODE | node);
        }
    }

    /// Makes a node of a chain.
    fn spread(&mut self, arena: &mut Arena, first: u32, depth: u32) -> u32 {
        let mut node = Node { entries: [0; 64], blocks: 0 };
        let mut id = first;
        while id != NIL {
            let next = arena[id].chain;
            let entry = &mut node.entries[step(arena[id].addr, depth)];
            arena[id].chain = *entry & INDEX;
            *entry = (((*entry >> COUNT) + 1).min(15) << COUNT) | id;
            node.blocks += 1;
            id = next;
        }
        match self.spare.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                if self.nodes.len() == self.nodes.capacity() {
                    self.nodes.reserve_exact((self.nodes.len() / 8).max(16));
                }
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        }
    }

    #[inline(always)]
    pub(super) fn find(&mut self, arena: &Arena, addr: u64) -> Option<u32> {
        let region = self.region(addr)?;
        let mut entry = self.regions[region].pages[(addr >> PAGE) as usize & (PAGES - 1)];
        let mut depth = 0;
        while entry & NODE != 0 {
            depth += 1;
            entry = self.nodes[(entry & !NODE) as usize].entries[step(addr, depth)];
        }
        let mut id = entry & INDEX;
        while id != NIL {
            if arena[id].addr == addr {
                return Some(id);
            }
            id = arena[id].chain;
        }
        None
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, arena: &mut Arena, id: u32) {
        let addr = arena[id].addr;
        let Some(region) = self.region(addr) else { return };
        self.regions[region].blocks -= 1;
        let page = (addr >> PAGE) as usize & (PAGES - 1);
        let entry = &mut self.regions[region].pages[page];
        if *entry == ALONE | id {
            *entry = 0;
        } else {
            self.remove_among(arena, id, Place::Page(region, page));
        }
        if self.regions[region].blocks == 0 && self.regions.len() > 8 {
            self.regions.remove(region);
            self.last = 0;
        }
    }

    fn remove_among(&mut self, arena: &mut Arena, id: u32, mut place: Place) {
        let addr = arena[id].addr;
        let mut depth = 0;
        let mut entry = self.get(place);
        while entry & NODE != 0 {
            let node = (entry & !NODE) as usize;
            self.nodes[node].blocks -= 1;
            if self.nodes[node].blocks == 0 {
                self.set(place, 0);
                self.forget(node, addr, depth + 1);
                return;
            }
            depth += 1;
            place = Place::Entry(node, step(addr, depth));
            entry = self.get(place);
        }
        let next = arena[id].chain;
        let first = entry & INDEX;
        if first == id {
            self.set(place, if next == NIL { 0 } else { (((entry >> COUNT) - 1) << COUNT) | next });
        } else {
            let mut before = first;
            while arena[before].chain != id {
                before = arena[before].chain;
                debug_assert_ne!(before, NIL, "an indexed block is in its chain");
                if before == NIL {
                    return;
                }
            }
            arena[before].chain = next;
            self.set(place, entry - (1 << COUNT));
        }
    }

    /// Sets aside a node that has become empty, and the one below it on the way to `addr`.
    fn forget(&mut self, node: usize, addr: u64, depth: u32) {
        let entry = self.nodes[node].entries[step(addr, depth)];
        if entry & NODE != 0 {
            self.spare.push(entry & !NODE);
        }
        self.spare.push(node as u32);
    }

    /// Bytes of bookkeeping.
    pub(super) fn footprint(&self) -> usize {
        self.regions.len() * (size_of::<Region>() + PAGES * size_of::<Entry>())
            + self.nodes.capacity() * size_of::<Node>()
            + self.spare.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::arena::{Block, Life};
    use super::*;

    #[test]
    fn agrees_with_a_map() {
        let mut arena = Arena::new();
        let mut table = AddressTable::default();
        let mut model: BTreeMap<u64, u32> = BTreeMap::new();
        let mut seed = 7u64;
        let mut rand = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 33
        };
        for round in 0..60_000u64 {
            // A crowded page, a sparse one, far regions.
            let addr = match rand() % 4 {
                0 | 1 => 0x7000_0000_0000 + rand() % 4096 * 512,
                2 => 0x7000_0020_0000 + rand() % 8 * 262_144,
                _ => (1 + rand() % 12) << 34,
            };
            let filling = (round / 10_000) % 2 == 0;
            match model.get(&addr) {
                Some(&id) if !filling || rand() % 4 == 0 => {
                    table.remove(&mut arena, id);
                    arena.vacate(id);
                    model.remove(&addr);
                }
                None if filling => {
                    let id = arena.put(Block::new(addr, 512, 0, 0, Life::Active, 0));
                    table.insert(&mut arena, id);
                    model.insert(addr, id);
                }
                _ => {}
            }
            assert_eq!(table.find(&arena, addr), model.get(&addr).copied());
        }
        for (&addr, &id) in &model {
            assert_eq!(table.find(&arena, addr), Some(id));
            assert_eq!(table.find(&arena, addr + 256), None);
        }
        for (_, id) in std::mem::take(&mut model) {
            table.remove(&mut arena, id);
        }
        assert_eq!(table.spare.len(), table.nodes.len());
    }
}
