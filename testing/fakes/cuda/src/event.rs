//! Events, and the points in streams that they stand for.

use crate::call::{Result, lock};
use crate::graph::Capture;
use anyaccel_cuda::sys::{CUDA_ERROR_INVALID_HANDLE, CUevent};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

/// A point in a stream: one recording of an event.
#[derive(Default)]
pub(crate) struct Point {
    /// Nanoseconds since the fake began, plus 1; 0: it has not come.
    time: AtomicU64,
    lost: AtomicU32,
}

/// Nanoseconds of this process.
fn now() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

impl Point {
    /// One that has come.
    pub(crate) fn over() -> Self {
        let point = Self::default();
        point.end(0);
        point
    }

    pub(crate) fn end(&self, lost: u32) {
        self.lost.store(lost, Ordering::Relaxed);
        self.time.store(now(), Ordering::Release);
    }

    pub(crate) fn ended(&self) -> bool {
        self.time.load(Ordering::Acquire) != 0
    }

    /// When it came.
    pub(crate) fn time(&self) -> Option<u64> {
        Some(self.time.load(Ordering::Acquire)).filter(|&time| time != 0)
    }

    /// The code of the card that was lost before it came.
    pub(crate) fn lost(&self) -> u32 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// What an event was recorded as, last.
#[derive(Clone, Default)]
pub(crate) enum Recorded {
    /// Never.
    #[default]
    Nothing,
    /// In a stream.
    Point(Arc<Point>),
    /// In a capture, behind these nodes.
    Captured(Arc<Capture>, Vec<usize>),
}

pub(crate) struct Event {
    pub(crate) ordinal: usize,
    pub(crate) flags: u32,
    pub(crate) last: Mutex<Recorded>,
}

static EVENTS: Mutex<BTreeMap<usize, Arc<Event>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicUsize = AtomicUsize::new(0x00E0_0000_0000);

pub(crate) fn create(ordinal: usize, flags: u32) -> CUevent {
    let handle = NEXT.fetch_add(16, Ordering::Relaxed);
    lock(&EVENTS).insert(handle, Arc::new(Event { ordinal, flags, last: Mutex::default() }));
    CUevent(handle)
}

pub(crate) fn get(event: CUevent) -> Result<Arc<Event>> {
    lock(&EVENTS).get(&event.0).cloned().ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// Names an event once more, as another process would.
pub(crate) fn share(event: &Arc<Event>) -> CUevent {
    let handle = NEXT.fetch_add(16, Ordering::Relaxed);
    lock(&EVENTS).insert(handle, Arc::clone(event));
    CUevent(handle)
}

pub(crate) fn destroy(event: CUevent) -> Result {
    lock(&EVENTS).remove(&event.0).map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
}
