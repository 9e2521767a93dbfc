//! Stacks of any language: frames as plain numbers while the program runs, names and lines when somebody asks.
//!
//! # Protocol
//!
//! The table's lock is held for a search or an insertion alone: never while the source is called, which may wait for the
//! interpreter of a language, and never by somebody who waits for anything else. So a thread that has the interpreter may take
//! it. In a forked child nothing here is touched: the lock may have been held by another thread of the parent.

use crate::fork;
use anyaccel_engine::history::{StackFrame, StackId, StackSource};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Frames of a stack that are kept at most, the innermost ones.
pub const MOST_FRAMES: usize = 256;
/// Different stacks that are kept; further ones count as unknown.
const MOST: usize = 1 << 20;

/// How a language tells its stacks, for [`StackTable`]. All of it may be called from any thread, of which
/// [`capture`](FrameSource::capture) and [`keep`](FrameSource::keep) on the one whose stack is wanted, outside all locks of the
/// runtime; none of it may call the runtime.
pub trait FrameSource: Send + Sync {
    /// Names a frame: the code and the place in it, as numbers that cost nothing to get. Equal where the frame is the same.
    type Frame: Copy + Default + Eq + Hash + Send + Sync;

    /// Writes the present thread's frames, innermost first, and says how many they are: 0 for a stack that is not known. Of more
    /// than there is room for, the outermost go.
    fn capture(&self, frames: &mut [Self::Frame]) -> usize;

    /// A frame that was just captured on this thread is kept from now on: what it names must not go, nor its numbers come to
    /// mean another, until it is forgotten.
    fn keep(&self, _frame: Self::Frame) {}

    /// A frame is no longer kept, once for each time that it was.
    fn forget(&self, _frame: Self::Frame) {}

    /// What kept frames are, in their order: none for a frame of which nothing is known, several where functions were inlined.
    fn resolve(&self, frames: &[Self::Frame]) -> Vec<Vec<StackFrame>>;

    /// Whether a frame at the inner end of a stack is of no use to its reader.
    fn is_own(&self, _frame: &StackFrame) -> bool {
        false
    }
}

/// The stacks of a language, each different one once: a [`StackSource`] made of a [`FrameSource`], for
/// [`HistoryStacks::From`](crate::HistoryStacks::From). Frames are resolved when a snapshot first shows them, and kept until the
/// table is dropped, which the runtime does when the recording ends.
///
/// ```
/// use anyaccel::{FrameSource, HistoryOptions, HistoryStacks, Runtime, StackFrame, StackTable};
/// use std::sync::Arc;
///
/// /// A language whose only function has two lines.
/// struct Tiny;
/// impl FrameSource for Tiny {
///     type Frame = u32;
///     fn capture(&self, frames: &mut [u32]) -> usize {
///         frames[..2].copy_from_slice(&[12, 11]);
///         2
///     }
///     fn resolve(&self, frames: &[u32]) -> Vec<Vec<StackFrame>> {
///         let named = |&line| vec![StackFrame { name: "main".into(), file: "main.tiny".into(), line }];
///         frames.iter().map(named).collect()
///     }
/// }
///
/// let runtime = Runtime::builder().backend("host").build()?;
/// let stacks = HistoryStacks::From(Arc::new(StackTable::new(Tiny)));
/// runtime.record_memory_history(HistoryOptions { stacks, ..HistoryOptions::default() })?;
/// let _buffer = runtime.alloc(1 << 20)?;
/// let snapshot = runtime.memory_snapshot()?;
/// let event = snapshot.traces[0].events.last().expect("an allocation");
/// let frames = snapshot.stacks.get(event.stack).iter().map(|&frame| snapshot.frame_text(frame));
/// assert!(frames.eq(["main (main.tiny:12)", "main (main.tiny:11)"]));
/// # Ok::<(), anyaccel::Error>(())
/// ```
pub struct StackTable<S: FrameSource> {
    source: S,
    table: Mutex<Table<S::Frame>>,
    epoch: u64,
}

/// Mixes the numbers that frames are made of: a stack has many, and an allocation waits for it. Nobody chooses them to collide.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

type Call = Option<&'static str>;

struct Table<F> {
    /// By what the stack begins with.
    numbers: HashMap<Call, Map<Arc<[F]>, u32>>,
    /// By number, from 1.
    stacks: Vec<(Call, Arc<[F]>)>,
    /// Frames in the order in which they were first seen, the first `asked` of which were resolved.
    order: Vec<F>,
    kept: HashSet<F, BuildHasherDefault<Mix>>,
    asked: usize,
    told: Map<F, Arc<[StackFrame]>>,
}

impl<F: Copy + Eq + Hash> Table<F> {
    fn find(&self, call: Call, frames: &[F]) -> Option<StackId> {
        self.numbers.get(&call)?.get(frames).map(|&number| StackId(number))
    }
}

impl<S: FrameSource> StackTable<S> {
    /// An empty one.
    pub fn new(source: S) -> Self {
        let table = Table {
            numbers: HashMap::new(),
            stacks: Vec::new(),
            order: Vec::new(),
            kept: HashSet::default(),
            asked: 0,
            told: Map::default(),
        };
        StackTable { source, table: Mutex::new(table), epoch: fork::birth() }
    }

    /// Where the frames come from.
    pub fn source(&self) -> &S {
        &self.source
    }

    fn table(&self) -> MutexGuard<'_, Table<S::Frame>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the process that made the table.
    fn usable(&self) -> bool {
        self.epoch == fork::epoch()
    }

    fn number(&self, call: Call, frames: &[S::Frame]) -> StackId {
        let mut fresh: Vec<S::Frame> = {
            let table = self.table();
            if let Some(known) = table.find(call, frames) {
                return known;
            }
            if table.stacks.len() == MOST {
                return StackId::EMPTY;
            }
            frames.iter().copied().filter(|frame| !table.kept.contains(frame)).collect()
        };
        let mut once = HashSet::new();
        fresh.retain(|&frame| once.insert(frame));
        fresh.iter().for_each(|&frame| self.source.keep(frame));
        let mut table = self.table();
        // Others may have kept some of them meanwhile, or all of the stack.
        fresh.retain(|&frame| {
            let first = table.kept.insert(frame);
            if first {
                table.order.push(frame);
            }
            !first
        });
        let number = table.find(call, frames).unwrap_or_else(|| {
            let kept: Arc<[S::Frame]> = frames.into();
            table.stacks.push((call, Arc::clone(&kept)));
            let number = table.stacks.len() as u32;
            table.numbers.entry(call).or_default().insert(kept, number);
            StackId(number)
        });
        drop(table);
        fresh.iter().for_each(|&frame| self.source.forget(frame));
        number
    }

    /// Asks what all frames are that were seen since the last time.
    fn resolve(&self) {
        let (from, fresh) = {
            let table = self.table();
            (table.asked, table.order[table.asked..].to_vec())
        };
        if fresh.is_empty() {
            return;
        }
        let told = self.source.resolve(&fresh);
        let mut table = self.table();
        table.asked = table.asked.max(from + fresh.len());
        table.told.extend(fresh.into_iter().zip(told.into_iter().map(Arc::from)));
    }
}

impl<S: FrameSource> fmt::Debug for StackTable<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackTable").finish_non_exhaustive()
    }
}

impl<S: FrameSource> StackSource for StackTable<S> {
    fn stack(&self, call: Option<&'static str>) -> StackId {
        if !self.usable() {
            return StackId::EMPTY;
        }
        let mut frames = [S::Frame::default(); MOST_FRAMES];
        let len = self.source.capture(&mut frames).min(MOST_FRAMES);
        if len == 0 && call.is_none() { StackId::EMPTY } else { self.number(call, &frames[..len]) }
    }

    fn frames(&self, stack: StackId) -> Vec<StackFrame> {
        if !self.usable() {
            return Vec::new();
        }
        let at = (stack.0 as usize).wrapping_sub(1);
        let Some((call, sites)) = self.table().stacks.get(at).cloned() else { return Vec::new() };
        self.resolve();
        let table = self.table();
        let known = sites.iter().filter_map(|site| table.told.get(site)).flat_map(|frames| frames.iter());
        let shown = known.skip_while(|frame| self.source.is_own(frame)).cloned();
        let begin = call.map(|call| StackFrame { name: call.into(), file: "".into(), line: 0 });
        begin.into_iter().chain(shown).collect()
    }
}

impl<S: FrameSource> Drop for StackTable<S> {
    fn drop(&mut self) {
        if self.usable() {
            let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
            table.order.iter().for_each(|&frame| self.source.forget(frame));
        }
    }
}
