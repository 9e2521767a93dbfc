//! Who runs streams: a few threads, as many engines of a card, and one thread for host functions.
//!
//! # Protocol
//!
//! A stream has its queue under its own lock, and a flag, *scheduled*: it is in exactly one of the lists below, or a thread
//! runs it, or its host function is under way. Who enqueues on a stream that is not scheduled lists it as ready.
//!
//! - *ready*: a thread will run it.
//! - *blocked*: it waits for a point that has not come. Whoever ends a point makes all blocked streams ready.
//! - *polled*: it waits for a value in memory, which nobody announces. Threads look again from time to time.
//!
//! A stream becomes blocked under the list's lock, after one more look. The lock of a stream is never held with the list's.

use crate::call::{Result, lock};
use crate::config::Card;
use crate::event::Point;
use crate::kernel;
use crate::memory;
use crate::stream::{self, Stream, Task, Work};
use anyaccel_cuda::sys::{CU_STREAM_WAIT_VALUE_EQ, CU_STREAM_WAIT_VALUE_GEQ};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Threads that run streams.
const WORKERS: usize = 3;
/// Operations of one stream before others have their turn.
const TURN: usize = 64;

struct Lists {
    ready: VecDeque<Arc<Stream>>,
    blocked: Vec<Arc<Stream>>,
    polled: Vec<Arc<Stream>>,
    /// How long to sleep before the polled ones are looked at.
    pause: Duration,
    threads: usize,
}

const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(1);

static LISTS: Mutex<Lists> =
    Mutex::new(Lists { ready: VecDeque::new(), blocked: Vec::new(), polled: Vec::new(), pause: SHORTEST, threads: 0 });
static WORK: Condvar = Condvar::new();

/// Host threads that wait for something to end.
static WAITING: AtomicUsize = AtomicUsize::new(0);
static ENDED_LOCK: Mutex<()> = Mutex::new(());
static ENDED: Condvar = Condvar::new();

/// Waits until that is so.
pub(crate) fn wait_until(mut so: impl FnMut() -> bool) {
    if so() {
        return;
    }
    WAITING.fetch_add(1, Ordering::SeqCst);
    let mut guard = lock(&ENDED_LOCK);
    while !so() {
        // With a limit, since a card that is lost is not announced to everybody.
        guard = ENDED.wait_timeout(guard, Duration::from_millis(2)).unwrap_or_else(PoisonError::into_inner).0;
    }
    drop(guard);
    WAITING.fetch_sub(1, Ordering::SeqCst);
}

fn announce() {
    if WAITING.load(Ordering::SeqCst) > 0 {
        drop(lock(&ENDED_LOCK));
        ENDED.notify_all();
    }
}

/// Lists a stream that became scheduled.
pub(crate) fn ready(stream: Arc<Stream>) {
    let mut lists = lock(&LISTS);
    lists.ready.push_back(stream);
    if lists.threads == 0 {
        lists.threads = WORKERS;
        for _ in 0..WORKERS {
            thread::Builder::new().name("fake-cuda".into()).spawn(work).expect("a thread for the fake");
        }
    }
    drop(lists);
    WORK.notify_one();
}

/// A point has come.
pub(crate) fn end(point: &Point, lost: u32) {
    point.end(lost);
    wake_blocked();
    announce();
}

fn wake_blocked() {
    let mut lists = lock(&LISTS);
    let blocked = std::mem::take(&mut lists.blocked);
    if !blocked.is_empty() {
        lists.ready.extend(blocked);
        drop(lists);
        WORK.notify_all();
    }
}

/// Loses a card.
pub(crate) fn lose(card: &Card, code: u32) {
    let first = card.lost.compare_exchange(0, code, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    if first {
        let mut lists = lock(&LISTS);
        let polled = std::mem::take(&mut lists.polled);
        lists.ready.extend(polled);
        drop(lists);
        WORK.notify_all();
        wake_blocked();
        announce();
    }
}

/// Makes a card work again, once what it had to do is gone.
pub(crate) fn heal(card: &'static Card) {
    if card.lost.load(Ordering::SeqCst) != 0 {
        wait_until(|| stream::all_idle(|stream| std::ptr::eq(stream.card, card)));
        card.lost.store(0, Ordering::SeqCst);
    }
}

fn work() {
    loop {
        let mut lists = lock(&LISTS);
        let stream = loop {
            if let Some(stream) = lists.ready.pop_front() {
                break stream;
            }
            if lists.polled.is_empty() {
                lists = WORK.wait(lists).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let pause = lists.pause;
            lists.pause = (pause * 3 / 2).min(LONGEST);
            let (woken, waited) = WORK.wait_timeout(lists, pause).unwrap_or_else(PoisonError::into_inner);
            lists = woken;
            if waited.timed_out() {
                let polled = std::mem::take(&mut lists.polled);
                lists.ready.extend(polled);
            }
        };
        drop(lists);
        run(&stream);
    }
}

/// Why a stream stands still.
enum Halt {
    Point(Arc<Point>),
    Value(u64, u32, u32),
}

impl Halt {
    fn over(&self) -> bool {
        match self {
            Self::Point(point) => point.ended(),
            Self::Value(address, value, flags) => reached(*address, *value, *flags),
        }
    }
}

/// Whether the word in memory has got there.
fn reached(address: u64, value: u32, flags: u32) -> bool {
    // SAFETY: the range was checked to be memory of this process when the wait was enqueued, and callers keep it until then.
    let word = unsafe { AtomicU32::from_ptr(address as usize as *mut u32) }.load(Ordering::Acquire);
    match flags {
        CU_STREAM_WAIT_VALUE_GEQ => word.wrapping_sub(value) as i32 >= 0,
        CU_STREAM_WAIT_VALUE_EQ => word == value,
        _ => false,
    }
}

fn park(stream: &Arc<Stream>, halt: &Halt) {
    let mut lists = lock(&LISTS);
    let stream = Arc::clone(stream);
    if stream.lost() != 0 || halt.over() {
        lists.ready.push_back(stream);
        return;
    }
    match halt {
        Halt::Point(_) => lists.blocked.push(stream),
        Halt::Value(..) => {
            lists.polled.push(stream);
            lists.pause = SHORTEST;
            drop(lists);
            // Somebody who sleeps without a limit has to begin to look.
            WORK.notify_one();
        }
    }
}

fn run(stream: &Arc<Stream>) {
    for _ in 0..TURN {
        let mut state = lock(&stream.state);
        let lost = stream.lost();
        if lost != 0 {
            let dropped = std::mem::take(&mut state.queue);
            drop(state);
            for task in dropped {
                if let Task::Record(point) = task {
                    end(&point, lost);
                }
            }
            state = lock(&stream.state);
        }
        let halt = match state.queue.front() {
            None => {
                state.scheduled = false;
                drop(state);
                announce();
                return;
            }
            Some(Task::Await(point)) if !point.ended() => Some(Halt::Point(Arc::clone(point))),
            Some(&Task::Work(Work::WaitValue { address, value, flags })) if !reached(address, value, flags) => {
                Some(Halt::Value(address, value, flags))
            }
            Some(_) => None,
        };
        if let Some(halt) = halt {
            drop(state);
            park(stream, &halt);
            return;
        }
        let Some(task) = state.queue.pop_front() else { continue };
        drop(state);
        match task {
            Task::Record(point) => end(&point, 0),
            Task::Await(_) => {}
            Task::Work(Work::Host { function, data }) => {
                // A send fails only if the thread is gone, and it never ends.
                let _sent = callbacks().send(Call { stream: Arc::clone(stream), function, data });
                return;
            }
            Task::Work(work) => {
                if let Err(code) = perform(&work, stream) {
                    lose(stream.card, code);
                }
            }
        }
    }
    ready(Arc::clone(stream));
}

/// Touches memory, after a look whether it is there.
fn perform(work: &Work, stream: &Stream) -> Result {
    match *work {
        Work::Copy { dst, src, len } => {
            memory::check(dst, len)?;
            memory::check(src, len)?;
            // SAFETY: both ranges are memory that the registry knows, or host memory that the caller vouches for; callers
            // keep it until the copy has ended. They may be the same range, so the copy is one that allows overlap.
            unsafe { std::ptr::copy(src as usize as *const u8, dst as usize as *mut u8, len) };
            Ok(())
        }
        Work::Set { dst, value, size, count } => {
            memory::check(dst, size as usize * count)?;
            let bytes = value.to_le_bytes();
            // SAFETY: the range was checked above; callers order its use by streams.
            let to = unsafe { std::slice::from_raw_parts_mut(dst as usize as *mut u8, size as usize * count) };
            // Doubles what is there, so that the machine's own copy does the work.
            let mut done = (size as usize).min(to.len());
            to[..done].copy_from_slice(&bytes[..done]);
            while done < to.len() {
                let more = done.min(to.len() - done);
                to.copy_within(..more, done);
                done += more;
            }
            Ok(())
        }
        Work::Launch(ref launch) => kernel::run(launch, stream.card),
        Work::Host { .. } | Work::WaitValue { .. } => Ok(()),
    }
}

/// A host function whose turn has come.
struct Call {
    stream: Arc<Stream>,
    function: anyaccel_cuda::sys::CUhostFn,
    data: usize,
}

/// The one thread that runs host functions, as the driver does it.
fn callbacks() -> &'static Sender<Call> {
    static CALLS: OnceLock<Sender<Call>> = OnceLock::new();
    CALLS.get_or_init(|| {
        let (sender, calls) = channel::<Call>();
        let body = move || {
            for Call { stream, function, data } in calls {
                if stream.lost() == 0 {
                    // SAFETY: whoever enqueued it promised that it may be called with that data on any thread.
                    unsafe { function(data as *mut std::ffi::c_void) };
                }
                ready(stream);
            }
        };
        thread::Builder::new().name("fake-cuda-call".into()).spawn(body).expect("a thread for the fake");
        sender
    })
}
