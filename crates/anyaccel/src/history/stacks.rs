//! Rust backtraces: addresses while the program runs, names and lines when somebody asks.
//!
//! A forked child has none: the unwinder's locks may have been held by another thread of the parent.

use super::table::FrameSource;
use crate::fork;
use anyaccel_engine::history::StackFrame;

/// Frames of a stack that are kept, the innermost ones.
const DEPTH: usize = 64;

/// Instruction addresses of the present process.
pub(super) struct Backtraces;

impl FrameSource for Backtraces {
    type Frame = usize;

    fn capture(&self, frames: &mut [usize]) -> usize {
        if fork::is_child() {
            return 0;
        }
        let (most, mut len) = (frames.len().min(DEPTH), 0);
        backtrace::trace(|frame| {
            frames[len] = frame.ip() as usize;
            len += 1;
            len < most
        });
        len
    }

    fn resolve(&self, frames: &[usize]) -> Vec<Vec<StackFrame>> {
        if fork::is_child() {
            return Vec::new();
        }
        frames.iter().map(|&address| resolve(address)).collect()
    }

    /// What belongs to capturing, or to the cache that asked for it.
    fn is_own(&self, frame: &StackFrame) -> bool {
        let name = frame.name.trim_start_matches('<');
        ["backtrace::", "anyaccel::history::", "anyaccel_engine::", "core::", "std::panic", "__rust_try"]
            .into_iter()
            .any(|start| name.starts_with(start))
    }
}

fn resolve(address: usize) -> Vec<StackFrame> {
    let mut frames = Vec::new();
    // The address is that of the next instruction, which may belong to another line.
    let call = std::ptr::without_provenance_mut(address.saturating_sub(1));
    backtrace::resolve(call, |symbol| {
        let name = symbol.name().map_or_else(|| format!("{address:#x}"), |name| format!("{name:#}"));
        let file = symbol.filename().map_or_else(String::new, |file| file.display().to_string());
        frames.push(StackFrame { name: name.into(), file: file.into(), line: symbol.lineno().unwrap_or(0) });
    });
    if frames.is_empty() {
        frames.push(StackFrame { name: format!("{address:#x}").into(), file: "".into(), line: 0 });
    }
    frames
}
