//! The segments and blocks of a device, as they are now.

use super::arena::{GROWABLE, LARGE, Life, NIL};
use super::cache::DeviceCache;
use super::pools::PoolId;

/// A block in a [`SegmentView`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// Its size in bytes.
    pub size: u64,
    /// What was asked for; 0 for a free block.
    pub requested: u64,
    /// In its user's hands.
    pub allocated: bool,
    /// In its user's hands or still used by a stream.
    pub active: bool,
}

/// A segment, or a mapped stretch of a growable one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentView {
    /// The port's token.
    pub token: u64,
    /// Where the stretch begins in the segment; 0 but for growable ones.
    pub offset: u64,
    /// Its address.
    pub addr: u64,
    /// The stream whose requests it serves.
    pub stream: u64,
    /// Of the large pool.
    pub large: bool,
    /// A stretch of a growable segment.
    pub growable: bool,
    /// The private pool it belongs to.
    pub pool: Option<PoolId>,
    /// Its blocks, in address order.
    pub blocks: Vec<BlockView>,
}

impl SegmentView {
    /// Sum of the sizes of the blocks for which `which` holds.
    pub fn bytes(&self, which: impl Fn(&BlockView) -> bool) -> u64 {
        self.blocks.iter().filter(|b| which(b)).map(|b| b.size).sum()
    }
}

impl DeviceCache {
    /// The segments by address.
    pub fn snapshot(&self) -> Vec<SegmentView> {
        let heap = self.lock();
        let mut out = Vec::new();
        let mapped = |id: u32| id != NIL && heap.arena[id].life != Life::Unmapped;
        for (head, block) in heap.arena.iter() {
            if !mapped(head) || mapped(block.prev) {
                continue;
            }
            let shelf = &heap.shelves[block.shelf as usize];
            let raw = heap.segs[block.seg as usize].raw;
            let mut view = SegmentView {
                token: raw.token,
                offset: block.addr - raw.addr,
                addr: block.addr,
                stream: shelf.stream,
                large: block.is(LARGE),
                growable: block.is(GROWABLE),
                pool: heap.pools[shelf.pool as usize].id,
                blocks: Vec::new(),
            };
            let mut id = head;
            while mapped(id) {
                let block = &heap.arena[id];
                let active = matches!(block.life, Life::Active | Life::Pending);
                view.blocks.push(BlockView {
                    size: block.size,
                    requested: if active { block.requested } else { 0 },
                    allocated: block.life == Life::Active,
                    active,
                });
                id = block.next;
            }
            out.push(view);
        }
        out.sort_unstable_by_key(|view| view.addr);
        out
    }
}
