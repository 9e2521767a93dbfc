//! Memory histories and snapshots.

use crate::json;
use crate::pointer::{get_struct, text, write_text};
use crate::result::{Failure, call};
use crate::state::tables;
use crate::types::*;
use face::{ContextLevel, HistoryAction, HistoryOptions, HistoryStacks, Recorded, Runtime};
use std::ffi::{c_char, c_void};

/// Records what the caches of all devices do from now on, or stops and forgets it. May be called before the start. Called again
/// while something is recorded, it puts other options in force and keeps the events, unless the stacks come from elsewhere. In a
/// child of fork nothing is recorded until it is called there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_record_memory_history(options: *const anyaccel_history_options) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 and C3 are this function's conditions.
        let given: anyaccel_history_options = unsafe { get_struct(options, "options")? };
        let defaults = HistoryOptions::default();
        let enabled = match given.enabled {
            ANYACCEL_HISTORY_OFF => Recorded::Nothing,
            ANYACCEL_HISTORY_STATE => Recorded::State,
            ANYACCEL_HISTORY_ALL => Recorded::All,
            other => return Err(Failure::argument(format!("enabled {other}: only ANYACCEL_HISTORY_* are known"))),
        };
        let max_entries = match given.max_entries {
            0 => defaults.max_entries,
            most => usize::try_from(most).unwrap_or(usize::MAX),
        };
        let context = match given.context {
            ANYACCEL_CONTEXT_ALL => ContextLevel::All,
            ANYACCEL_CONTEXT_ALLOC => ContextLevel::Alloc,
            ANYACCEL_CONTEXT_STATE => ContextLevel::State,
            ANYACCEL_CONTEXT_NONE => ContextLevel::Never,
            other => return Err(Failure::argument(format!("context {other}: only ANYACCEL_CONTEXT_* are known"))),
        };
        let known = HistoryAction::ALL;
        if given.skip >> known.len() != 0 {
            return Err(Failure::argument(format!("skip {:#x}: only {} bits are known", given.skip, known.len())));
        }
        let callers = &tables().caller_stacks;
        let stacks = match given.stacks {
            ANYACCEL_STACKS_NONE => HistoryStacks::None,
            ANYACCEL_STACKS_NATIVE => HistoryStacks::Rust,
            // The field was yes or no once.
            _ if (given.struct_size as usize) < size_of::<anyaccel_history_options>() => HistoryStacks::Rust,
            // SAFETY: C1, C3 and C4 are this function's conditions.
            ANYACCEL_STACKS_SOURCE => HistoryStacks::From(unsafe { callers.of(given.source)? }),
            other => return Err(Failure::argument(format!("stacks {other}: only ANYACCEL_STACKS_* are known"))),
        };
        let told = given.stacks == ANYACCEL_STACKS_SOURCE && enabled != Recorded::Nothing;
        Runtime::global().record_memory_history(HistoryOptions {
            enabled,
            context,
            stacks,
            max_entries,
            skip: known.into_iter().filter(|&action| given.skip >> action as u32 & 1 != 0).collect(),
            pinned: given.pinned != 0,
            clear: given.clear != 0,
        })?;
        if !told {
            callers.end();
        }
        Ok(())
    })
}

/// Writes what the caches hold, and what was recorded, to a file that torch.cuda's memory viewer and pickle.load open: all of
/// it, or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_dump_memory_snapshot(path: *const c_char) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let path = unsafe { text(path, "path")? };
        Ok(Runtime::global().dump_snapshot(path)?)
    })
}

/// The same as JSON: {"segments": [..], "device_traces": [[..], ..]}, with the keys of torch.cuda.memory._snapshot().
///
/// @param write receives it in pieces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_memory_snapshot_json(
    write: anyaccel_write_text,
    data: *mut c_void,
) -> anyaccel_result {
    call(|| {
        let snapshot = Runtime::global().memory_snapshot()?;
        let text = json::snapshot(&snapshot);
        // SAFETY: C4 is this function's condition.
        unsafe { write_text(write, data, &text) }
    })
}
