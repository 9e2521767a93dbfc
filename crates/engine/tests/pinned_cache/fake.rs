//! A port that pins nothing: addresses, bytes and streams as plain data.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};

use anyaccel_engine::alloc::{Marks, PortError};
use anyaccel_engine::pinned::{HostAllocation, HostCache, HostPolicy, HostPorts, HostSegments, RawHost};
use anyaccel_kit::{Guard, Mutex};

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;

/// Copies one byte from a pinned address to a place on the device.
pub(crate) struct Copy {
    pub(crate) from: u64,
    pub(crate) to: usize,
}

#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) enqueued: u64,
    pub(crate) ended: u64,
    copies: VecDeque<(u64, Copy)>,
}

pub(crate) struct Inner {
    pub(crate) live: BTreeMap<u64, RawHost>,
    spare: Vec<(u64, u64)>,
    top: u64,
    token: u64,
    pub(crate) peak: u64,
    pub(crate) budget: u64,
    pub(crate) streams: BTreeMap<u64, Stream>,
    /// Every call so far: name and argument.
    pub(crate) calls: Vec<(&'static str, u64)>,
    /// The call to fail, counted from 0, and how.
    pub(crate) fail: Option<(usize, PortError)>,
    /// What lies at pinned addresses, and on the device.
    pub(crate) bytes: BTreeMap<u64, u8>,
    pub(crate) device: BTreeMap<usize, u8>,
}

/// The port, and the device behind it.
pub(crate) struct Fake {
    inner: Mutex<Inner>,
    /// A cache whose lock must be free during each call.
    watched: OnceLock<Weak<HostCache>>,
}

impl Fake {
    pub(crate) fn new(budget: u64) -> Arc<Fake> {
        Arc::new(Fake {
            inner: Mutex::new(Inner {
                live: BTreeMap::new(),
                spare: Vec::new(),
                top: 1 << 32,
                token: 0,
                peak: 0,
                budget,
                streams: BTreeMap::new(),
                calls: Vec::new(),
                fail: None,
                bytes: BTreeMap::new(),
                device: BTreeMap::new(),
            }),
            watched: OnceLock::new(),
        })
    }

    /// A cache over this port. Each call asks for its statistics, which hangs if the lock is held.
    pub(crate) fn cache(self: &Arc<Fake>, policy: HostPolicy) -> Arc<HostCache> {
        let cache = Arc::new(HostCache::new(HostPorts { segments: self.clone(), marks: self.clone() }, policy));
        let _ = self.watched.set(Arc::downgrade(&cache));
        cache
    }

    pub(crate) fn inner(&self) -> Guard<'_, Inner> {
        self.inner.lock()
    }

    pub(crate) fn held(&self) -> u64 {
        self.inner().live.values().map(|raw| raw.len).sum()
    }

    pub(crate) fn calls(&self) -> usize {
        self.inner().calls.len()
    }

    /// Enqueues work on a stream; returns a mark behind it.
    pub(crate) fn enqueue(&self, stream: u64, copy: Option<Copy>) -> u64 {
        let mut inner = self.inner();
        let lane = inner.streams.entry(stream).or_default();
        lane.enqueued += 1;
        lane.copies.extend(copy.map(|copy| (lane.enqueued, copy)));
        lane.enqueued
    }

    /// Runs what is on a stream up to `mark`.
    pub(crate) fn run(&self, stream: u64, mark: u64) {
        let inner = &mut *self.inner();
        let lane = inner.streams.entry(stream).or_default();
        lane.ended = lane.ended.max(mark.min(lane.enqueued));
        while lane.copies.front().is_some_and(|(at, _)| *at <= lane.ended) {
            let (_, copy) = lane.copies.pop_front().unwrap();
            let byte = inner.bytes[&copy.from];
            inner.device.insert(copy.to, byte);
        }
    }

    pub(crate) fn run_all(&self) {
        let streams: Vec<u64> = self.inner().streams.keys().copied().collect();
        streams.into_iter().for_each(|stream| self.run(stream, u64::MAX));
    }

    fn call(&self, name: &'static str, argument: u64) -> Result<Guard<'_, Inner>, PortError> {
        if let Some(cache) = self.watched.get().and_then(Weak::upgrade) {
            cache.stats();
        }
        let mut inner = self.inner();
        let at = inner.calls.len();
        inner.calls.push((name, argument));
        match &inner.fail {
            Some((n, fault)) if *n == at => Err(fault.clone()),
            _ => Ok(inner),
        }
    }
}

impl HostSegments for Fake {
    fn alloc(&self, len: u64) -> Result<RawHost, PortError> {
        let mut inner = self.call("alloc", len)?;
        assert!(len > 0 && len.is_multiple_of(4096), "{len} is no number of pages");
        let held: u64 = inner.live.values().map(|raw| raw.len).sum();
        if held + len > inner.budget {
            return Err(PortError::OutOfMemory);
        }
        inner.peak = inner.peak.max(held + len);
        // Memory that was given back comes back first, at the address that it had.
        let addr = match inner.spare.iter().rposition(|&(_, spare)| spare == len) {
            Some(at) => inner.spare.swap_remove(at).0,
            None => {
                let addr = inner.top;
                inner.top += len + 4096;
                addr
            }
        };
        inner.token += 1;
        let raw = RawHost { token: inner.token, addr, len };
        assert!(inner.live.insert(addr, raw).is_none());
        Ok(raw)
    }

    fn free(&self, memory: RawHost) -> Result<(), PortError> {
        let mut inner = self.call("free", memory.addr)?;
        assert_eq!(inner.live.remove(&memory.addr), Some(memory), "given back twice, or never pinned");
        inner.spare.push((memory.addr, memory.len));
        Ok(())
    }
}

impl Marks for Fake {
    fn mark(&self, stream: u64) -> Result<u64, PortError> {
        Ok(self.call("mark", stream)?.streams.entry(stream).or_default().enqueued)
    }

    fn completed(&self, stream: u64) -> Result<u64, PortError> {
        Ok(self.call("completed", stream)?.streams.entry(stream).or_default().ended)
    }

    fn wait(&self, stream: u64, _mark: u64) -> Result<(), PortError> {
        panic!("the pinned cache waited for stream {stream}");
    }
}

/// Takes memory, which must be there.
pub(crate) fn take(cache: &HostCache, size: u64) -> HostAllocation {
    cache.alloc(size).unwrap().unwrap()
}
