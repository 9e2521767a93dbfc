//! What is current on this thread: the one place that touches thread-locals.
//!
//! Keyed by runtime. The process-wide runtime has key 0 in every generation, so a forked child inherits the current
//! device; streams belong to one generation and are forgotten when the epoch moves on.

use crate::interrupt::Stop;
use crate::lane::LaneRef;
use crate::runtime::Core;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Which runtime a thread-local entry belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(crate) id: u64,
    pub(crate) epoch: u64,
}

struct Entry {
    key: Key,
    /// Whether the runtime still exists; dangling for the process-wide one, which never goes.
    alive: Weak<Core>,
    device: u32,
    streams: Vec<Option<LaneRef>>,
    /// Captures that began on this thread, until they have ended, wherever that happens.
    captures: Vec<Arc<AtomicBool>>,
}

struct Local {
    in_host_fn: Cell<bool>,
    stop: Cell<Option<Stop>>,
    entries: RefCell<Vec<Entry>>,
}

thread_local! {
    static LOCAL: Local = const {
        Local { in_host_fn: Cell::new(false), stop: Cell::new(None), entries: RefCell::new(Vec::new()) }
    };
}

/// Whether this thread runs a host function.
#[inline]
pub(crate) fn in_host_fn() -> bool {
    LOCAL.try_with(|local| local.in_host_fn.get()).unwrap_or(false)
}

/// Whom this thread's waits ask whether to go on.
#[inline]
pub(crate) fn stop() -> Option<Stop> {
    LOCAL.try_with(|local| local.stop.get()).ok().flatten()
}

/// Puts another in its place, and returns the one before.
#[inline]
pub(crate) fn exchange_stop(stop: Option<Stop>) -> Option<Stop> {
    LOCAL.try_with(|local| local.stop.replace(stop)).ok().flatten()
}

/// Runs `f` as a host function.
pub(crate) fn as_host_fn<T>(f: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            let _thread_ends = LOCAL.try_with(|local| local.in_host_fn.set(self.0));
        }
    }
    let _restore = Restore(LOCAL.try_with(|local| local.in_host_fn.replace(true)).unwrap_or(false));
    f()
}

#[inline]
fn read<T>(key: Key, f: impl FnOnce(&Entry) -> Option<T>) -> Option<T> {
    LOCAL
        .try_with(|local| {
            let entries = local.entries.try_borrow().ok()?;
            f(entries.iter().find(|entry| entry.key.id == key.id)?)
        })
        .ok()
        .flatten()
}

#[inline]
fn write<T>(key: Key, alive: impl FnOnce() -> Weak<Core>, f: impl FnOnce(&mut Entry) -> T) -> Option<T> {
    LOCAL
        .try_with(|local| {
            let mut entries = local.entries.try_borrow_mut().ok()?;
            let at = match entries.iter().position(|entry| entry.key.id == key.id) {
                Some(at) => at,
                None => add(&mut entries, key, alive()),
            };
            let entry = &mut entries[at];
            // A guard from before a fork leaves what the child made current.
            if entry.key.epoch < key.epoch {
                entry.key.epoch = key.epoch;
                entry.streams.clear();
                entry.captures.clear();
            }
            Some(f(entry))
        })
        .ok()
        .flatten()
}

#[cold]
fn add(entries: &mut Vec<Entry>, key: Key, alive: Weak<Core>) -> usize {
    entries.retain(|entry| entry.key.id == 0 || entry.alive.strong_count() > 0);
    entries.push(Entry { key, alive, device: 0, streams: Vec::new(), captures: Vec::new() });
    entries.len() - 1
}

/// This thread's current device, 0 if it never chose.
#[inline]
pub(crate) fn device(key: Key) -> u32 {
    read(key, |entry| Some(entry.device)).unwrap_or(0)
}

/// Makes a device current and returns the one before.
#[inline]
pub(crate) fn exchange_device(key: Key, alive: impl FnOnce() -> Weak<Core>, device: u32) -> u32 {
    write(key, alive, |entry| std::mem::replace(&mut entry.device, device)).unwrap_or(0)
}

/// This thread's current stream of a device; `None` is the default one.
#[inline]
pub(crate) fn stream(key: Key, device: u32) -> Option<LaneRef> {
    read(key, |entry| if entry.key.epoch == key.epoch { entry.streams.get(device as usize)?.clone() } else { None })
}

/// A device, this thread's current one if none is given, and the id of this thread's current stream of it, `default` if none
/// was set. `None` in a host function. It is one look at the thread's state for all of it, since a shared library pays for each.
#[inline]
pub(crate) fn stream_id(key: Key, device: Option<u32>, default: u64) -> Option<(u32, u64)> {
    let never = (device.unwrap_or(0), default);
    let of = |local: &Local| {
        if local.in_host_fn.get() {
            return None;
        }
        let Ok(entries) = local.entries.try_borrow() else { return Some(never) };
        let Some(entry) = entries.iter().find(|entry| entry.key.id == key.id) else { return Some(never) };
        let device = device.unwrap_or(entry.device);
        let lane = if entry.key.epoch == key.epoch { entry.streams.get(device as usize) } else { None };
        Some((device, lane.and_then(Option::as_ref).map_or(default, |lane| lane.id)))
    };
    LOCAL.try_with(of).unwrap_or(Some(never))
}

impl Entry {
    #[inline]
    fn place(&mut self, device: u32) -> &mut Option<LaneRef> {
        let at = device as usize;
        if self.streams.len() <= at {
            self.streams.resize(at + 1, None);
        }
        &mut self.streams[at]
    }
}

/// Makes a stream and its device current.
#[inline]
pub(crate) fn set_stream(key: Key, alive: impl FnOnce() -> Weak<Core>, lane: LaneRef) {
    let before = write(key, alive, |entry| {
        entry.device = lane.ordinal;
        let place = entry.place(lane.ordinal);
        place.replace(lane)
    });
    // Dropped outside: the last reference to a lane may come back here.
    drop(before);
}

/// Makes a stream the current one of its device, and returns the one before; `None` is the default one.
#[inline]
pub(crate) fn exchange_stream(key: Key, alive: impl FnOnce() -> Weak<Core>, lane: LaneRef) -> Option<LaneRef> {
    write(key, alive, |entry| entry.place(lane.ordinal).replace(lane)).flatten()
}

/// What was current before a stream was entered.
#[derive(Default)]
pub(crate) struct Before {
    pub(crate) device: u32,
    /// The stream that was current on the entered stream's own device.
    here: Option<LaneRef>,
    /// The stream that was current on the device that was current, if that is another one.
    there: Option<LaneRef>,
}

/// Makes a stream and its device current, and returns what was.
#[inline]
pub(crate) fn enter_stream(key: Key, alive: impl FnOnce() -> Weak<Core>, lane: LaneRef) -> Before {
    write(key, alive, |entry| {
        let ordinal = lane.ordinal;
        let device = std::mem::replace(&mut entry.device, ordinal);
        let there = if device == ordinal { None } else { entry.place(device).clone() };
        let here = entry.place(ordinal).replace(lane);
        Before { device, here, there }
    })
    .unwrap_or_default()
}

/// Restores what was current before a stream of device `ordinal` was entered.
#[inline]
pub(crate) fn leave_stream(key: Key, alive: impl FnOnce() -> Weak<Core>, ordinal: u32, before: Before) {
    let over = write(key, alive, |entry| {
        entry.device = before.device;
        let here = std::mem::replace(entry.place(ordinal), before.here);
        let there =
            if before.device == ordinal { None } else { std::mem::replace(entry.place(before.device), before.there) };
        (here, there)
    });
    drop(over);
}

/// A capture began on this thread; `open` is true until it ends.
pub(crate) fn add_capture(key: Key, alive: impl FnOnce() -> Weak<Core>, open: Arc<AtomicBool>) {
    write(key, alive, |entry| {
        entry.captures.retain(|open| open.load(Ordering::Acquire));
        entry.captures.push(open);
    });
}

/// Whether a capture that began on this thread is under way.
pub(crate) fn captures(key: Key) -> bool {
    let open = |entry: &Entry| entry.captures.iter().any(|open| open.load(Ordering::Acquire));
    read(key, |entry| Some(entry.key.epoch == key.epoch && open(entry))).unwrap_or(false)
}
