//! A stream: what is enqueued, and how far it has come.

use crate::clock::MarkTimes;
use crate::memory::Span;
use crate::order::{AtMarks, Knowledge};
use anyaccel_hal::{Fault, Gate, HostFn, HostKernel, HostPtr, Launch, Pattern, Stamp, StreamId, Written};
use std::collections::VecDeque;
use std::sync::Arc;

/// One end of an enqueued copy.
pub(crate) enum Side {
    /// Memory with a handle. Of pinned memory that was named by its address too.
    Span(Span),
    /// Any host memory.
    Host(HostPtr),
}

impl Side {
    pub(crate) fn span(&self) -> Option<&Span> {
        match self {
            Self::Span(span) => Some(span),
            Self::Host(_) => None,
        }
    }
}

/// Bytes at an address that any value may have.
pub(crate) struct Aligned {
    words: Box<[u128]>,
    len: usize,
}

impl Aligned {
    pub(crate) fn new(len: usize, byte: u8) -> Self {
        Self { words: vec![u128::from_ne_bytes([byte; 16]); len.div_ceil(16)].into(), len }
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut aligned = Self::new(bytes.len(), 0);
        for (word, chunk) in aligned.words.iter_mut().zip(bytes.chunks(16)) {
            let mut kept = [0; 16];
            kept[..chunk.len()].copy_from_slice(chunk);
            *word = u128::from_ne_bytes(kept);
        }
        aligned
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: `words` holds at least `len` bytes, all of them initialised.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }
}

/// An argument of an enqueued launch.
pub(crate) enum LaunchArg {
    Span(Span),
    Bytes(Aligned),
    Local(usize),
}

impl LaunchArg {
    fn span(&self) -> Option<&Span> {
        match self {
            Self::Span(span) => Some(span),
            Self::Bytes(_) | Self::Local(_) => None,
        }
    }
}

/// What a launch runs.
#[derive(Clone)]
pub(crate) enum Code {
    Builtin(u32),
    Host(Arc<HostKernel>),
}

/// An operation.
pub(crate) enum Work {
    Copy {
        dst: Side,
        src: Side,
        len: u64,
    },
    Fill {
        dst: Span,
        pattern: Pattern,
    },
    Write {
        dst: Span,
        bytes: Written,
    },
    /// Until it is called and dropped.
    HostCall(Option<HostFn>),
    Launch {
        code: Code,
        launch: Launch,
        args: Vec<LaunchArg>,
    },
    Wait {
        of: StreamId,
        mark: u64,
    },
    Gate(Gate),
    Mark(u64),
    Stamp(Stamp),
}

impl Work {
    /// In a word, for traces.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Copy { .. } => "copy",
            Self::Fill { .. } => "fill",
            Self::Write { .. } => "write",
            Self::HostCall(_) => "host_call",
            Self::Launch { .. } => "launch",
            Self::Wait { .. } => "wait",
            Self::Gate(_) => "gate",
            Self::Mark(_) => "mark",
            Self::Stamp(_) => "stamp",
        }
    }

    /// Whether it runs code of a user's, which is never done under the lock.
    pub(crate) const fn is_user_code(&self) -> bool {
        matches!(self, Self::HostCall(_) | Self::Launch { code: Code::Host(_), .. })
    }

    /// Whether it does something, and not only order or time.
    pub(crate) const fn is_effect(&self) -> bool {
        !matches!(self, Self::Wait { .. } | Self::Gate(_) | Self::Mark(_) | Self::Stamp(_))
    }

    /// The parts of device and pinned memory that it names by their handles.
    pub(crate) fn spans(&self) -> impl Iterator<Item = &Span> {
        let (sides, args): ([Option<&Span>; 2], &[LaunchArg]) = match self {
            Self::Copy { dst, src, .. } => ([dst.span(), src.span()], &[]),
            Self::Fill { dst, .. } | Self::Write { dst, .. } => ([Some(dst), None], &[]),
            Self::Launch { args, .. } => ([None, None], args),
            Self::HostCall(_) | Self::Wait { .. } | Self::Gate(_) | Self::Mark(_) | Self::Stamp(_) => {
                ([None, None], &[])
            }
        };
        sides.into_iter().flatten().chain(args.iter().filter_map(LaunchArg::span))
    }
}

/// An operation in its queue.
pub(crate) struct Item {
    pub(crate) work: Work,
    /// The host's time when it was enqueued.
    pub(crate) since: u64,
    /// What the host knew when it was enqueued.
    pub(crate) knows: Arc<Knowledge>,
}

/// A stream.
pub(crate) struct Stream {
    pub(crate) ordinal: u32,
    pub(crate) queue: VecDeque<Item>,
    /// Operations ever enqueued.
    pub(crate) enqueued: u64,
    /// Operations that have ended.
    pub(crate) done: u64,
    /// The first operation's user code runs right now, without the lock.
    pub(crate) running: bool,
    /// When its last operation ended.
    pub(crate) time: u64,
    /// The last mark given out.
    pub(crate) issued: u64,
    /// The highest mark that has ended.
    pub(crate) ended: u64,
    pub(crate) times: MarkTimes,
    /// What its operations so far are ordered behind.
    pub(crate) knows: Knowledge,
    pub(crate) at_marks: AtMarks,
    /// What its work reported, until a wait tells.
    pub(crate) fault: Option<Fault>,
    /// How its next operation is to fail.
    pub(crate) fail_next: Option<Fault>,
}

impl Stream {
    pub(crate) fn new(ordinal: u32) -> Self {
        Self {
            ordinal,
            queue: VecDeque::new(),
            enqueued: 0,
            done: 0,
            running: false,
            time: 0,
            issued: 0,
            ended: 0,
            times: MarkTimes::default(),
            knows: Knowledge::default(),
            at_marks: AtMarks::default(),
            fault: None,
            fail_next: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_bytes_are_the_bytes() {
        let bytes: Vec<u8> = (0..37).collect();
        let mut aligned = Aligned::of(&bytes);
        assert_eq!(aligned.len(), 37);
        let ptr = aligned.as_mut_ptr();
        assert_eq!(ptr as usize % 16, 0);
        // SAFETY: 37 bytes are held there, nobody else uses them.
        assert_eq!(unsafe { std::slice::from_raw_parts(ptr, 37) }, bytes);
    }
}
