//! Streams: queues of tasks, in order.

use crate::call::{Result, lock};
use crate::config::Card;
use crate::context::Context;
use crate::event::{Event, Point, Recorded};
use crate::graph::{Capture, Joined};
use crate::schedule;
use anyaccel_cuda::sys::{CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUhostFn, CUstream};
use anyaccel_fake::kernels::Launch;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What a stream does, or a node of a graph.
#[derive(Clone)]
pub(crate) enum Work {
    Copy { dst: u64, src: u64, len: usize },
    Set { dst: u64, value: u32, size: u32, count: usize },
    Launch(Arc<Launch>),
    Host { function: CUhostFn, data: usize },
    WaitValue { address: u64, value: u32, flags: u32 },
}

/// One entry of a queue.
pub(crate) enum Task {
    Work(Work),
    Record(Arc<Point>),
    Await(Arc<Point>),
}

pub(crate) struct State {
    pub(crate) queue: VecDeque<Task>,
    pub(crate) scheduled: bool,
    pub(crate) capture: Option<Joined>,
}

pub(crate) struct Stream {
    pub(crate) ordinal: usize,
    pub(crate) card: &'static Card,
    pub(crate) state: Mutex<State>,
}

static STREAMS: Mutex<BTreeMap<usize, Arc<Stream>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicUsize = AtomicUsize::new(0x0057_0000_0000);

pub(crate) fn create(context: Context) -> CUstream {
    let handle = NEXT.fetch_add(16, Ordering::Relaxed);
    let state = State { queue: VecDeque::new(), scheduled: false, capture: None };
    let stream = Stream { ordinal: context.ordinal, card: context.card, state: Mutex::new(state) };
    lock(&STREAMS).insert(handle, Arc::new(stream));
    CUstream(handle)
}

pub(crate) fn get(stream: CUstream) -> Result<Arc<Stream>> {
    lock(&STREAMS).get(&stream.0).cloned().ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// A stream of the current context.
pub(crate) fn here(context: Context, stream: CUstream) -> Result<Arc<Stream>> {
    get(stream).and_then(
        |stream| {
            if stream.ordinal == context.ordinal { Ok(stream) } else { Err(CUDA_ERROR_INVALID_HANDLE) }
        },
    )
}

/// Work that is under way goes on; the queue lives until it is empty.
pub(crate) fn destroy(stream: CUstream) -> Result {
    lock(&STREAMS).remove(&stream.0).map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// Whether the streams that fit have nothing to do.
pub(crate) fn all_idle(fits: impl Fn(&Stream) -> bool) -> bool {
    let streams: Vec<Arc<Stream>> = lock(&STREAMS).values().filter(|stream| fits(stream)).cloned().collect();
    streams.iter().all(|stream| !lock(&stream.state).scheduled)
}

/// Waits for everything that was enqueued on a device before the call, whatever is enqueued meanwhile.
pub(crate) fn drain(ordinal: usize) {
    let streams: Vec<Arc<Stream>> =
        lock(&STREAMS).values().filter(|stream| stream.ordinal == ordinal).cloned().collect();
    let mut points = Vec::new();
    for stream in streams {
        if lock(&stream.state).scheduled {
            let point = Arc::new(Point::default());
            stream.push([Task::Record(Arc::clone(&point))]);
            points.push(point);
        }
    }
    schedule::wait_until(|| points.iter().all(|point| point.ended()));
}

/// Streams that take part in a capture.
pub(crate) fn captured_by(capture: &Arc<Capture>) -> Vec<Arc<Stream>> {
    let streams: Vec<Arc<Stream>> = lock(&STREAMS).values().cloned().collect();
    let joined = |stream: &Arc<Stream>| {
        lock(&stream.state).capture.as_ref().is_some_and(|joined| Arc::ptr_eq(&joined.capture, capture))
    };
    streams.into_iter().filter(joined).collect()
}

impl Stream {
    /// The code of its lost card, or 0.
    pub(crate) fn lost(&self) -> u32 {
        self.card.lost.load(Ordering::Acquire)
    }

    fn push(self: &Arc<Self>, tasks: impl IntoIterator<Item = Task>) {
        let mut state = lock(&self.state);
        state.queue.extend(tasks);
        let idle = !state.scheduled && !state.queue.is_empty();
        state.scheduled |= idle;
        drop(state);
        if idle {
            schedule::ready(Arc::clone(self));
        }
    }

    /// Appends to the queue, or to the capture.
    pub(crate) fn enqueue(self: &Arc<Self>, work: Work) -> Result {
        let mut state = lock(&self.state);
        match &mut state.capture {
            Some(joined) => joined.add(work),
            None => {
                drop(state);
                self.push([Task::Work(work)]);
                Ok(())
            }
        }
    }

    /// Runs a list in order, as one, behind a point, and says where it ends.
    pub(crate) fn enqueue_all(self: &Arc<Self>, work: Vec<Work>, point: &mut Arc<Point>) -> Result {
        if lock(&self.state).capture.is_some() {
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let before = std::mem::take(point);
        let wait = (!before.ended()).then_some(Task::Await(before));
        let end = Task::Record(Arc::clone(point));
        self.push(wait.into_iter().chain(work.into_iter().map(Task::Work)).chain([end]));
        Ok(())
    }

    pub(crate) fn record(self: &Arc<Self>, event: &Event) -> Result {
        let state = lock(&self.state);
        if let Some(joined) = &state.capture {
            joined.capture.check()?;
            *lock(&event.last) = Recorded::Captured(Arc::clone(&joined.capture), joined.last.clone());
            return Ok(());
        }
        drop(state);
        let point = Arc::new(Point::default());
        *lock(&event.last) = Recorded::Point(Arc::clone(&point));
        self.push([Task::Record(point)]);
        Ok(())
    }

    pub(crate) fn wait(self: &Arc<Self>, event: &Event) -> Result {
        let last = lock(&event.last).clone();
        let mut state = lock(&self.state);
        match (last, &mut state.capture) {
            (Recorded::Nothing, _) => Ok(()),
            (Recorded::Point(point), None) => {
                drop(state);
                if !point.ended() {
                    self.push([Task::Await(point)]);
                }
                Ok(())
            }
            // A capture must not depend on work outside of it.
            (Recorded::Point(_), Some(joined)) => Err(joined.capture.break_with(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)),
            (Recorded::Captured(capture, nodes), Some(joined)) if Arc::ptr_eq(&capture, &joined.capture) => {
                joined.last.extend(nodes);
                Ok(())
            }
            (Recorded::Captured(capture, _), Some(_)) => Err(capture.break_with(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)),
            (Recorded::Captured(capture, nodes), None) => {
                capture.check()?;
                state.capture = Some(Joined { capture, last: nodes });
                Ok(())
            }
        }
    }
}
