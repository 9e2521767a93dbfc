//! Faults across the ABI: a kind as the result, the rest in a struct of the caller. Nothing unwinds in either direction.

use crate::raw;
use crate::text::{self, Buffer};
use anyaccel_hal::{Fault, FaultKind};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Room for a note of most calls, in bytes.
const NOTE: usize = 1024;
/// Names of functions are not longer.
const API: usize = 256;

/// Makes a call into a plugin. `api` is its name, for faults that name none.
#[inline]
pub(crate) fn call(api: &'static str, function: impl FnOnce(*mut raw::Fault) -> u32) -> Result<(), Fault> {
    match outcome::<NOTE>(api, function)? {
        raw::OK => Ok(()),
        other => Err(unknown(api, other)),
    }
}

/// The same with room for a long note.
pub(crate) fn call_at_length(api: &'static str, function: impl FnOnce(*mut raw::Fault) -> u32) -> Result<(), Fault> {
    match outcome::<{ 64 * 1024 }>(api, function)? {
        raw::OK => Ok(()),
        other => Err(unknown(api, other)),
    }
}

/// The same for a call that has two good ends: whether it was [`raw::OK`], else [`raw::TIMED_OUT`].
#[inline]
pub(crate) fn call_or_time_out(
    api: &'static str,
    function: impl FnOnce(*mut raw::Fault) -> u32,
) -> Result<bool, Fault> {
    match outcome::<NOTE>(api, function)? {
        raw::OK => Ok(true),
        raw::TIMED_OUT => Ok(false),
        other => Err(unknown(api, other)),
    }
}

#[inline]
fn outcome<const N: usize>(api: &'static str, function: impl FnOnce(*mut raw::Fault) -> u32) -> Result<u32, Fault> {
    let mut note = Buffer::<N>::new();
    let mut fault = raw::Fault {
        struct_size: size_of::<raw::Fault>() as u32,
        reserved: 0,
        code: 0,
        api: raw::ConstText::NONE,
        note: note.text(),
    };
    let result = function(&raw mut fault);
    match kind(result) {
        None => Ok(result),
        Some(kind) => Err(told(api, kind, &fault, &note)),
    }
}

fn kind(result: u32) -> Option<FaultKind> {
    match result {
        raw::OUT_OF_MEMORY => Some(FaultKind::OutOfMemory),
        raw::UNSUPPORTED => Some(FaultKind::Unsupported),
        raw::DEVICE_LOST => Some(FaultKind::DeviceLost),
        raw::NOT_READY => Some(FaultKind::NotReady),
        raw::INVALID => Some(FaultKind::Invalid),
        raw::DRIVER => Some(FaultKind::Driver),
        _ => None,
    }
}

#[cold]
fn unknown(api: &'static str, result: u32) -> Fault {
    Fault::new(FaultKind::Driver, api).code(result.into()).note("the plugin returned a result that the ABI has not")
}

#[cold]
fn told<const N: usize>(api: &'static str, kind: FaultKind, raw: &raw::Fault, note: &Buffer<N>) -> Fault {
    let named = if raw.api.length <= API {
        // SAFETY: the header asks for static text, and the library is never unloaded.
        std::str::from_utf8(unsafe { text::borrowed(raw.api) }).unwrap_or_default()
    } else {
        ""
    };
    let fault = Fault::new(kind, if named.is_empty() { api } else { named }).code(raw.code);
    match raw.note.length {
        0 => fault,
        // SAFETY: the header asks for as much text as fits.
        length => fault.note(unsafe { note.read(length) }),
    }
}

/// Answers a call of the host: what `body` returned, or its panic as a fault.
///
/// # Safety
/// `fault` is what the host passed.
#[inline]
pub(crate) unsafe fn answer(fault: *mut raw::Fault, body: impl FnOnce() -> Result<(), Fault>) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => raw::OK,
        // SAFETY: as this function.
        Ok(Err(error)) => unsafe { tell(fault, error) },
        // SAFETY: as this function.
        Err(panic) => unsafe { tell(fault, of_panic(panic)) },
    }
}

/// The same for a call with two good ends; true is [`raw::OK`].
///
/// # Safety
/// As there.
pub(crate) unsafe fn answer_or_time_out(fault: *mut raw::Fault, body: impl FnOnce() -> Result<bool, Fault>) -> u32 {
    let mut in_time = true;
    // SAFETY: as this function.
    let result = unsafe {
        answer(fault, || {
            in_time = body()?;
            Ok(())
        })
    };
    if result == raw::OK && !in_time { raw::TIMED_OUT } else { result }
}

/// Makes a call that can't fail. A panic in it is contained and lost, and `instead` returned.
#[inline]
pub(crate) fn contained<T>(instead: T, body: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(panic) => {
            // Dropping it could panic again.
            std::mem::forget(panic);
            instead
        }
    }
}

#[cold]
fn of_panic(panic: Box<dyn Any + Send>) -> Fault {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let note = format!("a panic: {}", text.unwrap_or("of an unknown type"));
    // Dropping it could panic again.
    std::mem::forget(panic);
    Fault::new(FaultKind::Driver, "panic").note(note)
}

#[cold]
unsafe fn tell(fault: *mut raw::Fault, error: Fault) -> u32 {
    // SAFETY: what the host passed is valid for the call, and this version's at least.
    let raw = unsafe { &mut *fault };
    raw.code = error.code;
    raw.api = raw::ConstText::of(error.api);
    if let Some(note) = &error.note {
        // SAFETY: the note's buffer is the host's own.
        unsafe { text::put(&mut raw.note, note) };
    }
    match error.kind {
        FaultKind::OutOfMemory => raw::OUT_OF_MEMORY,
        FaultKind::Unsupported => raw::UNSUPPORTED,
        FaultKind::DeviceLost => raw::DEVICE_LOST,
        FaultKind::NotReady => raw::NOT_READY,
        FaultKind::Invalid => raw::INVALID,
        FaultKind::Driver => raw::DRIVER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There and back.
    fn trip(error: Fault) -> Fault {
        // SAFETY: the fault is the one that `call` passes.
        call("the_call", |fault| unsafe { answer(fault, || Err(error)) }).expect_err("a fault")
    }

    #[test]
    fn faults_survive_the_trip() {
        for kind in [
            FaultKind::OutOfMemory,
            FaultKind::Unsupported,
            FaultKind::DeviceLost,
            FaultKind::NotReady,
            FaultKind::Invalid,
            FaultKind::Driver,
        ] {
            let plain = Fault::new(kind, "vendorAlloc").code(-7);
            assert_eq!(trip(plain.clone()), plain);
            let noted = plain.note("line 3: no such thing: ä");
            assert_eq!(trip(noted.clone()), noted);
        }
    }

    #[test]
    fn a_long_note_is_cut_and_says_so() {
        let long = "ä".repeat(NOTE);
        let seen = trip(Fault::invalid("load", long.clone()));
        let note = seen.note.expect("a note");
        assert!(note.ends_with('…') && note.len() > NOTE - 8 && long.starts_with(note.trim_end_matches('…')), "{note}");
        // SAFETY: as in `trip`.
        let whole =
            call_at_length("load", |fault| unsafe { answer(fault, || Err(Fault::invalid("load", long.clone()))) });
        assert_eq!(whole.expect_err("a fault").note.as_deref(), Some(long.as_str()));
    }

    #[test]
    fn a_panic_is_a_fault() {
        // SAFETY: as in `trip`.
        let seen = call("copy", |fault| unsafe { answer(fault, || panic!("out of {}", "luck")) });
        assert_eq!(seen, Err(Fault::new(FaultKind::Driver, "panic").note("a panic: out of luck")));
        assert_eq!(contained(7, || panic!("lost")), 7);
    }

    #[test]
    fn a_result_that_the_abi_has_not_is_a_fault_of_the_driver() {
        let seen = call("mark", |_| 77).expect_err("a fault");
        assert_eq!((seen.kind, seen.api, seen.code), (FaultKind::Driver, "mark", 77));
        assert!(call("mark", |_| raw::TIMED_OUT).is_err());
        assert_eq!(call_or_time_out("wait_host", |_| raw::TIMED_OUT), Ok(false));
    }
}
