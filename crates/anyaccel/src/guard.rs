//! Scopes: what is current, restored on every exit. The state lies in the guard, so scopes nest and cross freely.

use crate::fork;
use crate::local::{self, Before};
use crate::runtime::Runtime;
use crate::stream::Stream;
use std::marker::PhantomData;

/// Restores the current device when dropped. From [`Runtime::device_index`].
#[derive(Debug)]
#[must_use = "the device is current only while the guard lives"]
pub struct DeviceIndexGuard {
    before: Option<(Runtime, u32)>,
    /// Current state is a thread's own.
    _not_send: PhantomData<*const ()>,
}

impl DeviceIndexGuard {
    pub(crate) fn idle() -> Self {
        Self { before: None, _not_send: PhantomData }
    }

    #[inline]
    pub(crate) fn enter(runtime: &Runtime, ordinal: u32) -> Self {
        let before = local::exchange_device(runtime.core.key(), || runtime.weak(), ordinal);
        Self { before: Some((runtime.clone(), before)), _not_send: PhantomData }
    }
}

impl Drop for DeviceIndexGuard {
    #[inline]
    fn drop(&mut self) {
        if let Some((runtime, before)) = &self.before {
            local::exchange_device(runtime.core.key(), || runtime.weak(), *before);
        }
    }
}

/// Makes a stream and its device current until it is dropped, then restores the device before and the streams of both
/// devices. From [`Stream::enter`].
#[must_use = "the stream is current only while the guard lives"]
pub struct StreamGuard {
    stream: Stream,
    before: Before,
    epoch: u64,
    _not_send: PhantomData<*const ()>,
}

impl std::fmt::Debug for StreamGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamGuard").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl StreamGuard {
    #[inline]
    pub(crate) fn enter(stream: &Stream) -> Self {
        let runtime = &stream.runtime;
        let before = local::enter_stream(runtime.core.key(), || runtime.weak(), stream.lane.clone());
        Self { stream: stream.clone(), before, epoch: fork::epoch(), _not_send: PhantomData }
    }

    /// The stream that is current while the guard lives.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

impl Drop for StreamGuard {
    #[inline]
    fn drop(&mut self) {
        if self.epoch != fork::epoch() {
            return;
        }
        let runtime = &self.stream.runtime;
        let before = std::mem::take(&mut self.before);
        local::leave_stream(runtime.core.key(), || runtime.weak(), self.stream.lane.ordinal, before);
    }
}
