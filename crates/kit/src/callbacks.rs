//! Threads that call functions of the user, one job after the other, and become more when those block.
//!
//! # Protocol
//!
//! Everything but two hints lives under one mutex; the threads are counted by a [`Roster`], whose protocol holds here.
//! Beside its threads there is at most one *reserve*, which runs no job. When all others run and jobs wait, it looks once
//! a [`CallbackConfig::patience`]; if no job was begun meanwhile it leaves a new reserve behind and becomes an ordinary
//! thread. So any number of blocked jobs holds up the others for a few patiences at most, without one thread a job.
//!
//! A push never loses a job: somebody searches, or was called, or the reserve watches.

use crate::thread::Thread;
use crate::{Call, Condvar, Guard, Mutex, Roster, spin};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How callback threads behave.
#[derive(Clone, Debug)]
pub struct CallbackConfig {
    /// The name of the threads, as debuggers show it.
    pub name: &'static str,
    /// How many threads there may be without any being blocked. At least 1.
    pub base: usize,
    /// How long no job may begin while one waits, before one more thread appears.
    pub patience: Duration,
    /// How long a thread looks for the next job before it sleeps.
    pub spin: Duration,
    /// How long a thread beyond `base` sleeps before it ends.
    pub linger: Duration,
}

impl CallbackConfig {
    /// Two threads, 1 ms of patience, a short spin.
    pub const fn named(name: &'static str) -> Self {
        Self {
            name,
            base: 2,
            patience: Duration::from_millis(1),
            spin: Duration::from_micros(40),
            linger: Duration::from_secs(5),
        }
    }
}

struct State<J> {
    queue: VecDeque<J>,
    roster: Roster,
    /// How many jobs were ever begun.
    begun: u64,
    /// Whether there is a reserve, and whether it was told to watch.
    reserve: bool,
    watch: bool,
}

struct Shared<J> {
    state: Mutex<State<J>>,
    /// Wakes idle threads.
    work: Condvar,
    /// Wakes the reserve.
    stall: Condvar,
    /// The length of the queue, for who searches.
    queued: AtomicUsize,
    /// Whether `ensure_thread` has succeeded.
    ready: AtomicBool,
    closed: AtomicBool,
    run: Box<dyn Fn(J) + Send + Sync>,
    config: CallbackConfig,
}

/// A queue of jobs and the threads that run them. Threads appear with the first job.
///
/// Dropping it is [`Callbacks::finish`].
pub struct Callbacks<J: Send + 'static> {
    shared: Arc<Shared<J>>,
}

impl<J: Send + 'static> fmt::Debug for Callbacks<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        f.debug_struct("Callbacks")
            .field("queued", &state.queue.len())
            .field("roster", &state.roster)
            .finish_non_exhaustive()
    }
}

impl<J> Shared<J> {
    fn lock(&self) -> Guard<'_, State<J>> {
        self.state.lock()
    }

    fn closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl<J: Send + 'static> Callbacks<J> {
    /// An empty queue. Starts no thread. `run` must not unwind.
    pub fn new(config: CallbackConfig, run: impl Fn(J) + Send + Sync + 'static) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    queue: VecDeque::new(),
                    roster: Roster::new(config.base.max(1)),
                    begun: 0,
                    reserve: false,
                    watch: false,
                }),
                work: Condvar::new(),
                stall: Condvar::new(),
                queued: AtomicUsize::new(0),
                ready: AtomicBool::new(false),
                closed: AtomicBool::new(false),
                run: Box::new(run),
                config,
            }),
        }
    }

    /// Makes sure that there is a thread, so that later pushes can't fail.
    ///
    /// # Errors
    /// The system's, when it gives no thread and there is none yet.
    pub fn ensure_thread(&self) -> std::io::Result<()> {
        if self.shared.ready.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut state = self.shared.lock();
        if state.roster.threads() == 0 {
            // Under the lock, so that nobody relies on a thread that may not come.
            spawn(&self.shared, work)?;
            state.roster.join();
        }
        self.shared.ready.store(true, Ordering::Release);
        Ok(())
    }

    /// How many jobs wait to begin.
    pub fn waiting(&self) -> usize {
        self.shared.queued.load(Ordering::Acquire)
    }

    /// Appends a job. Never runs one on this thread. A job returned was refused because of [`Callbacks::finish`].
    ///
    /// Call [`Callbacks::ensure_thread`] once before.
    ///
    /// # Errors
    /// The job, after `finish`.
    pub fn push(&self, job: J) -> Result<(), J> {
        let shared = &self.shared;
        let mut state = shared.lock();
        if shared.closed() {
            return Err(job);
        }
        state.queue.push_back(job);
        shared.queued.store(state.queue.len(), Ordering::Release);
        let help = call_for_help(&mut state);
        drop(state);
        give(shared, help);
        Ok(())
    }

    /// Whether [`Callbacks::ensure_thread`] has succeeded.
    pub fn has_thread(&self) -> bool {
        self.shared.ready.load(Ordering::Acquire)
    }

    /// Refuses jobs from now on and lets the threads end once the queue is empty. Waits for none of them, since a job may
    /// be blocked for ever.
    pub fn finish(&self) {
        let state = self.shared.lock();
        self.shared.closed.store(true, Ordering::Release);
        drop(state);
        self.shared.work.notify_all();
        self.shared.stall.notify_all();
    }
}

impl<J: Send + 'static> Drop for Callbacks<J> {
    fn drop(&mut self) {
        self.finish();
    }
}

enum Help {
    None,
    Wake,
    Spawn,
    Watch,
    SpawnReserve,
}

/// Who takes the next job. Counts what it decides.
fn call_for_help<J>(state: &mut State<J>) -> Help {
    match state.roster.call() {
        Call::Nobody => Help::None,
        Call::Wake => Help::Wake,
        Call::Spawn => Help::Spawn,
        Call::AllBusy if state.watch => Help::None,
        Call::AllBusy => {
            state.watch = true;
            if std::mem::replace(&mut state.reserve, true) { Help::Watch } else { Help::SpawnReserve }
        }
    }
}

/// Does what was decided, unlocked. Without a thread to be had the present ones go on alone.
fn give<J: Send + 'static>(shared: &Arc<Shared<J>>, help: Help) {
    match help {
        Help::None => {}
        Help::Wake => shared.work.notify_one(),
        Help::Watch => shared.stall.notify_one(),
        Help::Spawn => {
            if spawn(shared, work).is_err() {
                shared.lock().roster.leave();
            }
        }
        Help::SpawnReserve => {
            if spawn(shared, watch).is_err() {
                let mut state = shared.lock();
                state.reserve = false;
                state.watch = false;
            }
        }
    }
}

fn spawn<J: Send + 'static>(shared: &Arc<Shared<J>>, body: fn(&Arc<Shared<J>>)) -> std::io::Result<()> {
    let own = Arc::clone(shared);
    Thread::spawn(shared.config.name, move || body(&own)).map(drop)
}

/// An ordinary thread, counted as searching when it begins.
fn work<J: Send + 'static>(shared: &Arc<Shared<J>>) {
    let mut state = shared.lock();
    loop {
        // Here this thread counts as searching.
        if let Some(job) = state.queue.pop_front() {
            shared.queued.store(state.queue.len(), Ordering::Release);
            state.begun += 1;
            state.roster.found();
            let help = if state.queue.is_empty() { Help::None } else { call_for_help(&mut state) };
            drop(state);
            give(shared, help);
            (shared.run)(job);
            state = shared.lock();
            state.roster.done();
            if state.queue.is_empty() && state.roster.one_searches() {
                drop(state);
                spin(shared.config.spin, || shared.queued.load(Ordering::Acquire) > 0 || shared.closed());
                state = shared.lock();
            }
            continue;
        }
        if shared.closed() {
            state.roster.leave();
            drop(state);
            // The reserve ends when the queue is empty, as it is now.
            shared.stall.notify_all();
            return;
        }
        state.roster.sleep();
        loop {
            if state.roster.called() {
                break;
            }
            if shared.closed() && state.roster.retire() {
                return;
            }
            if !state.roster.surplus() {
                state = shared.work.wait(state, None);
                continue;
            }
            let deadline = Instant::now() + shared.config.linger;
            state = shared.work.wait(state, Some(deadline));
            if Instant::now() >= deadline && state.roster.surplus() && state.roster.retire() {
                return;
            }
        }
    }
}

/// The reserve.
fn watch<J: Send + 'static>(shared: &Arc<Shared<J>>) {
    let mut state = shared.lock();
    loop {
        if shared.closed() && state.queue.is_empty() {
            state.reserve = false;
            return;
        }
        if !state.watch {
            state = shared.stall.wait(state, None);
            continue;
        }
        let begun = state.begun;
        let deadline = Instant::now() + shared.config.patience;
        while state.begun == begun && !state.queue.is_empty() && Instant::now() < deadline {
            state = shared.stall.wait(state, Some(deadline));
        }
        if state.queue.is_empty() {
            state.watch = false;
        } else if state.begun == begun {
            drop(state);
            let left_behind = spawn(shared, watch).is_ok();
            state = shared.lock();
            if left_behind {
                state.roster.join();
                drop(state);
                return work(shared);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    type Job = Box<dyn FnOnce() + Send>;

    fn callbacks() -> Callbacks<Job> {
        let callbacks = Callbacks::new(CallbackConfig::named("test-call"), |job: Job| job());
        assert!(callbacks.ensure_thread().is_ok());
        callbacks
    }

    fn push(callbacks: &Callbacks<Job>, job: impl FnOnce() + Send + 'static) {
        assert!(callbacks.push(Box::new(job)).is_ok());
    }

    #[test]
    fn a_hundred_blocked_jobs_do_not_stop_the_next() {
        let callbacks = callbacks();
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let (done, ended) = mpsc::channel();
        for _ in 0..100 {
            let (gate, done) = (Arc::clone(&gate), done.clone());
            push(&callbacks, move || {
                let mut open = gate.0.lock();
                while !*open {
                    open = gate.1.wait(open, None);
                }
                done.send(0).unwrap();
            });
        }
        let begin = Instant::now();
        let after = done.clone();
        push(&callbacks, move || after.send(1).unwrap());
        assert_eq!(ended.recv_timeout(Duration::from_secs(20)), Ok(1), "after {:?}", begin.elapsed());
        *gate.0.lock() = true;
        gate.1.notify_all();
        for _ in 0..100 {
            assert_eq!(ended.recv_timeout(Duration::from_secs(20)), Ok(0));
        }
    }

    #[test]
    fn quick_jobs_need_no_more_than_the_base() {
        let callbacks = callbacks();
        let (done, ended) = mpsc::channel();
        for round in 0..2000 {
            let done = done.clone();
            // The receiver goes when the threads have been counted.
            push(&callbacks, move || {
                let _late = done.send(round);
            });
            if round % 7 == 0 {
                assert!(ended.recv_timeout(Duration::from_secs(20)).is_ok());
            }
        }
        let threads = callbacks.shared.lock().roster.threads();
        // Another process may hold a thread up for longer than the patience; a thread a job would be 2000.
        assert!(threads <= 8, "{threads} threads");
    }

    #[test]
    fn every_job_is_run_once_whoever_pushes() {
        let callbacks = callbacks();
        let ran = Arc::new(AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for at in 0..2000 {
                        let ran = Arc::clone(&ran);
                        push(&callbacks, move || {
                            ran.fetch_add(1, Ordering::Relaxed);
                        });
                        if at % 500 == 0 {
                            thread::sleep(Duration::from_micros(200));
                        }
                    }
                });
            }
        });
        let begin = Instant::now();
        while ran.load(Ordering::Relaxed) < 8000 {
            assert!(begin.elapsed() < Duration::from_secs(20), "{} of 8000", ran.load(Ordering::Relaxed));
            thread::yield_now();
        }
    }

    #[test]
    fn finishing_runs_the_queue_refuses_the_rest_and_ends_the_threads() {
        let ran = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&ran);
        let callbacks: Callbacks<u64> = Callbacks::new(CallbackConfig::named("test-call"), move |millis| {
            thread::sleep(Duration::from_millis(millis));
            counter.fetch_add(1, Ordering::Relaxed);
        });
        assert!(!callbacks.has_thread());
        assert!(callbacks.ensure_thread().is_ok() && callbacks.has_thread());
        for millis in [50, 50, 0, 0, 0] {
            assert_eq!(callbacks.push(millis), Ok(()));
        }
        callbacks.finish();
        assert_eq!(callbacks.push(3), Err(3));
        let shared = Arc::downgrade(&callbacks.shared);
        drop(callbacks);
        let begin = Instant::now();
        while shared.strong_count() > 0 {
            assert!(begin.elapsed() < Duration::from_secs(20), "a thread lives on");
            thread::yield_now();
        }
        assert_eq!(ran.load(Ordering::Relaxed), 5);
    }
}
