//! From the face's errors to result codes, and the message of the last one, per thread.

use crate::types::*;
use face::{Error, ErrorClass};
use std::cell::RefCell;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call of this API did nothing.
#[derive(Debug)]
pub(crate) struct Failure {
    code: anyaccel_result,
    text: String,
}

pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self { code: ANYACCEL_ERROR_ARGUMENT, text: text.into() }
    }

    pub(crate) fn handle(text: impl Into<String>) -> Self {
        Self { code: ANYACCEL_ERROR_HANDLE, text: text.into() }
    }

    pub(crate) fn new(code: anyaccel_result, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Self {
        Self { code: code(&error), text: error.to_string() }
    }
}

fn code(error: &Error) -> anyaccel_result {
    match error {
        Error::NoAccelerator => ANYACCEL_ERROR_NO_DEVICE,
        Error::UnknownBackend { .. } => ANYACCEL_ERROR_UNKNOWN_BACKEND,
        Error::Plugin(_) | Error::BadVariable { .. } | Error::Settings(_) | Error::Registration { .. } => {
            ANYACCEL_ERROR_SETTINGS
        }
        Error::ForkedChild { .. } => ANYACCEL_ERROR_FORKED,
        Error::StaleHandle { .. } => ANYACCEL_ERROR_STALE,
        Error::Exiting { .. } => ANYACCEL_ERROR_EXITING,
        Error::UnknownStream { .. } | Error::UnknownAddress { .. } => ANYACCEL_ERROR_HANDLE,
        Error::ForeignDevice { .. } | Error::EventDevice { .. } | Error::EventDevices { .. } => {
            ANYACCEL_ERROR_WRONG_DEVICE
        }
        Error::OutOfMemory { .. } => ANYACCEL_ERROR_OUT_OF_MEMORY,
        Error::HostOutOfMemory { .. } => ANYACCEL_ERROR_OUT_OF_HOST_MEMORY,
        Error::InsideHostFunction { .. } => ANYACCEL_ERROR_IN_HOST_FUNCTION,
        Error::Graph(_) => ANYACCEL_ERROR_CAPTURE,
        Error::HostPanic { .. } => ANYACCEL_ERROR_HOST_FUNCTION,
        Error::Deferred { source, .. } => code(source),
        Error::StartFailed { .. } => ANYACCEL_ERROR_START,
        Error::DeviceLost { .. } => ANYACCEL_ERROR_DEVICE_LOST,
        Error::Driver { .. } => ANYACCEL_ERROR_DRIVER,
        Error::IndexOutOfRange { .. } | Error::Generator(_) => ANYACCEL_ERROR_ARGUMENT,
        other => match other.class() {
            ErrorClass::Value | ErrorClass::Type => ANYACCEL_ERROR_ARGUMENT,
            ErrorClass::NotImplemented => ANYACCEL_ERROR_UNSUPPORTED,
            ErrorClass::OutOfMemory => ANYACCEL_ERROR_OUT_OF_MEMORY,
            ErrorClass::Accelerator => ANYACCEL_ERROR_DRIVER,
            ErrorClass::Runtime => ANYACCEL_ERROR_STATE,
        },
    }
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

#[cold]
fn fail(failure: Failure) -> anyaccel_result {
    // A thread that is ending has no message any more, but still its code.
    let _kept = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = failure.text;
        }
    });
    failure.code
}

/// Runs the body of a function of this API: nothing unwinds out of it, and a failure leaves its message.
#[inline]
pub(crate) fn call(body: impl FnOnce() -> Result) -> anyaccel_result {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => ANYACCEL_OK,
        Ok(Err(failure)) => fail(failure),
        Err(payload) => {
            let said = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
            fail(Failure::new(
                ANYACCEL_ERROR_INTERNAL,
                format!("a defect of libanyaccel, please report it: {}", said.unwrap_or("(no message)")),
            ))
        }
    }
}

/// The message of this thread's last call that failed. Writes as much of it as fits, terminated, and returns its length
/// without the terminator: call it with NULL and 0 to learn that. Empty if no call failed yet. Calls that succeed leave it.
///
/// @param buffer len bytes, or NULL for none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_last_error(buffer: *mut c_char, len: usize) -> usize {
    let copied = catch_unwind(|| {
        LAST.try_with(|last| {
            let last = last.try_borrow().map(|text| text.clone()).unwrap_or_default();
            // SAFETY: C1: the buffer has that length.
            unsafe { crate::pointer::put_text(buffer, len, &last) };
            last.len()
        })
    });
    copied.map_or(0, |copied| copied.unwrap_or(0))
}

/// The name of a result code, "ANYACCEL_ERROR_HANDLE" say; "unknown" for any other number. Never NULL; static.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_result_name(result: anyaccel_result) -> *const c_char {
    macro_rules! names {
        ($($code:ident),* $(,)?) => {
            match result {
                $($code => concat!(stringify!($code), "\0").as_ptr().cast(),)*
                _ => c"unknown".as_ptr(),
            }
        };
    }
    names!(
        ANYACCEL_OK,
        ANYACCEL_ERROR_ARGUMENT,
        ANYACCEL_ERROR_HANDLE,
        ANYACCEL_ERROR_STATE,
        ANYACCEL_ERROR_OUT_OF_MEMORY,
        ANYACCEL_ERROR_OUT_OF_HOST_MEMORY,
        ANYACCEL_ERROR_UNSUPPORTED,
        ANYACCEL_ERROR_NO_DEVICE,
        ANYACCEL_ERROR_UNKNOWN_BACKEND,
        ANYACCEL_ERROR_SETTINGS,
        ANYACCEL_ERROR_START,
        ANYACCEL_ERROR_DRIVER,
        ANYACCEL_ERROR_DEVICE_LOST,
        ANYACCEL_ERROR_FORKED,
        ANYACCEL_ERROR_STALE,
        ANYACCEL_ERROR_EXITING,
        ANYACCEL_ERROR_IN_HOST_FUNCTION,
        ANYACCEL_ERROR_CAPTURE,
        ANYACCEL_ERROR_HOST_FUNCTION,
        ANYACCEL_ERROR_WRONG_DEVICE,
        ANYACCEL_ERROR_INTERNAL,
    )
}
