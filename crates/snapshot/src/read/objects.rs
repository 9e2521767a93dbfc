//! The objects of a pickle while it is read: small values, and slots for lists and dictionaries.
//!
//! # Life of a slot
//!
//! ```text
//!   Empty ──items are added──▶ Open ──used by another object──▶ a record, a stack, plain values
//! ```
//!
//! A pickle is written depth first, so an object is complete when another one takes it in: then it becomes what it stands
//! for, once. A change after that could only come from an object that contains itself, and is refused.

use std::collections::HashMap;

use super::ReadError;
use super::decode::Records;
use super::keys::KEYS;
use crate::intern::{FrameId, Names, StackId};

/// What lies on the stack.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    Int(i64),
    Float(f64),
    Bool(bool),
    /// A number of [`Objects::texts`].
    Text(u32),
    /// An index into the snapshot's pools: a tuple of two numbers.
    Pair(u32),
    List(u32),
    Dict(u32),
    /// Data that no key of a snapshot has: None, bytes, sets, other tuples, numbers beyond 64 bits.
    Opaque,
}

impl Value {
    pub(super) fn kind(self) -> &'static str {
        match self {
            Value::Int(_) => "a whole number",
            Value::Float(_) => "a number",
            Value::Bool(_) => "a boolean",
            Value::Text(_) => "a string",
            Value::Pair(_) => "a pair of numbers",
            Value::List(_) => "a list",
            Value::Dict(_) => "a dictionary",
            Value::Opaque => "data of another kind",
        }
    }
}

/// A list, by what it stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum ListSlot {
    Empty,
    Open(u32),
    Stack(StackId),
    Values(u32),
}

/// A dictionary, by what it stands for. Records are numbers in [`Records`].
#[derive(Clone, Copy, Debug)]
pub(super) enum DictSlot {
    Empty,
    Open(u32),
    Frame(FrameId),
    Event(u32),
    Block(u32),
    Segment(u32),
    Annotation(u32),
    /// Anything else: pairs in `dicts`.
    Plain(u32),
    /// It looked like a record but is none; an error if it is used as one: its number in `faults`.
    Broken(u32),
}

/// The memo's entries take 8 bytes.
#[derive(Clone, Copy, Debug)]
enum Memo {
    Vacant,
    Text(u32),
    Pair(u32),
    List(u32),
    Dict(u32),
    Opaque,
    /// Numbers need no memo, but may have one.
    Number(u32),
}

/// So many faults of records are kept; of a broken file the first counts.
const FAULTS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Objects {
    memo: Vec<Memo>,
    sparse: HashMap<u32, Memo>,
    numbers: Vec<Value>,
    /// Strings of the file, keys included.
    pub(super) texts: Names,
    pub(super) lists: Vec<ListSlot>,
    pub(super) dicts: Vec<DictSlot>,
    pub(super) values: Vec<Vec<Value>>,
    pub(super) pairs: Vec<Vec<(u32, Value)>>,
    spare_values: Vec<u32>,
    spare_pairs: Vec<u32>,
    held_values: usize,
    pub(super) faults: Vec<(u64, String)>,
    pub(super) records: Records,
    scratch: Vec<FrameId>,
    /// The events have been given to a trace.
    pub(super) taken: bool,
}

fn corrupt<T>(offset: u64, reason: impl Into<String>) -> Result<T, ReadError> {
    Err(ReadError::Corrupt { offset, reason: reason.into() })
}

impl Objects {
    pub(super) fn new() -> Self {
        let mut texts = Names::bare();
        for (_, text) in KEYS {
            texts.intern(text);
        }
        Objects { texts, ..Objects::default() }
    }

    pub(super) fn text(&self, id: u32) -> &str {
        self.texts.get(crate::NameId(id))
    }

    /// Bytes held, about.
    pub(super) fn footprint(&self) -> usize {
        self.memo.capacity() * 8
            + self.sparse.capacity() * 16
            + self.numbers.capacity() * 16
            + self.texts.footprint()
            + self.lists.capacity() * 8
            + self.dicts.capacity() * 8
            + self.held_values * 24
            + (self.values.capacity() + self.pairs.capacity()) * 24
            + self.records.footprint()
    }

    pub(super) fn memoize(&mut self, at: u32, value: Value) {
        let entry = match value {
            Value::Text(id) => Memo::Text(id),
            Value::Pair(id) => Memo::Pair(id),
            Value::List(id) => Memo::List(id),
            Value::Dict(id) => Memo::Dict(id),
            Value::Opaque => Memo::Opaque,
            number => {
                self.numbers.push(number);
                Memo::Number(self.numbers.len() as u32 - 1)
            }
        };
        match (at as usize).cmp(&self.memo.len()) {
            std::cmp::Ordering::Less => self.memo[at as usize] = entry,
            std::cmp::Ordering::Equal => self.memo.push(entry),
            // The numbers of old writers begin at 1.
            std::cmp::Ordering::Greater if at == 1 => self.memo.extend([Memo::Vacant, entry]),
            std::cmp::Ordering::Greater => {
                self.sparse.insert(at, entry);
            }
        }
    }

    /// The number of the next entry.
    pub(super) fn memo_len(&self) -> u32 {
        (self.memo.len() + self.sparse.len()) as u32
    }

    #[inline]
    pub(super) fn recall(&self, at: u32) -> Option<Value> {
        match self.memo.get(at as usize).or_else(|| self.sparse.get(&at))? {
            Memo::Vacant => None,
            Memo::Text(id) => Some(Value::Text(*id)),
            Memo::Pair(id) => Some(Value::Pair(*id)),
            Memo::List(id) => Some(Value::List(*id)),
            Memo::Dict(id) => Some(Value::Dict(*id)),
            Memo::Opaque => Some(Value::Opaque),
            Memo::Number(id) => self.numbers.get(*id as usize).copied(),
        }
    }

    pub(super) fn new_list(&mut self) -> Value {
        self.lists.push(ListSlot::Empty);
        Value::List(self.lists.len() as u32 - 1)
    }

    pub(super) fn new_dict(&mut self) -> Value {
        self.dicts.push(DictSlot::Empty);
        Value::Dict(self.dicts.len() as u32 - 1)
    }

    fn frame_of(&self, value: Value) -> Option<FrameId> {
        let Value::Dict(id) = value else { return None };
        if let DictSlot::Frame(frame) = self.dicts[id as usize] { Some(frame) } else { None }
    }

    /// The stack that these values are, if they are frames.
    fn stack_of(&mut self, items: &[Value]) -> Option<StackId> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let all = items.iter().all(|&item| match self.frame_of(item) {
            Some(frame) => {
                scratch.push(frame);
                true
            }
            None => false,
        });
        let stack = all.then(|| self.records.out.stacks.intern(&scratch));
        self.scratch = scratch;
        stack
    }

    /// Adds items to a list. `whole` says that they came in one go.
    pub(super) fn extend(&mut self, offset: u64, list: Value, items: &[Value], whole: bool) -> Result<(), ReadError> {
        let Value::List(id) = list else {
            return corrupt(offset, format!("items are added to {}, which is no list", list.kind()));
        };
        if items.is_empty() {
            return Ok(());
        }
        for &item in items {
            self.seal(offset, item);
        }
        match self.lists[id as usize] {
            ListSlot::Empty => {
                // Longer lists come in several goes.
                if whole
                    && items.len() < 1000
                    && self.frame_of(items[0]).is_some()
                    && let Some(stack) = self.stack_of(items)
                {
                    self.lists[id as usize] = ListSlot::Stack(stack);
                    return Ok(());
                }
                let at = match self.spare_values.pop() {
                    Some(at) => at,
                    None => {
                        self.values.push(Vec::new());
                        self.values.len() as u32 - 1
                    }
                };
                self.values[at as usize].extend_from_slice(items);
                self.lists[id as usize] = ListSlot::Open(at);
            }
            ListSlot::Open(at) => self.values[at as usize].extend_from_slice(items),
            ListSlot::Stack(_) | ListSlot::Values(_) => {
                return corrupt(offset, "a list is changed after it was used");
            }
        }
        self.held_values += items.len();
        Ok(())
    }

    /// Adds a pair or several to a dictionary.
    pub(super) fn update(&mut self, offset: u64, dict: Value, items: &[Value], whole: bool) -> Result<(), ReadError> {
        let Value::Dict(id) = dict else {
            return corrupt(offset, format!("keys are set in {}, which is no dictionary", dict.kind()));
        };
        if !items.len().is_multiple_of(2) {
            return corrupt(offset, "a dictionary gets a key without a value");
        }
        if items.is_empty() {
            return Ok(());
        }
        for pair in items.chunks_exact(2) {
            self.seal(offset, pair[1]);
        }
        match self.dicts[id as usize] {
            DictSlot::Empty => {
                if whole && let Some(slot) = self.record(offset, items) {
                    self.dicts[id as usize] = slot;
                    return Ok(());
                }
                let at = match self.spare_pairs.pop() {
                    Some(at) => at,
                    None => {
                        self.pairs.push(Vec::new());
                        self.pairs.len() as u32 - 1
                    }
                };
                self.dicts[id as usize] = DictSlot::Open(at);
                self.add_pairs(at, items);
            }
            DictSlot::Open(at) => self.add_pairs(at, items),
            _ => return corrupt(offset, "a dictionary is changed after it was used"),
        }
        Ok(())
    }

    fn add_pairs(&mut self, at: u32, items: &[Value]) {
        for pair in items.chunks_exact(2) {
            // A key that is no string is nothing that a snapshot has.
            if let Value::Text(key) = pair[0] {
                self.pairs[at as usize].push((key, pair[1]));
                self.held_values += 1;
            }
        }
    }

    /// An object is used by another one: it is complete, and becomes what it stands for.
    #[inline]
    pub(super) fn seal(&mut self, offset: u64, value: Value) {
        match value {
            Value::List(id) => self.seal_list(id),
            Value::Dict(id) => self.seal_dict(offset, id),
            _ => {}
        }
    }

    fn seal_list(&mut self, id: u32) {
        match self.lists[id as usize] {
            ListSlot::Empty => self.lists[id as usize] = ListSlot::Stack(StackId::EMPTY),
            ListSlot::Open(at) => {
                let items = std::mem::take(&mut self.values[at as usize]);
                self.lists[id as usize] = match self.stack_of(&items) {
                    Some(stack) => {
                        self.held_values -= items.len();
                        self.spare_values.push(at);
                        ListSlot::Stack(stack)
                    }
                    None => {
                        self.values[at as usize] = items;
                        ListSlot::Values(at)
                    }
                };
            }
            ListSlot::Stack(_) | ListSlot::Values(_) => {}
        }
    }

    fn seal_dict(&mut self, offset: u64, id: u32) {
        match self.dicts[id as usize] {
            DictSlot::Empty => {
                self.pairs.push(Vec::new());
                self.dicts[id as usize] = DictSlot::Plain(self.pairs.len() as u32 - 1);
            }
            DictSlot::Open(at) => {
                let pairs = &self.pairs[at as usize];
                let items: Vec<Value> = pairs.iter().flat_map(|&(key, value)| [Value::Text(key), value]).collect();
                self.dicts[id as usize] = match self.record(offset, &items) {
                    Some(slot) => {
                        self.held_values -= items.len() / 2;
                        self.pairs[at as usize] = Vec::new();
                        self.spare_pairs.push(at);
                        slot
                    }
                    None => DictSlot::Plain(at),
                };
            }
            _ => {}
        }
    }

    /// Notes a fault of a record; it matters only if the record is used.
    pub(super) fn fault(&mut self, offset: u64, reason: String) -> DictSlot {
        if self.faults.len() < FAULTS {
            self.faults.push((offset, reason));
        }
        DictSlot::Broken(self.faults.len() as u32 - 1)
    }
}
