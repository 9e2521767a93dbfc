//! The arena: every block of a device in one array, 64 bytes each, linked by index.
//!
//! A record is in exactly one [`Life`]. The field `links` means two things: for a free block the two children in its
//! bin's treap, for an active or pending one the bitmap of the stream slots that use it. `requested` likewise holds the
//! bytes asked for, or, for a free block, the reading of its pool's clock when it was put there.

/// No block; index 0 of the arena is never handed out.
pub(super) const NIL: u32 = 0;

/// What a record stands for at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Life {
    /// An unused record.
    Vacant,
    /// Cached, on its shelf.
    Free,
    /// In the hands of a user.
    Active,
    /// Given back, but streams still use it.
    Pending,
    /// Address space of a growable segment with nothing behind it.
    Unmapped,
    /// Taken off the shelf by a thread that is calling the device about it, without the lock.
    Busy,
}

/// The block lies in a growable segment.
pub(super) const GROWABLE: u8 = 1;
/// The block is in the address table.
pub(super) const INDEXED: u8 = 2;
/// The block belongs to the large pool.
pub(super) const LARGE: u8 = 4;
/// Nothing is mapped behind the block, which is Busy.
pub(super) const BARE: u8 = 8;

/// One block. Blocks of a segment form a list in address order through `prev` and `next`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Block {
    pub(super) addr: u64,
    pub(super) size: u64,
    pub(super) requested: u64,
    pub(super) links: u64,
    pub(super) prev: u32,
    pub(super) next: u32,
    pub(super) shelf: u32,
    /// Index of its segment; older segments have lower ones.
    pub(super) seg: u32,
    pub(super) generation: u32,
    pub(super) chain: u32,
    pub(super) events: u16,
    pub(super) life: Life,
    pub(super) flags: u8,
}

const _: () = assert!(size_of::<Block>() == 64);

impl Block {
    pub(super) const fn new(addr: u64, size: u64, shelf: u32, seg: u32, life: Life, flags: u8) -> Self {
        Block {
            addr,
            size,
            requested: 0,
            links: 0,
            prev: NIL,
            next: NIL,
            shelf,
            seg,
            generation: 0,
            chain: NIL,
            events: 0,
            life,
            flags,
        }
    }

    pub(super) fn left(&self) -> u32 {
        self.links as u32
    }

    pub(super) fn right(&self) -> u32 {
        (self.links >> 32) as u32
    }

    pub(super) fn set_left(&mut self, id: u32) {
        self.links = (self.links & !0xffff_ffff) | u64::from(id);
    }

    pub(super) fn set_right(&mut self, id: u32) {
        self.links = (self.links & 0xffff_ffff) | (u64::from(id) << 32);
    }

    /// Order within a bin. PyTorch 2.14 orders blocks of one size by the age of their segments, and only within a segment
    /// by address, which makes a difference once the device hands addresses out again.
    #[inline(always)]
    pub(super) fn key(&self) -> (u64, u32, u64) {
        (self.size, self.seg, self.addr)
    }

    pub(super) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// 0 for the small pool, 1 for the large one.
    pub(super) fn kind(&self) -> usize {
        usize::from(self.flags & LARGE != 0)
    }

    pub(super) fn is_split(&self) -> bool {
        self.prev != NIL || self.next != NIL
    }
}

/// All blocks of a device. Vacant records form a list through `next`.
#[derive(Debug)]
pub(super) struct Arena {
    blocks: Vec<Block>,
    vacant: u32,
    live: u32,
}

impl Arena {
    pub(super) fn new() -> Self {
        let mut blocks = Vec::with_capacity(256);
        blocks.push(Block::new(0, 0, 0, 0, Life::Vacant, 0));
        Arena { blocks, vacant: NIL, live: 0 }
    }

    /// Puts a record in; its generation goes on where that of the record's last user ended.
    pub(super) fn put(&mut self, block: Block) -> u32 {
        let id = self.unused();
        let generation = self[id].generation;
        self[id] = Block { generation, ..block };
        id
    }

    /// Cuts a block at `size`: puts in a record for the upper part, next to the lower one, and returns it.
    #[inline(always)]
    pub(super) fn cut(&mut self, id: u32, size: u64, life: Life) -> u32 {
        let high = self.unused();
        let low = &mut self[id];
        let Block { addr, size: whole, next, shelf, seg, flags, .. } = *low;
        (low.size, low.next) = (size, high);
        // Field by field: a record built elsewhere and copied here would stall on its own stores.
        let block = &mut self[high];
        block.addr = addr + size;
        block.size = whole - size;
        (block.prev, block.next) = (id, next);
        (block.shelf, block.seg) = (shelf, seg);
        (block.events, block.life, block.flags) = (0, life, flags & (GROWABLE | LARGE));
        if next != NIL {
            self[next].prev = high;
        }
        high
    }

    /// A vacant record, counted as used.
    #[inline(always)]
    fn unused(&mut self) -> u32 {
        self.live += 1;
        let id = self.vacant;
        if id == NIL {
            return self.extend();
        }
        self.vacant = self[id].next;
        id
    }

    #[cold]
    fn extend(&mut self) -> u32 {
        if self.blocks.len() == self.blocks.capacity() {
            // By an eighth, not by half: a million live blocks may cost 96 bytes each, not 128.
            let more = (self.blocks.len() / 8).max(1024);
            self.blocks.reserve_exact(more);
        }
        self.blocks.push(Block::new(0, 0, 0, 0, Life::Vacant, 0));
        (self.blocks.len() - 1) as u32
    }

    #[inline(always)]
    pub(super) fn vacate(&mut self, id: u32) {
        let vacant = self.vacant;
        let block = &mut self[id];
        debug_assert_ne!(block.life, Life::Vacant);
        block.life = Life::Vacant;
        block.next = vacant;
        self.vacant = id;
        self.live -= 1;
    }

    /// Is there room for more records? Indices have 27 bits in the address table; when they run out, blocks stay whole.
    #[inline(always)]
    pub(super) fn has_room(&self) -> bool {
        self.live < (1 << 27) - 16
    }

    pub(super) fn get(&self, id: u32) -> Option<&Block> {
        self.blocks.get(id as usize)
    }

    /// Every record that stands for something, with its index.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Block)> {
        self.blocks.iter().enumerate().filter(|(_, b)| b.life != Life::Vacant).map(|(i, b)| (i as u32, b))
    }

    /// Every record that stands for something, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        self.blocks.iter_mut().filter(|b| b.life != Life::Vacant)
    }

    /// Bytes of bookkeeping.
    pub(super) fn footprint(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
    }
}

impl std::ops::Index<u32> for Arena {
    type Output = Block;

    #[inline(always)]
    fn index(&self, id: u32) -> &Block {
        &self.blocks[id as usize]
    }
}

impl std::ops::IndexMut<u32> for Arena {
    #[inline(always)]
    fn index_mut(&mut self, id: u32) -> &mut Block {
        &mut self.blocks[id as usize]
    }
}
