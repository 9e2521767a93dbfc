//! From a complete dictionary to the record that it stands for.

use std::collections::{BTreeSet, HashMap};

use super::error::shown;
use super::keys::Key;
use super::objects::{DictSlot, ListSlot, Objects, Value};
use crate::intern::{NameId, StackId};
use crate::{Action, Annotation, Block, BlockState, Event, Frame, PoolKey, Segment, Snapshot, Stage};

/// No device has that many bytes; with addresses below 2^63, ends of blocks can't overflow.
const MOST_BYTES: i64 = 1 << 60;

/// Unknown keys that are named in the notes.
const NOTED: usize = 32;

/// Records, by number, until the file says where they belong.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Gets names, frames, stacks and pools as they come.
    pub(super) out: Snapshot,
    pub(super) events: Vec<Event>,
    pub(super) blocks: Vec<Piece>,
    pub(super) segments: Vec<Segment>,
    pub(super) annotations: Vec<Annotation>,
    pools: HashMap<PoolKey, u16>,
    /// From the numbers of the file's strings to those of the snapshot's.
    names: Vec<Option<NameId>>,
    /// Blocks that segments have. Each belongs to one, so that a file can't make more of them than it has.
    owned: usize,
    pub(super) unknown: BTreeSet<(&'static str, String)>,
}

/// A block whose address may have to be counted from its segment's: files of old have none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) block: Block,
    pub(super) placed: bool,
}

impl Records {
    pub(super) fn footprint(&self) -> usize {
        self.events.capacity() * size_of::<Event>()
            + self.blocks.capacity() * (size_of::<Piece>() + size_of::<Block>())
            + self.segments.len() * size_of::<Segment>()
            + self.annotations.capacity() * size_of::<Annotation>()
            + self.pools.capacity() * 24
            + self.names.capacity() * 8
            + self.out.footprint()
    }

    /// The index of a pair in the snapshot's pools.
    pub(super) fn pool(&mut self, key: PoolKey) -> Option<u32> {
        if key == (0, 0) {
            return Some(0);
        }
        if let Some(&at) = self.pools.get(&key) {
            return Some(u32::from(at));
        }
        let at = u16::try_from(self.out.pools.len()).ok()?;
        self.out.pools.push(key);
        self.pools.insert(key, at);
        Some(u32::from(at))
    }
}

/// A tuple of two numbers that are not negative.
pub(super) fn pair_of(items: &[Value]) -> Option<PoolKey> {
    match items {
        &[Value::Int(a), Value::Int(b)] => Some((u64::try_from(a).ok()?, u64::try_from(b).ok()?)),
        _ => None,
    }
}

/// What a field must be. Errors say what is there instead.
fn bytes(key: Key, value: Value) -> Result<u64, String> {
    match value {
        Value::Int(n @ 0..=MOST_BYTES) => Ok(n as u64),
        Value::Int(n) if n < 0 => Err(format!("'{}' is {n}, and can't be negative", key.text())),
        Value::Int(n) => Err(format!("'{}' is {n} bytes, which no device has", key.text())),
        other => Err(format!("'{}' is {}; expected a number of bytes", key.text(), other.kind())),
    }
}

fn address(key: Key, value: Value) -> Result<u64, String> {
    match value {
        Value::Int(n) => u64::try_from(n).map_err(|_| format!("'{}' is {n}, and can't be negative", key.text())),
        other => Err(format!("'{}' is {}; expected an address below 2^63", key.text(), other.kind())),
    }
}

fn number(key: Key, value: Value) -> Result<i64, String> {
    match value {
        Value::Int(n) => Ok(n),
        other => Err(format!("'{}' is {}; expected a number", key.text(), other.kind())),
    }
}

fn pool(key: Key, value: Value) -> Result<u16, String> {
    match value {
        Value::Pair(at) => Ok(at as u16),
        other => Err(format!("'{}' is {}; expected a pair of numbers", key.text(), other.kind())),
    }
}

impl Objects {
    fn string(&self, key: Key, value: Value) -> Result<u32, String> {
        match value {
            Value::Text(id) => Ok(id),
            other => Err(format!("'{}' is {}; expected a string", key.text(), other.kind())),
        }
    }

    /// A string that the snapshot keeps.
    fn kept(&mut self, key: Key, value: Value) -> Result<NameId, String> {
        let id = self.string(key, value)?;
        Ok(self.keep(id))
    }

    pub(super) fn keep(&mut self, id: u32) -> NameId {
        let at = id as usize;
        if let Some(&Some(name)) = self.records.names.get(at) {
            return name;
        }
        if self.records.names.len() <= at {
            self.records.names.resize(self.texts.iter().len().max(at + 1), None);
        }
        let name = self.records.out.names.intern(self.texts.get(NameId(id)));
        self.records.names[at] = Some(name);
        name
    }

    fn stack(&self, value: Value) -> Result<StackId, String> {
        if let Value::List(id) = value
            && let ListSlot::Stack(stack) = self.lists[id as usize]
        {
            return Ok(stack);
        }
        Err("'frames' is no list of frames".into())
    }

    fn unknown(&mut self, context: &'static str, key: u32) {
        if self.records.unknown.len() < NOTED {
            self.records.unknown.insert((context, shown(self.text(key))));
        }
    }

    /// The record that a dictionary stands for, by the keys that only one kind has; `None` for other dictionaries.
    pub(super) fn record(&mut self, offset: u64, items: &[Value]) -> Option<DictSlot> {
        let mut keys = 0;
        for pair in items.chunks_exact(2) {
            if let Value::Text(id) = pair[0]
                && let Some(key) = Key::of(id)
            {
                keys |= key.bit();
            }
        }
        let has = |key: Key| keys & key.bit() != 0;
        let made = if has(Key::Action) {
            self.event(items)
        } else if has(Key::Filename) {
            self.frame(items)
        } else if has(Key::State) {
            self.block(items)
        } else if has(Key::TotalSize) {
            self.segment(items)
        } else if has(Key::Stage) {
            self.annotation(items)
        } else {
            return None;
        };
        Some(made.unwrap_or_else(|reason| self.fault(offset, reason)))
    }

    fn event(&mut self, items: &[Value]) -> Result<DictSlot, String> {
        let (mut action, mut addr, mut size) = (None, None, None);
        let mut event = Event {
            addr: 0,
            size: 0,
            stream: 0,
            time_us: 0,
            stack: StackId::ABSENT,
            user_metadata: NameId(0),
            compile_context: NameId(0),
            pool: 0,
            action: Action::Snapshot,
        };
        for pair in items.chunks_exact(2) {
            let (Value::Text(id), value) = (pair[0], pair[1]) else { continue };
            match Key::of(id) {
                Some(key @ Key::Action) => {
                    let name = self.text(self.string(key, value)?);
                    let found = Action::from_name(name);
                    action = Some(found.ok_or_else(|| format!("'{}' is no action of an event", shown(name)))?);
                }
                Some(key @ (Key::Addr | Key::DeviceFree)) => addr = Some(address(key, value)?),
                Some(key @ Key::Size) => size = Some(bytes(key, value)?),
                Some(key @ Key::Stream) => event.stream = number(key, value)? as u64,
                Some(key @ Key::TimeUs) => event.time_us = number(key, value)?,
                Some(key @ Key::CompileContext) => event.compile_context = self.kept(key, value)?,
                Some(key @ Key::UserMetadata) => event.user_metadata = self.kept(key, value)?,
                Some(key @ Key::PoolId) => event.pool = pool(key, value)?,
                Some(Key::Frames) => event.stack = self.stack(value)?,
                // A device's events need no device.
                Some(Key::Device) => {}
                _ => self.unknown("an event", id),
            }
        }
        event.action = action.ok_or("an event has no 'action'")?;
        event.size = size.ok_or_else(|| format!("'{}' has no 'size'", event.action.name()))?;
        event.addr = match (addr, event.action) {
            (Some(addr), _) => addr,
            (None, Action::Oom | Action::Snapshot) => 0,
            (None, action) => return Err(format!("'{}' has no 'addr'", action.name())),
        };
        self.records.events.push(event);
        Ok(DictSlot::Event(self.records.events.len() as u32 - 1))
    }

    fn frame(&mut self, items: &[Value]) -> Result<DictSlot, String> {
        let mut frame = Frame { name: NameId(0), file: NameId(0), line: 0 };
        for pair in items.chunks_exact(2) {
            let (Value::Text(id), value) = (pair[0], pair[1]) else { continue };
            match Key::of(id) {
                Some(key @ Key::Name) => frame.name = self.kept(key, value)?,
                Some(key @ Key::Filename) => frame.file = self.kept(key, value)?,
                // Unknown lines are 0, or what a compiler made of it.
                Some(Key::Line) => {
                    if let Value::Int(line) = value {
                        frame.line = u32::try_from(line).unwrap_or(0);
                    }
                }
                _ => self.unknown("a frame", id),
            }
        }
        Ok(DictSlot::Frame(self.records.out.frame(frame)))
    }

    fn block(&mut self, items: &[Value]) -> Result<DictSlot, String> {
        let (mut state, mut size, mut requested, mut addr) = (None, None, None, None);
        let mut stack = StackId::ABSENT;
        for pair in items.chunks_exact(2) {
            let (Value::Text(id), value) = (pair[0], pair[1]) else { continue };
            match Key::of(id) {
                Some(key @ Key::State) => {
                    let name = self.text(self.string(key, value)?);
                    let found = BlockState::from_name(name);
                    state = Some(found.ok_or_else(|| format!("'{}' is no state of a block", shown(name)))?);
                }
                Some(key @ (Key::Address | Key::Addr)) => addr = Some(address(key, value)?),
                Some(key @ Key::Size) => size = Some(bytes(key, value)?),
                Some(key @ Key::RequestedSize) => requested = Some(bytes(key, value)?),
                Some(Key::Frames) => stack = self.stack(value)?,
                Some(Key::History) => {
                    // Files of old: the users of a block, the last one first.
                    if let Some((frames, real)) = self.last_user(value) {
                        stack = frames.unwrap_or(stack);
                        requested = requested.or(real);
                    }
                }
                _ => self.unknown("a block", id),
            }
        }
        let state = state.ok_or("a block has no 'state'")?;
        let size = size.ok_or("a block has no 'size'")?;
        let block = Block { addr: addr.unwrap_or(0), size, requested: requested.unwrap_or(size), stack, state };
        self.records.blocks.push(Piece { block, placed: addr.is_some() });
        Ok(DictSlot::Block(self.records.blocks.len() as u32 - 1))
    }

    fn last_user(&self, history: Value) -> Option<(Option<StackId>, Option<u64>)> {
        let &first = self.items(history)?.first()?;
        let mut found = (None, None);
        for &(key, value) in self.plain(first)? {
            match Key::of(key) {
                Some(Key::Frames) => found.0 = self.stack(value).ok(),
                Some(key @ Key::RealSize) => found.1 = bytes(key, value).ok(),
                _ => {}
            }
        }
        Some(found)
    }

    /// The values of a list that is none of frames.
    pub(super) fn items(&self, list: Value) -> Option<&[Value]> {
        let Value::List(id) = list else { return None };
        match self.lists[id as usize] {
            ListSlot::Values(at) => Some(&self.values[at as usize]),
            ListSlot::Stack(StackId::EMPTY) => Some(&[]),
            _ => None,
        }
    }

    /// The pairs of a dictionary that is no record.
    pub(super) fn plain(&self, dict: Value) -> Option<&[(u32, Value)]> {
        let Value::Dict(id) = dict else { return None };
        match self.dicts[id as usize] {
            DictSlot::Plain(at) => Some(&self.pairs[at as usize]),
            _ => None,
        }
    }

    fn segment(&mut self, items: &[Value]) -> Result<DictSlot, String> {
        let mut segment = Segment {
            device: 0,
            addr: 0,
            total: 0,
            allocated: 0,
            active: 0,
            requested: 0,
            stream: 0,
            large: true,
            growable: false,
            pool: 0,
            stack: StackId::ABSENT,
            blocks: Vec::new(),
        };
        let (mut addr, mut blocks, mut requested) = (None, None, None);
        for pair in items.chunks_exact(2) {
            let (Value::Text(id), value) = (pair[0], pair[1]) else { continue };
            match Key::of(id) {
                Some(key @ Key::Device) => {
                    let device = number(key, value)?;
                    let known = i32::try_from(device).ok().filter(|device| (-1..1 << 16).contains(device));
                    segment.device = known.ok_or_else(|| format!("'device' is {device}, and can't be"))?;
                }
                Some(key @ (Key::Address | Key::Addr)) => addr = Some(address(key, value)?),
                Some(key @ Key::TotalSize) => segment.total = bytes(key, value)?,
                Some(key @ Key::AllocatedSize) => segment.allocated = bytes(key, value)?,
                Some(key @ Key::ActiveSize) => segment.active = bytes(key, value)?,
                Some(key @ Key::RequestedSize) => requested = Some(bytes(key, value)?),
                Some(key @ Key::Stream) => segment.stream = number(key, value)? as u64,
                Some(key @ Key::SegmentType) => {
                    segment.large = self.text(self.string(key, value)?) != "small";
                }
                Some(key @ (Key::SegmentPoolId | Key::PoolId)) => segment.pool = pool(key, value)?,
                Some(key @ Key::IsExpandable) => match value {
                    Value::Bool(is) => segment.growable = is,
                    other => return Err(format!("'{}' is {}; expected a boolean", key.text(), other.kind())),
                },
                Some(Key::Frames) => segment.stack = self.stack(value)?,
                Some(Key::Blocks) => blocks = Some(value),
                _ => self.unknown("a segment", id),
            }
        }
        segment.addr = addr.ok_or("a segment has no 'address'")?;
        segment.blocks = self.blocks_of(segment.addr, blocks.ok_or("a segment has no 'blocks'")?)?;
        let used = segment.blocks.iter().filter(|block| block.state != BlockState::Inactive);
        segment.requested = requested.unwrap_or_else(|| used.map(|block| block.requested).sum());
        self.records.segments.push(segment);
        Ok(DictSlot::Segment(self.records.segments.len() as u32 - 1))
    }

    fn blocks_of(&mut self, start: u64, list: Value) -> Result<Vec<Block>, String> {
        let items = self.items(list).ok_or("'blocks' is no list of blocks")?;
        let mut owned = self.records.owned;
        let mut out = Vec::new();
        let mut end = start;
        for &item in items {
            let at = match item {
                Value::Dict(id) => match self.dicts[id as usize] {
                    DictSlot::Block(at) => at,
                    DictSlot::Broken(fault) => return Err(self.faults[fault as usize].1.clone()),
                    _ => return Err("an item of 'blocks' is no block".into()),
                },
                _ => return Err("an item of 'blocks' is no block".into()),
            };
            owned += 1;
            if owned > self.records.blocks.len() {
                return Err("a block is in two segments".into());
            }
            let Piece { mut block, placed } = self.records.blocks[at as usize];
            if !placed {
                block.addr = end;
            }
            end = block.addr.saturating_add(block.size);
            out.push(block);
        }
        out.shrink_to_fit();
        self.records.owned = owned;
        Ok(out)
    }

    fn annotation(&mut self, items: &[Value]) -> Result<DictSlot, String> {
        let mut annotation = Annotation { stage: Stage::Start, name: NameId(0), device: 0, time_us: 0 };
        for pair in items.chunks_exact(2) {
            let (Value::Text(id), value) = (pair[0], pair[1]) else { continue };
            match Key::of(id) {
                Some(key @ Key::Stage) => {
                    annotation.stage = match self.text(self.string(key, value)?) {
                        "START" => Stage::Start,
                        "END" => Stage::End,
                        other => return Err(format!("'{}' is no stage of an annotation", shown(other))),
                    };
                }
                Some(key @ Key::Name) => annotation.name = self.kept(key, value)?,
                Some(key @ Key::Device) => annotation.device = number(key, value)? as i32,
                Some(key @ Key::TimeUs) => annotation.time_us = number(key, value)?,
                _ => self.unknown("an annotation", id),
            }
        }
        self.records.annotations.push(annotation);
        Ok(DictSlot::Annotation(self.records.annotations.len() as u32 - 1))
    }
}
