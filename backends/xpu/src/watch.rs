//! The thread that sees when the turn of a host function has come.
//!
//! # Protocol
//!
//! Level Zero of today calls nobody when a command has ended, so somebody has to look. One thread of a driver's machine does, at
//! all streams that have functions waiting: each is in `active` exactly while its queue is not empty (decided under the queue's own
//! lock, which is never taken inside this one's). While something happens it looks without pause; then its pauses grow with the
//! time that it has waited in vain, so that a function is late by a small part of what it waited anyhow. The thread appears with
//! the first function and ends with the machine.

use crate::host_call::Functions;
use anyaccel_kit::{Condvar, Mutex, spin};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long it looks without a pause.
const SPIN: Duration = Duration::from_micros(40);
/// The longest pause.
const LONGEST: Duration = Duration::from_millis(1);
/// How often it asks whether a device lives whose functions wait.
const STATUS: Duration = Duration::from_millis(200);

struct State {
    active: Vec<Arc<Functions>>,
    /// Rises with each addition.
    added: u64,
    thread: bool,
    closed: bool,
}

/// Who looks.
pub(crate) struct Watch {
    state: Mutex<State>,
    news: Condvar,
}

impl Watch {
    pub(crate) fn new() -> Arc<Self> {
        let state = State { active: Vec::new(), added: 0, thread: false, closed: false };
        Arc::new(Self { state: Mutex::new(state), news: Condvar::new() })
    }

    /// Makes sure that there is a thread.
    pub(crate) fn ensure_thread(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.thread {
            let own = Arc::clone(self);
            thread::Builder::new().name("anyaccel-xpu-watch".to_owned()).spawn(move || own.run())?;
            state.thread = true;
        }
        Ok(())
    }

    /// A stream has functions waiting.
    pub(crate) fn add(&self, functions: Arc<Functions>) {
        let mut state = self.state.lock();
        state.active.push(functions);
        state.added += 1;
        drop(state);
        self.news.notify_one();
    }

    /// Ends the thread. What still waits has been cancelled.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.news.notify_one();
    }

    fn run(&self) {
        let mut since = Instant::now();
        let mut asked = since;
        let mut watched: Vec<Arc<Functions>> = Vec::new();
        let mut seen = 0;
        loop {
            let mut state = self.state.lock();
            watched.append(&mut state.active);
            while watched.is_empty() && !state.closed {
                state = self.news.wait(state, None);
                watched.append(&mut state.active);
            }
            if state.closed {
                return;
            }
            if state.added != seen {
                seen = state.added;
                since = Instant::now();
            }
            drop(state);
            let mut began = false;
            watched.retain(|functions| {
                let look = functions.look();
                began |= look.began;
                look.more
            });
            let now = Instant::now();
            if began {
                (since, asked) = (now, now);
                continue;
            }
            if now.duration_since(asked) > STATUS {
                asked = now;
                for functions in &watched {
                    functions.ask_status();
                }
            }
            let waited = now.duration_since(since);
            if waited < SPIN {
                spin(Duration::from_micros(2), || false);
                continue;
            }
            let until = now + (waited / 8).min(LONGEST);
            let state = self.state.lock();
            if state.added == seen && !state.closed {
                drop(self.news.wait(state, Some(until)));
            }
        }
    }
}
