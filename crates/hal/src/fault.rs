//! What a backend reports when a call fails. Facts only; the sentences are made above.

use std::fmt;

/// Why a call failed: the few kinds that a caller acts upon differently.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FaultKind {
    /// Not enough memory now; the same call can succeed later (H21).
    OutOfMemory = 1,
    /// This device can't do that, ever (H21).
    Unsupported = 2,
    /// The device is gone for good (H20).
    DeviceLost = 3,
    /// The answer is not there yet.
    NotReady = 4,
    /// The caller broke the contract, or asked for what can't be.
    Invalid = 5,
    /// Anything else that the native driver reported.
    Driver = 6,
}

impl FaultKind {
    /// The kind in a few words, for messages.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::OutOfMemory => "out of memory",
            Self::Unsupported => "not supported",
            Self::DeviceLost => "device lost",
            Self::NotReady => "not ready",
            Self::Invalid => "invalid use",
            Self::Driver => "driver error",
        }
    }
}

/// A failed call: which one, and what the native driver said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The kind that decides what to do.
    pub kind: FaultKind,
    /// The native function that failed (`cuMemAlloc_v2`), or the method where there is none.
    pub api: &'static str,
    /// The native error code, 0 where there is none.
    pub code: i64,
    /// A fact that the code does not hold: a build log, a symbol's name. Never a sentence for users.
    pub note: Option<Box<str>>,
}

impl Fault {
    /// A fault without a native code.
    pub const fn new(kind: FaultKind, api: &'static str) -> Self {
        Self { kind, api, code: 0, note: None }
    }

    /// The same with the native code.
    #[must_use]
    pub const fn code(mut self, code: i64) -> Self {
        self.code = code;
        self
    }

    /// The same with a note.
    #[must_use]
    pub fn note(mut self, note: impl Into<Box<str>>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// [`FaultKind::Invalid`] in `api`.
    pub fn invalid(api: &'static str, note: impl Into<Box<str>>) -> Self {
        Self::new(FaultKind::Invalid, api).note(note)
    }

    /// [`FaultKind::Unsupported`] in `api`.
    pub const fn unsupported(api: &'static str) -> Self {
        Self::new(FaultKind::Unsupported, api)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.api, self.kind.describe())?;
        if self.code != 0 {
            write!(f, " (code {})", self.code)?;
        }
        match &self.note {
            Some(note) => write!(f, ": {note}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}
