//! Rust backtraces: addresses while the program runs, names and lines when somebody asks.
//!
//! A stack is a list of instruction addresses, stored once and named by number. Its lock is a runtime's own, and in a
//! forked child nothing here is touched: the table and the unwinder's locks may have been held by another thread of the
//! parent.

use crate::fork;
use anyaccel_engine::history::{StackFrame, StackId, StackSource};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Frames of a stack that are kept, the innermost ones.
const DEPTH: usize = 64;
/// Different stacks that are kept; further ones count as unknown.
const MOST: usize = 1 << 20;

/// The backtraces of one runtime.
pub(super) struct Backtraces {
    table: Mutex<Table>,
    epoch: u64,
}

impl Default for Backtraces {
    fn default() -> Self {
        Backtraces { table: Mutex::default(), epoch: fork::birth() }
    }
}

type Key = (Option<&'static str>, Box<[usize]>);

#[derive(Default)]
struct Table {
    numbers: HashMap<Arc<Key>, u32>,
    /// By number, from 1.
    stacks: Vec<Arc<Key>>,
    /// Frames by address; several where functions were inlined.
    frames: HashMap<usize, Arc<[StackFrame]>>,
}

impl Backtraces {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the process that made the table, never forked from another that may have left locks behind.
    fn usable(&self) -> bool {
        self.epoch == fork::epoch() && !fork::is_child()
    }
}

impl StackSource for Backtraces {
    fn stack(&self, call: Option<&'static str>) -> StackId {
        if !self.usable() {
            return StackId::EMPTY;
        }
        let (mut addresses, mut len) = ([0; DEPTH], 0);
        backtrace::trace(|frame| {
            addresses[len] = frame.ip() as usize;
            len += 1;
            len < DEPTH
        });
        let key: Key = (call, addresses[..len].into());
        let mut table = self.table();
        if let Some(&number) = table.numbers.get(&key) {
            return StackId(number);
        }
        if table.stacks.len() == MOST {
            return StackId::EMPTY;
        }
        let key = Arc::new(key);
        table.stacks.push(Arc::clone(&key));
        let number = table.stacks.len() as u32;
        table.numbers.insert(key, number);
        StackId(number)
    }

    fn frames(&self, stack: StackId) -> Vec<StackFrame> {
        if !self.usable() {
            return Vec::new();
        }
        let mut table = self.table();
        let at = (stack.0 as usize).checked_sub(1);
        let Some(key) = at.and_then(|at| table.stacks.get(at)).cloned() else { return Vec::new() };
        let mut frames: Vec<StackFrame> = Vec::new();
        for &address in &key.1 {
            let known = table.frames.entry(address).or_insert_with(|| resolve(address));
            frames.extend(known.iter().cloned());
        }
        // What lies between the call and this function is of no use to its reader.
        let own = frames.iter().take_while(|frame| is_own(&frame.name)).count();
        frames.drain(..own);
        if let Some(call) = key.0 {
            frames.insert(0, StackFrame { name: call.into(), file: "".into(), line: 0 });
        }
        frames
    }
}

/// Whether a function belongs to capturing, or to the cache that asked for it.
fn is_own(name: &str) -> bool {
    let name = name.trim_start_matches('<');
    ["backtrace::", "anyaccel::history::", "anyaccel_engine::", "core::", "std::panic", "__rust_try"]
        .into_iter()
        .any(|start| name.starts_with(start))
}

fn resolve(address: usize) -> Arc<[StackFrame]> {
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
    frames.into()
}
