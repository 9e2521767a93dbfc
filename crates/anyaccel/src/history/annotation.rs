//! Ranges of time with names.

use super::current_device;
use crate::runtime::Runtime;
use anyaccel_engine::history::{ScopeGuard, enter_scope};
use anyaccel_snapshot::Stage;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// One end of a range.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) stage: Stage,
    pub(super) name: Arc<str>,
    pub(super) device: u32,
    pub(super) time_us: i64,
}

/// The last marks.
#[derive(Clone, Debug, Default)]
pub(super) struct Annotations {
    marks: VecDeque<Mark>,
    max: usize,
}

impl Annotations {
    pub(super) fn limit(&mut self, max: usize) {
        self.max = max;
        let surplus = self.marks.len().saturating_sub(max);
        self.marks.drain(..surplus);
    }

    pub(super) fn clear(&mut self) {
        self.marks.clear();
    }

    fn push(&mut self, mark: Mark) {
        if self.marks.len() >= self.max {
            self.marks.pop_front();
        }
        if self.max > 0 {
            self.marks.push_back(mark);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Mark> {
        self.marks.iter()
    }
}

/// While it lives, what this thread does bears a name in the memory history. From [`Runtime::memory_annotation`].
#[must_use = "the range ends when the guard is dropped"]
pub struct MemoryAnnotation {
    /// Whose history has the beginning, and under which name and device.
    begun: Option<(Runtime, Arc<str>, u32)>,
    _scope: ScopeGuard,
}

impl fmt::Debug for MemoryAnnotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryAnnotation")
            .field("name", &self.begun.as_ref().map(|(_, name, _)| name))
            .finish_non_exhaustive()
    }
}

impl MemoryAnnotation {
    pub(super) fn begin(runtime: &Runtime, name: &str) -> Self {
        let (name, device): (Arc<str>, u32) = (name.into(), current_device(runtime));
        let begun = note(runtime, Stage::Start, &name, device).then(|| (runtime.clone(), Arc::clone(&name), device));
        MemoryAnnotation { begun, _scope: enter_scope(&name) }
    }
}

impl Drop for MemoryAnnotation {
    fn drop(&mut self) {
        if let Some((runtime, name, device)) = &self.begun {
            note(runtime, Stage::End, name, *device);
        }
    }
}

/// Notes one end of a range. Whether anything is recorded.
fn note(runtime: &Runtime, stage: Stage, name: &Arc<str>, device: u32) -> bool {
    if !runtime.core.current() {
        return false;
    }
    let mut state = runtime.core.memory.history.state();
    let Some(time_us) = state.recording.as_ref().map(|recording| recording.clock.now_us()) else { return false };
    state.annotations.push(Mark { stage, name: Arc::clone(name), device, time_us });
    true
}
