//! The segments and blocks of a device, as they are now.

use super::arena::{BARE, Block, GROWABLE, LARGE, Life, NIL};
use super::cache::DeviceCache;
use super::heap::{Heap, Seg};
use super::pools::PoolId;
use crate::history::StackId;

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
    /// Who took it, if that was recorded.
    pub stack: StackId,
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
    /// Who made it, if that was recorded.
    pub stack: StackId,
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
        self.lock().view()
    }
}

impl Heap {
    /// The segments by address, without those that a thread is just giving back: the device may have handed their
    /// addresses out again.
    pub(super) fn view(&self) -> Vec<SegmentView> {
        let heap = self;
        let mut out = Vec::new();
        let mapped = |id: u32| id != NIL && heap.arena[id].life != Life::Unmapped && !heap.arena[id].is(BARE);
        let taker = |id: u32| heap.recorder.as_ref().map_or(StackId::ABSENT, |recorder| recorder.taker(id));
        let leaving = |block: &Block| block.life == Life::Busy && !block.is(GROWABLE);
        for (head, block) in heap.arena.iter() {
            if !mapped(head) || mapped(block.prev) || leaving(block) {
                continue;
            }
            let shelf = &heap.shelves[block.shelf as usize];
            let Seg { raw, stack, .. } = heap.segs[block.seg as usize];
            let mut view = SegmentView {
                token: raw.token,
                offset: block.addr - raw.addr,
                addr: block.addr,
                stream: shelf.stream,
                large: block.is(LARGE),
                growable: block.is(GROWABLE),
                pool: heap.pools[shelf.pool as usize].id,
                blocks: Vec::new(),
                stack,
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
                    stack: if active { taker(id) } else { StackId::ABSENT },
                });
                id = block.next;
            }
            out.push(view);
        }
        out.sort_unstable_by_key(|view| view.addr);
        out
    }
}
