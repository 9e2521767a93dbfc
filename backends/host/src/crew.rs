//! The threads of a driver: workers, which run streams and share large operations, and callback threads.
//!
//! # Protocol
//!
//! - Work is a ready stream or a [`Split`] that still has chunks. Both queues and the roster of workers are under one
//!   lock; `queued` is a hint for who searches. The protocol of waking is [`Roster`]'s.
//! - Workers never run functions of the user, which may block: those go to the callback threads. So blocked functions
//!   never stop copies.
//! - Threads appear with the first work and end when the crew is closed. `closed` is set before the queues are emptied,
//!   under the lock: a stream listed later is refused, and who listed it cancels it.

use crate::graph::Run;
use crate::machine::Holdings;
use crate::op::Class;
use crate::ready::Ready;
use crate::run::{Runner, run_listed};
use crate::split::Split;
use crate::stream::Stream;
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Guard, Mutex, Ordering, spin};
use anyaccel_hal::{Fault, FaultKind};
use anyaccel_kit::{Call, CallbackConfig, Callbacks, Roster};
use std::fmt;
use std::sync::Arc;

struct Pool {
    ready: Ready<Arc<Stream>>,
    splits: Vec<Arc<Split>>,
    /// Replays that have more ready than their threads run.
    graphs: Vec<Arc<Run>>,
    roster: Roster,
}

impl Pool {
    fn queued(&self) -> usize {
        self.ready.len() + self.splits.len() + self.graphs.len()
    }
}

/// What a worker found.
enum Work {
    Stream(Arc<Stream>),
    Split(Arc<Split>),
    Graph(Arc<Run>),
}

/// What a callback thread runs.
pub(crate) enum Turn {
    /// A stream whose next operation is a function.
    Stream(Arc<Stream>),
    /// A strand of a graph that is one, and its crew.
    Strand(Arc<Run>, u32, Arc<Crew>),
}

/// The threads of a driver.
pub(crate) struct Crew {
    pool: Mutex<Pool>,
    work: Condvar,
    queued: AtomicUsize,
    closed: AtomicBool,
    workers: usize,
    callbacks: Callbacks<Turn>,
    _holdings: Arc<Holdings>,
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("workers", &self.workers).finish_non_exhaustive()
    }
}

impl Crew {
    /// A crew of at most that many workers, which keep what they may be working on. Starts no thread.
    pub(crate) fn new(workers: usize, levels: usize, holdings: Arc<Holdings>) -> Self {
        let workers = workers.max(1);
        let run = |turn: Turn| match turn {
            Turn::Stream(stream) if stream.crew().closed() => stream.cancel(),
            Turn::Stream(stream) => run_listed(stream, Runner::Callback),
            Turn::Strand(run, strand, crew) => run.call(&crew, strand),
        };
        Self {
            pool: Mutex::new(Pool {
                ready: Ready::new(levels),
                splits: Vec::new(),
                graphs: Vec::new(),
                roster: Roster::new(workers),
            }),
            work: Condvar::new(),
            queued: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            workers,
            callbacks: Callbacks::new(CallbackConfig::named("anyaccel-call"), run),
            _holdings: holdings,
        }
    }

    #[inline]
    pub(crate) fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// How many workers there may be.
    pub(crate) fn workers(&self) -> usize {
        self.workers
    }

    /// Whether a runner that had its turn should let others go first.
    pub(crate) fn others_wait(&self, runner: Runner) -> bool {
        match runner {
            Runner::Callback => self.callbacks.waiting() > 0,
            Runner::Worker | Runner::Waiter { .. } => self.queued.load(Ordering::Relaxed) > 0,
        }
    }

    /// Lists a ready stream; false if the crew is closed.
    #[must_use]
    pub(crate) fn list(self: &Arc<Self>, stream: &Arc<Stream>, class: Class) -> bool {
        if class == Class::Call {
            return self.callbacks.push(Turn::Stream(Arc::clone(stream))).is_ok();
        }
        let mut pool = self.pool.lock();
        if self.closed() {
            return false;
        }
        pool.ready.push(stream.level(), Arc::clone(stream));
        self.queued.store(pool.queued(), Ordering::Release);
        let call = pool.roster.call();
        drop(pool);
        self.answer(call);
        true
    }

    /// Has a function of a graph called; false if the crew is closed.
    #[must_use]
    pub(crate) fn call(self: &Arc<Self>, run: &Arc<Run>, strand: u32) -> bool {
        self.callbacks.push(Turn::Strand(Arc::clone(run), strand, Arc::clone(self))).is_ok()
    }

    /// Lists a replay that has more ready than its threads run.
    pub(crate) fn offer(self: &Arc<Self>, run: &Arc<Run>) {
        let mut pool = self.pool.lock();
        if self.closed() {
            return;
        }
        pool.graphs.push(Arc::clone(run));
        self.queued.store(pool.queued(), Ordering::Release);
        let call = pool.roster.call();
        drop(pool);
        self.answer(call);
    }

    /// Runs `body(at, len)` over `0..len` in chunks, together with workers that have nothing else to do. Returns when
    /// all of it is done.
    pub(crate) fn share(self: &Arc<Self>, len: usize, chunk: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        if self.workers > 1 && len >= chunk.saturating_mul(2) {
            self.share_between(len, chunk, body);
        } else if len > 0 {
            body(0, len);
        }
    }

    /// The same, shared in any case.
    pub(crate) fn share_between(self: &Arc<Self>, len: usize, chunk: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        // SAFETY: `finish` below returns only after the last call of the body.
        let split = Arc::new(unsafe { Split::new(len, chunk, body) });
        let mut pool = self.pool.lock();
        pool.splits.push(Arc::clone(&split));
        self.queued.store(pool.queued(), Ordering::Release);
        let call = pool.roster.call();
        drop(pool);
        self.answer(call);
        split.join();
        let mut pool = self.pool.lock();
        pool.splits.retain(|other| !Arc::ptr_eq(other, &split));
        self.queued.store(pool.queued(), Ordering::Release);
        drop(pool);
        split.finish();
    }

    fn answer(self: &Arc<Self>, call: Call) {
        match call {
            Call::Nobody | Call::AllBusy => {}
            Call::Wake => self.work.notify_one(),
            Call::Spawn => {
                if self.spawn().is_err() {
                    // The present workers go on alone; `ensure_worker` made sure that there is one.
                    self.pool.lock().roster.leave();
                }
            }
        }
    }

    #[cfg(not(loom))]
    fn spawn(self: &Arc<Self>) -> std::io::Result<()> {
        let crew = Arc::clone(self);
        anyaccel_kit::Thread::spawn("anyaccel-host", move || crew.work()).map(drop)
    }

    /// The threads of a model are its own: whoever is asked for besides never runs.
    #[cfg(loom)]
    fn spawn(self: &Arc<Self>) -> std::io::Result<()> {
        Ok(())
    }

    /// Makes sure that there is a worker, so that submitting can't fail.
    pub(crate) fn ensure_worker(self: &Arc<Self>) -> Result<(), Fault> {
        let mut pool = self.pool.lock();
        if pool.roster.threads() > 0 {
            return Ok(());
        }
        // Under the lock, so that nobody relies on a thread that may not come.
        self.spawn().map_err(|error| no_thread("create_stream", &error))?;
        pool.roster.join();
        Ok(())
    }

    /// The same for functions of the user.
    pub(crate) fn ensure_callback_thread(&self) -> Result<(), Fault> {
        self.callbacks.ensure_thread().map_err(|error| no_thread("host_call", &error))
    }

    /// Counts a thread of a model as a worker that is about to call [`Crew::work`].
    #[cfg(loom)]
    #[cfg_attr(not(test), allow(dead_code))]
    pub(crate) fn enlist(&self) {
        self.pool.lock().roster.join();
    }

    /// A worker's life. It begins as searching.
    pub(crate) fn work(self: &Arc<Self>) {
        let mut pool = self.pool.lock();
        while let Some(work) = self.find(pool) {
            match work {
                Work::Stream(stream) => run_listed(stream, Runner::Worker),
                Work::Split(split) => split.join(),
                Work::Graph(run) => run.help(self),
            }
            pool = self.pool.lock();
            pool.roster.done();
        }
    }

    /// The next work for a searching thread, `None` if the crew is closed. Sleeps if there is none.
    fn find<'a>(self: &'a Arc<Self>, mut pool: Guard<'a, Pool>) -> Option<Work> {
        let mut looked = false;
        loop {
            if self.closed() {
                pool.roster.leave();
                return None;
            }
            if let Some(work) = self.take(&mut pool) {
                pool.roster.found();
                let call = if pool.queued() > 0 { pool.roster.call() } else { Call::Nobody };
                drop(pool);
                self.answer(call);
                return Some(work);
            }
            if !looked && pool.roster.one_searches() {
                looked = true;
                drop(pool);
                spin(|| self.queued.load(Ordering::Acquire) > 0 || self.closed());
                pool = self.pool.lock();
                continue;
            }
            pool.roster.sleep();
            pool = self.sleep(pool)?;
        }
    }

    fn take(&self, pool: &mut Pool) -> Option<Work> {
        let work = match pool.ready.pop() {
            Some(stream) => Some(Work::Stream(stream)),
            None => {
                pool.splits.retain(|split| split.has_more());
                match pool.splits.first() {
                    Some(split) => Some(Work::Split(Arc::clone(split))),
                    None => {
                        pool.graphs.retain(|run| run.wants_help());
                        pool.graphs.first().map(|run| Work::Graph(Arc::clone(run)))
                    }
                }
            }
        };
        self.queued.store(pool.queued(), Ordering::Release);
        work
    }

    /// Sleeps until called; `None` if the crew is closed.
    fn sleep<'a>(&'a self, mut pool: Guard<'a, Pool>) -> Option<Guard<'a, Pool>> {
        loop {
            if self.closed() {
                return None;
            }
            if pool.roster.called() {
                return Some(pool);
            }
            pool = self.work.wait(pool, None);
        }
    }

    /// Ends the threads and drops the work of these streams, all there are (H25). Waits for nothing: a thread that runs
    /// an operation ends after it and drops the rest of that stream itself. Functions of the user that had not begun
    /// are cancelled on callback threads, where they may block.
    pub(crate) fn close(&self, streams: Vec<Arc<Stream>>) {
        let mut pool = self.pool.lock();
        self.closed.store(true, Ordering::SeqCst);
        let (ready, graphs) = (pool.ready.take_all(), std::mem::take(&mut pool.graphs));
        drop(pool);
        self.work.notify_all();
        drop((ready, graphs));
        for stream in streams {
            if stream.at_rest() {
                continue;
            }
            if !self.callbacks.has_thread() {
                // So there is no function of the user among the work.
                stream.cancel();
            } else if let Err(Turn::Stream(stream)) = self.callbacks.push(Turn::Stream(stream)) {
                stream.cancel();
            }
        }
        self.callbacks.finish();
    }
}

fn no_thread(api: &'static str, error: &std::io::Error) -> Fault {
    let code = error.raw_os_error().unwrap_or(0);
    Fault::new(FaultKind::OutOfMemory, api).code(code.into()).note("no thread to be had")
}
