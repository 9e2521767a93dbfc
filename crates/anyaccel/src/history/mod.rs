//! Memory history: records what the caches of all devices do, and writes it as PyTorch writes its snapshots.
//!
//! # Protocol
//!
//! [`History`] is part of a runtime and outlives its start: what was asked for before is put in force on each device
//! when it is opened. Its one lock is taken first; the caches' own locks and the stack source's come after. Nothing
//! under it calls a driver, so all of it may be called from host functions.

mod annotation;
mod convert;
mod options;
#[cfg(feature = "backtrace")]
mod stacks;
mod table;

pub use annotation::MemoryAnnotation;
pub use options::{HistoryOptions, HistoryStacks, Recorded};
pub use table::{FrameSource, MOST_FRAMES, StackTable};

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::local;
use crate::port::Port;
use crate::runtime::Runtime;
use annotation::Annotations;
use anyaccel_engine::history::{Clock, HistoryOptions as Recording, StackSource};
use anyaccel_snapshot::Snapshot;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a runtime records, for devices that are open and those that will be.
#[derive(Default)]
pub(crate) struct History {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What each cache records; `None`: nothing.
    recording: Option<Recording>,
    /// Pinned memory too.
    pinned: bool,
    /// The backtraces of this runtime, once they were wanted.
    own_stacks: Option<Arc<dyn StackSource>>,
    annotations: Annotations,
}

/// How far a runtime's recording is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryStatus {
    /// Whether events are being recorded.
    pub recording: bool,
    /// Events that are kept, of all devices and of pinned memory.
    pub entries: u64,
    /// Older events that the rings had no room for: a snapshot lacks them.
    pub dropped: u64,
}

impl State {
    fn apply(&self, port: &Port, clear: bool) {
        port.cache.record_history(self.recording.as_ref(), clear);
        port.host.record_history(self.recording.as_ref().filter(|_| self.pinned), clear);
    }
}

impl History {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins on a device that was opened just now what is under way on the others.
    pub(crate) fn greet(&self, port: &Port) {
        let state = self.state();
        if state.recording.is_some() {
            state.apply(port, false);
        }
    }
}

impl Runtime {
    /// Records what the caches of all devices do from now on, or stops and forgets it. Called again while something is
    /// recorded, it puts other options in force and keeps the events, unless the stacks come from elsewhere than before.
    /// Starts nothing. [`torch.cuda.memory._record_memory_history`](https://pytorch.org/docs/stable/torch_cuda_memory.html)
    ///
    /// While nothing is recorded this costs a call of the caches one predictable branch; an event without its stack
    /// costs some tens of nanoseconds, one with a backtrace some microseconds.
    ///
    /// ```
    /// use anyaccel::{HistoryOptions, Runtime};
    /// let runtime = Runtime::builder().backend("host").build()?;
    /// runtime.record_memory_history(HistoryOptions::default())?;
    /// {
    ///     let _step = runtime.memory_annotation("warm-up");
    ///     let _buffer = runtime.alloc(1 << 20)?;
    /// }
    /// let snapshot = runtime.memory_snapshot()?;
    /// let actions: Vec<&str> = snapshot.traces[0].events.iter().map(|event| event.action.name()).collect();
    /// assert_eq!(actions, ["segment_alloc", "alloc", "free_requested", "free_completed"]);
    /// runtime.record_memory_history(HistoryOptions::off())?;
    /// # Ok::<(), anyaccel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::StaleHandle`] in a forked child of the runtime's process.
    pub fn record_memory_history(&self, options: HistoryOptions) -> Result<()> {
        let call = "record_memory_history";
        self.check_generation(call, "runtime")?;
        // Dropped when no lock is held, as it may own the last of a source.
        let _before: Option<Recording>;
        let mut state = self.core.memory.history.state();
        _before = state.recording.clone();
        if options.enabled == Recorded::Nothing {
            state.recording = None;
            state.annotations.clear();
        } else {
            let source = match &options.stacks {
                HistoryStacks::None => None,
                HistoryStacks::Rust => state.own_stacks(),
                HistoryStacks::From(source) => Some(Arc::clone(source)),
            };
            let clock = state.recording.as_ref().map_or_else(Clock::start, |recording| recording.clock);
            let max_entries = if options.enabled == Recorded::All { options.max_entries } else { 0 };
            state.recording =
                Some(Recording { max_entries, level: options.context, source, skip: options.skip.clone(), clock });
            state.annotations.limit(max_entries);
            if options.clear {
                state.annotations.clear();
            }
        }
        state.pinned = options.pinned;
        if let Some(live) = self.core.running() {
            live.open_ports().for_each(|port| state.apply(port, options.clear));
        }
        Ok(())
    }

    /// How far the recording is. Starts nothing.
    ///
    /// # Errors
    /// [`Error::StaleHandle`] in a forked child of the runtime's process.
    pub fn memory_history(&self) -> Result<HistoryStatus> {
        self.check_generation("memory_history", "runtime")?;
        let state = self.core.memory.history.state();
        let mut status = HistoryStatus { recording: state.recording.is_some(), ..HistoryStatus::default() };
        for port in self.core.running().into_iter().flat_map(|live| live.open_ports()) {
            for counts in [port.cache.history_counts(), port.host.history_counts()] {
                status.entries += counts.entries as u64;
                status.dropped += counts.dropped;
            }
        }
        Ok(status)
    }

    /// What the caches of all devices hold, and what was recorded: see [`Snapshot`]. Each device is as it was at one
    /// moment. While nothing is recorded there are segments and blocks alone. Starts nothing: empty while the runtime has
    /// not started. [`torch.cuda.memory._snapshot`](https://pytorch.org/docs/stable/torch_cuda_memory.html)
    ///
    /// # Errors
    /// [`Error::StaleHandle`] in a forked child of the runtime's process; [`Error::Settings`] for an environment that
    /// can't be used.
    pub fn memory_snapshot(&self) -> Result<Snapshot> {
        self.check_generation("memory_snapshot", "runtime")?;
        let settings = self.allocator_settings()?;
        let parts = convert::collect(self, &self.core.memory.history.state());
        Ok(convert::snapshot(parts, &settings))
    }

    /// Writes [`Runtime::memory_snapshot`] to a file that PyTorch's viewer and `pickle.load` open: all of it, or nothing.
    /// [`torch.cuda.memory._dump_snapshot`](https://pytorch.org/docs/stable/torch_cuda_memory.html)
    ///
    /// # Errors
    /// [`Error::SnapshotFile`], naming the path; those of [`Runtime::memory_snapshot`].
    pub fn dump_snapshot(&self, path: impl AsRef<Path>) -> Result<()> {
        self.memory_snapshot()?.save(path).map_err(|error| Error::SnapshotFile {
            path: error.path.display().to_string(),
            reason: error.source.to_string(),
        })
    }

    /// Gives what this thread does a name until the guard is dropped: events bear it, behind the names of the guards
    /// around it, and while something is recorded the range itself goes into the history. Starts nothing.
    pub fn memory_annotation(&self, name: &str) -> MemoryAnnotation {
        MemoryAnnotation::begin(self, name)
    }
}

impl State {
    #[cfg(feature = "backtrace")]
    fn own_stacks(&mut self) -> Option<Arc<dyn StackSource>> {
        Some(Arc::clone(self.own_stacks.get_or_insert_with(|| Arc::new(StackTable::new(stacks::Backtraces)))))
    }

    #[cfg(not(feature = "backtrace"))]
    fn own_stacks(&mut self) -> Option<Arc<dyn StackSource>> {
        self.own_stacks.clone()
    }
}

impl Buffer {
    /// Gives the buffer's memory a name, which the history shows as an event. Nothing happens while nothing is recorded.
    /// [`torch.cuda.memory._annotate_tensor`](https://pytorch.org/docs/stable/torch_cuda_memory.html)
    pub fn annotate(&self, text: &str) {
        if let Some(block) = self.block() {
            block.annotate(text);
        }
    }
}

/// The device that is current on this thread.
fn current_device(runtime: &Runtime) -> u32 {
    local::device(runtime.core.key())
}
