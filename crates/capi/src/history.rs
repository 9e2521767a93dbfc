//! Memory histories and snapshots.

use crate::json;
use crate::pointer::{get_struct, text, write_text};
use crate::result::{Failure, call};
use crate::types::*;
use face::{HistoryOptions, HistoryStacks, Recorded, Runtime};
use std::ffi::{c_char, c_void};

/// Records what the caches of all devices do from now on, or stops and forgets it. May be called before the start.
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
        Ok(Runtime::global().record_memory_history(HistoryOptions {
            enabled,
            max_entries,
            stacks: if given.stacks == 0 { HistoryStacks::None } else { HistoryStacks::Rust },
            pinned: given.pinned != 0,
            clear: given.clear != 0,
            ..defaults
        })?)
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
