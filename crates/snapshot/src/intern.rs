//! Things that a history says thousands of times, stored once and named by number.

use std::collections::HashMap;
use std::sync::Arc;

/// Names a string of [`Names`]. The default is the empty string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// Names a frame of a [`Snapshot`](crate::Snapshot).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);

/// Names a stack of [`Stacks`]. The default is the empty stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

impl StackId {
    /// The stack without frames: recorded, but nothing was known (work of a thread without Python, say).
    pub const EMPTY: StackId = StackId(0);
    /// No stack was recorded: the file has no `frames` for it.
    pub const ABSENT: StackId = StackId(u32::MAX);
}

/// Strings, each stored once.
#[derive(Clone, Debug)]
pub struct Names {
    list: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, u32>,
    bytes: usize,
}

impl Default for Names {
    fn default() -> Self {
        let empty: Arc<str> = Arc::from("");
        Names { list: vec![empty.clone()], ids: HashMap::from([(empty, 0)]), bytes: 0 }
    }
}

impl Names {
    /// A table without the empty string.
    pub(crate) fn bare() -> Self {
        Names { list: Vec::new(), ids: HashMap::new(), bytes: 0 }
    }

    /// The number of `text`, which is added if it is new.
    pub fn intern(&mut self, text: &str) -> NameId {
        if let Some(&id) = self.ids.get(text) {
            return NameId(id);
        }
        let id = self.list.len() as u32;
        self.bytes += text.len() + 16;
        let text: Arc<str> = Arc::from(text);
        self.list.push(text.clone());
        self.ids.insert(text, id);
        NameId(id)
    }

    /// The string of a number; empty for a number that this table did not give.
    pub fn get(&self, id: NameId) -> &str {
        self.list.get(id.0 as usize).map_or("", |text| text)
    }

    /// The number of a string that is in the table.
    pub fn find(&self, text: &str) -> Option<NameId> {
        self.ids.get(text).copied().map(NameId)
    }

    /// All strings, by number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.list.iter().map(|text| &**text)
    }

    /// Bytes held, about.
    pub fn footprint(&self) -> usize {
        self.list.iter().map(|text| text.len() + 16).sum::<usize>()
            + self.list.capacity() * 16
            + self.ids.capacity() * 25
    }
}

/// Stacks, each stored once: lists of frames, innermost first.
#[derive(Clone, Debug)]
pub struct Stacks {
    frames: Vec<FrameId>,
    ends: Vec<u32>,
    ids: HashMap<Arc<[FrameId]>, u32>,
}

impl Default for Stacks {
    fn default() -> Self {
        Stacks { frames: Vec::new(), ends: vec![0], ids: HashMap::new() }
    }
}

impl Stacks {
    /// The number of a stack, which is added if it is new.
    pub fn intern(&mut self, frames: &[FrameId]) -> StackId {
        if frames.is_empty() {
            return StackId::EMPTY;
        }
        if let Some(&id) = self.ids.get(frames) {
            return StackId(id);
        }
        let id = self.ends.len() as u32;
        self.frames.extend_from_slice(frames);
        self.ends.push(self.frames.len() as u32);
        self.ids.insert(Arc::from(frames), id);
        StackId(id)
    }

    /// The frames of a stack, innermost first; none for [`StackId::ABSENT`] and numbers that this table did not give.
    pub fn get(&self, id: StackId) -> &[FrameId] {
        let at = id.0 as usize;
        let Some(&end) = self.ends.get(at) else { return &[] };
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.frames[start as usize..end as usize]
    }

    /// How many there are; the numbers are 0 .. this.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Bytes held, about.
    pub fn footprint(&self) -> usize {
        self.frames.capacity() * 4 + self.frames.len() * 4 + self.ends.capacity() * 4 + self.ids.capacity() * 41
    }
}
