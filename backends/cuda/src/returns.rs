//! What is given back to the driver, by a thread that may wait for it.
//!
//! Giving memory back "may perform implicit synchronization", as the driver's manual says of `cuMemFree`: it waits for all work of
//! the context, and a primary context is shared with everybody in the process who uses the device, such as other runtimes.
//! Whoever gives something back must not wait for them without an end.
//!
//! # Protocol
//!
//! Each retained context has a queue of jobs, all state under its one lock. Jobs run one after the other on a thread that
//! comes with the first and goes when there has been none for a while; `working` says that there is one. A job runs without the lock.
//!
//! - [`Returns::ask`] waits for its job for a while ([`PATIENCE`]) and tells what came of it. If that is not enough the job
//!   is left to the thread, and nobody else waits until the queue is empty again (`overdue`).
//! - [`Returns::hand`] does not wait. [`Returns::after`] lets later jobs wait for an event: for work that is still under
//!   way when a driver ends. So what comes behind it never is given back too early, however late that is.
//! - [`Returns::close`] is the last job: it gives the context back.
//!
//! Nothing is done on a device that is lost, which has let go of everything, nor once the process exits: [`ENDING`] rises
//! before the driver's own handlers run, and those wait a moment for calls that are under way. What is left goes with the
//! process. In the child of a fork there are no threads and no devices, so nobody comes here.

use crate::conv::Failed;
use crate::stream::Event;
use crate::sys::{CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_DEINITIALIZED, CUcontext, CUdevice, Cuda};
use anyaccel_kit::{Condvar, Guard, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// How long a caller waits for what it gives back, in the middle of its work.
const PATIENCE: Duration = Duration::from_millis(200);
/// The same for the end of a driver, which waits for nobody (H25) but for what the driver is about to do anyway.
const GRACE: Duration = Duration::from_millis(50);
/// How long a request for memory waits for memory that is being given back.
const RELIEF: Duration = Duration::from_secs(10);
/// How long the thread stays for the next job.
const LINGER: Duration = Duration::from_millis(20);
/// The longest sleep between two looks at an event.
const LONGEST: Duration = Duration::from_millis(2);
/// How long an exit waits for calls that are under way.
const FAREWELL: Duration = Duration::from_millis(50);

/// The process exits, or the driver said so.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Threads that are in a call.
static CALLING: AtomicUsize = AtomicUsize::new(0);
/// The process whose exit is waited for; 0: none yet. A child of a fork has no threads to wait for.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Every queue of this process: memory of a device comes back by any of them.
static ALL: std::sync::Mutex<Vec<Weak<Returns>>> = std::sync::Mutex::new(Vec::new());

fn all() -> std::sync::MutexGuard<'static, Vec<Weak<Returns>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn at_exit() {
    ENDING.store(true, Ordering::SeqCst);
    let deadline = Instant::now() + FAREWELL;
    let ours = PROCESS.load(Ordering::Relaxed) == std::process::id();
    while ours && CALLING.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
        thread::sleep(Duration::from_micros(200));
    }
}

/// Nothing is called any more.
pub(crate) fn end() {
    ENDING.store(true, Ordering::SeqCst);
}

/// A call under way, unless the process exits.
struct Calling;

impl Calling {
    fn begin() -> Option<Self> {
        CALLING.fetch_add(1, Ordering::SeqCst);
        let calling = Self;
        // After the count, so that the exit sees one of the two.
        (!ENDING.load(Ordering::SeqCst)).then_some(calling)
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        CALLING.fetch_sub(1, Ordering::SeqCst);
    }
}

type Act = Box<dyn FnOnce(&Cuda) -> Result<(), Failed> + Send>;

enum Job {
    Act(Act),
    After(Arc<Event>),
    Close(Act),
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    working: bool,
    /// A job is being done.
    busy: bool,
    /// Somebody has given up waiting.
    overdue: bool,
    /// Work is left whose end nobody will learn: nothing is given back any more.
    stuck: bool,
    closed: bool,
}

impl State {
    fn pending(&self) -> bool {
        self.busy || !self.queue.is_empty()
    }
}

/// The queue of one retained context.
pub(crate) struct Returns {
    cuda: &'static Cuda,
    device: CUdevice,
    raw: CUcontext,
    lost: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

impl fmt::Debug for Returns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Returns").field("pending", &self.state.lock().queue.len()).finish_non_exhaustive()
    }
}

/// Whether memory of a context was being given back, and no longer is. Waits for that.
pub(crate) fn relieved(raw: CUcontext) -> bool {
    let deadline = Instant::now() + RELIEF;
    let queues: Vec<Arc<Returns>> = all().iter().filter_map(Weak::upgrade).filter(|one| one.raw == raw).collect();
    queues.iter().fold(false, |relieved, one| {
        let state = one.state.lock();
        if !state.pending() {
            return relieved;
        }
        !one.settled(state, deadline).pending() || relieved
    })
}

impl Returns {
    /// For a context that was retained just now, after the driver's start.
    pub(crate) fn new(cuda: &'static Cuda, device: CUdevice, raw: CUcontext) -> Arc<Self> {
        if PROCESS.swap(std::process::id(), Ordering::SeqCst) == 0 {
            // SAFETY: a plain function of this library. Handlers run in the opposite order, so this one comes before those
            // that the driver has. Failure (no memory) leaves calls at exit to the driver's own checks.
            unsafe { libc::atexit(at_exit) };
        }
        let (state, changed) = (Mutex::new(State::default()), Condvar::new());
        let this = Arc::new(Self { cuda, device, raw, lost: AtomicBool::new(false), state, changed });
        let mut all = all();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&this));
        drop(all);
        this
    }

    /// The device is lost: nothing is called for it any more.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Work is left that nobody will hear of: what it may use stays until the process ends.
    pub(crate) fn stick(&self) {
        self.state.lock().stuck = true;
    }

    fn over(&self) -> bool {
        self.lost.load(Ordering::Acquire) || ENDING.load(Ordering::Acquire)
    }

    /// Does something behind all jobs so far, and does not wait for it.
    pub(crate) fn hand(self: &Arc<Self>, act: impl FnOnce(&Cuda) -> Result<(), Failed> + Send + 'static) {
        self.push(Job::Act(Box::new(act)));
    }

    /// Later jobs come after what an event stands for.
    pub(crate) fn after(self: &Arc<Self>, event: Arc<Event>) {
        self.push(Job::After(event));
    }

    /// The last job: it gives back what the context still has, and then the context.
    pub(crate) fn close(self: &Arc<Self>, act: impl FnOnce(&Cuda) + Send + 'static) {
        self.push(Job::Close(Box::new(move |cuda| {
            act(cuda);
            Ok(())
        })));
    }

    /// The same as [`Self::hand`], and tells what came of it, unless that takes long.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn ask(
        self: &Arc<Self>,
        act: impl FnOnce(&Cuda) -> Result<(), Failed> + Send + 'static,
    ) -> Result<(), Failed> {
        let outcome = Arc::new(Mutex::new(None));
        let told = Arc::clone(&outcome);
        self.hand(move |cuda| {
            let done = act(cuda);
            *told.lock() = Some(done);
            done
        });
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.state.lock();
        loop {
            if let Some(done) = outcome.lock().take() {
                return done;
            }
            if state.overdue || state.stuck || !state.pending() || Instant::now() >= deadline {
                state.overdue |= state.pending();
                return Ok(());
            }
            state = self.changed.wait(state, Some(deadline));
        }
    }

    /// Waits a moment for what was handed over: the end of a driver.
    pub(crate) fn settle(&self) {
        let state = self.state.lock();
        if !state.overdue {
            self.settled(state, Instant::now() + GRACE).overdue = true;
        }
    }

    fn settled<'a>(&'a self, mut state: Guard<'a, State>, deadline: Instant) -> Guard<'a, State> {
        while state.pending() && !self.over() && Instant::now() < deadline {
            state = self.changed.wait(state, Some(deadline));
        }
        state
    }

    fn push(self: &Arc<Self>, job: Job) {
        let mut state = self.state.lock();
        if self.lost.load(Ordering::Acquire) {
            drop(state);
            drop(job);
            return;
        }
        if state.stuck || ENDING.load(Ordering::Acquire) {
            // Not even dropped: what it has may be in use.
            std::mem::forget(job);
            return;
        }
        state.closed |= matches!(job, Job::Close(_));
        state.queue.push_back(job);
        if state.working {
            drop(state);
            self.changed.notify_all();
            return;
        }
        state.working = true;
        drop(state);
        let this = Arc::clone(self);
        if thread::Builder::new().name("anyaccel-returns".into()).spawn(move || this.work()).is_err() {
            // No thread is to be had: then it is done here.
            self.work();
        }
    }

    fn work(&self) {
        let mut state = self.state.lock();
        let mut until = Instant::now() + LINGER;
        loop {
            if let Some(job) = state.queue.pop_front() {
                state.busy = true;
                let stuck = state.stuck;
                drop(state);
                if stuck {
                    std::mem::forget(job);
                } else {
                    self.perform(job);
                }
                state = self.state.lock();
                state.busy = false;
                state.overdue &= !state.queue.is_empty();
                self.changed.notify_all();
                until = Instant::now() + LINGER;
                continue;
            }
            if state.closed || self.over() || Instant::now() >= until {
                state.working = false;
                return;
            }
            state = self.changed.wait(state, Some(until));
        }
    }

    fn perform(&self, job: Job) {
        match job {
            Job::After(event) => self.await_event(&event),
            Job::Act(act) => self.perform_act(act, false),
            Job::Close(act) => self.perform_act(act, true),
        }
    }

    /// Runs something with the context current on this thread, whatever captures are under way elsewhere.
    fn within(&self, act: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
        let cuda = self.cuda;
        let (mut mode, mut popped) = (CU_STREAM_CAPTURE_MODE_RELAXED, CUcontext::NULL);
        // SAFETY: the context is retained until its queue is closed; valid places for the answers; both are put back.
        unsafe {
            cuda.cuCtxPushCurrent_v2(self.raw)?;
            let _exchanged = cuda.cuThreadExchangeStreamCaptureMode(&raw mut mode);
            let acted = act();
            let _restored = cuda.cuThreadExchangeStreamCaptureMode(&raw mut mode);
            let _popped = cuda.cuCtxPopCurrent_v2(&raw mut popped);
            acted
        }
    }

    fn perform_act(&self, act: Act, last: bool) {
        let calling = Calling::begin();
        if calling.is_none() || self.over() {
            std::mem::forget(act);
            return;
        }
        let mut acted = self.within(|| act(self.cuda));
        if last {
            // SAFETY: pairs with the retain; nothing of the context is used any more.
            acted = acted.and(unsafe { self.cuda.cuDevicePrimaryCtxRelease_v2(self.device) });
        }
        if acted.is_err_and(|failed| failed.code == CUDA_ERROR_DEINITIALIZED) {
            end();
        }
    }

    /// Waits for an event, until it has ended or nobody cares any more.
    fn await_event(&self, event: &Event) {
        let mut pause = Duration::from_micros(20);
        loop {
            let calling = Calling::begin();
            if calling.is_none() || self.over() {
                return;
            }
            let mut ended = false;
            let looked = self.within(|| {
                ended = event.ended()?;
                Ok(())
            });
            drop(calling);
            match looked {
                Ok(()) if ended => return,
                Ok(()) => {}
                Err(failed) => {
                    // A sticky one loses the device; after any other nobody knows when it ends.
                    event.failed(failed);
                    self.stick();
                    return;
                }
            }
            thread::sleep(pause);
            pause = (pause * 3 / 2).min(LONGEST);
        }
    }
}
