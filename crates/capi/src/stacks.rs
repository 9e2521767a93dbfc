//! Stacks of another language, as the caller tells them.

use crate::pointer::get_struct;
use crate::result::{Failure, Result};
use crate::types::*;
use face::{FrameSource, StackFrame, StackTable};
use std::ffi::{CStr, c_char, c_void};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

type Capture = unsafe extern "C" fn(*mut c_void, *mut anyaccel_frame, usize) -> usize;
type Note = unsafe extern "C" fn(*mut c_void, anyaccel_frame);
type Resolve = unsafe extern "C" fn(*mut c_void, *const anyaccel_frame, usize, anyaccel_tell_frame, to: *mut c_void);

/// A source whose functions were looked at.
#[derive(Clone, Copy)]
pub(crate) struct CallerFrames {
    data: *mut c_void,
    capture: Capture,
    keep: Option<Note>,
    forget: Option<Note>,
    resolve: Resolve,
}

// SAFETY: C4: its functions can be called from any thread with their data.
unsafe impl Send for CallerFrames {}
// SAFETY: as above.
unsafe impl Sync for CallerFrames {}

impl CallerFrames {
    /// # Safety
    /// C1, C3, C4.
    unsafe fn new(given: *const anyaccel_stack_source) -> Result<Self> {
        // SAFETY: C1 and C3 are this function's conditions.
        let given: anyaccel_stack_source = unsafe { get_struct(given, "source")? };
        let missing = |name| Failure::argument(format!("source.{name}: NULL"));
        Ok(CallerFrames {
            data: given.data,
            capture: given.capture.ok_or_else(|| missing("capture"))?,
            keep: given.keep,
            forget: given.forget,
            resolve: given.resolve.ok_or_else(|| missing("resolve"))?,
        })
    }

    /// Whether this is the same source. A function that has two addresses makes two sources, which costs the history begun.
    fn is(&self, other: &Self) -> bool {
        let note = |note: Option<Note>| note.map_or(0, |note| note as usize);
        self.data == other.data
            && self.capture as usize == other.capture as usize
            && note(self.keep) == note(other.keep)
            && note(self.forget) == note(other.forget)
            && self.resolve as usize == other.resolve as usize
    }
}

impl Hash for anyaccel_frame {
    /// As one number: places in code are small, and few of them differ in the upper half alone.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.code ^ self.at.rotate_left(32));
    }
}

impl FrameSource for CallerFrames {
    type Frame = anyaccel_frame;

    fn capture(&self, frames: &mut [anyaccel_frame]) -> usize {
        // SAFETY: C4; the frames live for the call.
        unsafe { (self.capture)(self.data, frames.as_mut_ptr(), frames.len()) }.min(frames.len())
    }

    fn keep(&self, frame: anyaccel_frame) {
        if let Some(keep) = self.keep {
            // SAFETY: C4.
            unsafe { keep(self.data, frame) }
        }
    }

    fn forget(&self, frame: anyaccel_frame) {
        if let Some(forget) = self.forget {
            // SAFETY: C4.
            unsafe { forget(self.data, frame) }
        }
    }

    fn resolve(&self, frames: &[anyaccel_frame]) -> Vec<Vec<StackFrame>> {
        let mut told: Vec<Vec<StackFrame>> = vec![Vec::new(); frames.len()];
        // SAFETY: C4; frames and list live for the call.
        unsafe { (self.resolve)(self.data, frames.as_ptr(), frames.len(), Some(tell), (&raw mut told).cast()) }
        told
    }
}

/// Receives what a frame is.
unsafe extern "C" fn tell(to: *mut c_void, index: usize, function: *const c_char, file: *const c_char, line: u32) {
    // SAFETY: C4: called by `resolve`, on its thread, with the list that it was handed.
    let told = unsafe { &mut *to.cast::<Vec<Vec<StackFrame>>>() };
    let text = |from: *const c_char| {
        if from.is_null() {
            return "".into();
        }
        // SAFETY: C1: terminated.
        unsafe { CStr::from_ptr(from) }.to_string_lossy().into()
    };
    if let Some(frames) = told.get_mut(index) {
        frames.push(StackFrame { name: text(function), file: text(file), line });
    }
}

/// The stacks of the recording under way, if the caller tells them.
#[derive(Default)]
pub(crate) struct CallerStacks(Mutex<Option<Arc<StackTable<CallerFrames>>>>);

impl CallerStacks {
    /// The stacks of a source: those that are recorded already, if it is the same one.
    ///
    /// # Safety
    /// C1, C3, C4.
    pub(crate) unsafe fn of(&self, source: *const anyaccel_stack_source) -> Result<Arc<StackTable<CallerFrames>>> {
        // SAFETY: this function's conditions.
        let source = unsafe { CallerFrames::new(source)? };
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stacks) = current.as_ref().filter(|stacks| stacks.source().is(&source)) {
            return Ok(Arc::clone(stacks));
        }
        let stacks = Arc::new(StackTable::new(source));
        let before = current.replace(Arc::clone(&stacks));
        drop(current);
        // Without the lock: it may have frames to forget.
        drop(before);
        Ok(stacks)
    }

    /// Lets them go: the recording has ended, or has other stacks.
    pub(crate) fn end(&self) {
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(before);
    }
}
