//! A device for tests: hands out address space, checks that everything comes back once, fails on demand.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyaccel_engine::alloc::{
    AllocError, Allocation, Departures, DeviceCache, DeviceMemory, Marks, OutOfMemory, PortError, Ports, RawSegment,
    Segments, Settings, Virtual,
};
use anyaccel_kit::{Guard, Mutex};

pub const MIB: u64 = 1 << 20;

/// What a raw call was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Alloc,
    Free,
    Reserve,
    Release,
    Map,
    Unmap,
    Mark,
    Completed,
    Wait,
}

#[derive(Default)]
pub struct State {
    pub used: u64,
    next: u64,
    /// Live segments: address -> length.
    pub segments: BTreeMap<u64, u64>,
    /// Live ranges: address -> (length, mapped units by offset).
    pub ranges: BTreeMap<u64, (u64, BTreeMap<u64, u64>)>,
    /// By stream: submitted, completed.
    pub streams: HashMap<u64, (u64, u64)>,
    pub held: bool,
    pub calls: Vec<Call>,
    /// Contract violations by the cache.
    pub violations: Vec<String>,
}

pub struct TestDevice {
    pub total: u64,
    state: Mutex<State>,
    /// The raw call with this number (from 1) fails; 0: none does.
    fail_at: AtomicU64,
    count: AtomicU64,
}

impl TestDevice {
    pub fn new(total: u64) -> Arc<Self> {
        let state = State { next: 1 << 40, ..State::default() };
        Arc::new(TestDevice { total, state: Mutex::new(state), fail_at: AtomicU64::new(0), count: AtomicU64::new(0) })
    }

    pub fn state(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    pub fn ports(self: &Arc<Self>) -> Ports {
        Ports { segments: self.clone(), growable: Some(self.clone()), marks: self.clone() }
    }

    pub fn cache(self: &Arc<Self>, settings: &str) -> DeviceCache {
        self.cache_with(settings, Departures::ALL)
    }

    pub fn cache_with(self: &Arc<Self>, settings: &str, departures: Departures) -> DeviceCache {
        DeviceCache::new(0, self.ports(), Settings::parse(settings).unwrap(), departures)
    }

    /// From now on, call number `n` fails.
    pub fn fail_call(&self, n: u64) {
        self.count.store(0, Ordering::Relaxed);
        self.fail_at.store(n, Ordering::Relaxed);
    }

    pub fn calls(&self, which: Call) -> usize {
        self.state().calls.iter().filter(|&&c| c == which).count()
    }

    pub fn hold(&self, held: bool) {
        let mut state = self.state();
        state.held = held;
        if !held {
            state.streams.values_mut().for_each(|s| s.1 = s.0);
        }
    }

    /// The last mark made on a stream, and how far it has come.
    pub fn progress(&self, stream: u64) -> (u64, u64) {
        self.state().streams.get(&stream).copied().unwrap_or_default()
    }

    /// Everything has come back, once.
    pub fn assert_clean(&self) {
        let state = self.state();
        assert_eq!(state.violations, Vec::<String>::new());
        assert!(state.segments.is_empty(), "segments leaked: {:?}", state.segments);
        assert!(state.ranges.is_empty(), "ranges leaked: {:?}", state.ranges);
        assert_eq!(state.used, 0);
    }

    /// Notes a call; `Err` if it is the one that is to fail.
    fn call(&self, which: Call) -> Result<Guard<'_, State>, PortError> {
        let mut state = self.state();
        state.calls.push(which);
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if number == self.fail_at.load(Ordering::Relaxed) {
            return Err(PortError::Failed(format!("injected into call {number}, {which:?}")));
        }
        Ok(state)
    }
}

impl Segments for TestDevice {
    fn alloc(&self, len: u64, _stream: u64) -> Result<RawSegment, PortError> {
        let mut state = self.call(Call::Alloc)?;
        if len > self.total - state.used {
            return Err(PortError::OutOfMemory);
        }
        state.used += len;
        let addr = state.next;
        state.next += len + 2 * MIB;
        state.segments.insert(addr, len);
        Ok(RawSegment { token: addr, addr, len })
    }

    fn free(&self, segment: RawSegment, _stream: u64) -> Result<(), PortError> {
        let mut state = self.call(Call::Free)?;
        if state.segments.remove(&segment.addr) != Some(segment.len) {
            state.violations.push(format!("free of {segment:?}, which is not live"));
            return Ok(());
        }
        state.used -= segment.len;
        Ok(())
    }

    fn memory(&self) -> DeviceMemory {
        DeviceMemory { total: self.total, free: Some(self.total - self.state().used) }
    }
}

impl Virtual for TestDevice {
    fn reserve(&self, len: u64, unit: u64, _stream: u64) -> Result<RawSegment, PortError> {
        let mut state = self.call(Call::Reserve)?;
        if !len.is_multiple_of(unit) {
            state.violations.push(format!("reserve of {len}, not in units of {unit}"));
        }
        let addr = state.next;
        state.next += len + 2 * MIB;
        state.ranges.insert(addr, (len, BTreeMap::new()));
        Ok(RawSegment { token: addr, addr, len })
    }

    fn release(&self, range: RawSegment) -> Result<(), PortError> {
        let mut state = self.call(Call::Release)?;
        match state.ranges.remove(&range.addr) {
            Some((_, mapped)) if mapped.is_empty() => {}
            other => state.violations.push(format!("release of {range:?}: {other:?}")),
        }
        Ok(())
    }

    fn map(&self, range: RawSegment, offset: u64, len: u64, unit: u64) -> Result<(), PortError> {
        let mut state = self.call(Call::Map)?;
        if len > self.total - state.used {
            return Err(PortError::OutOfMemory);
        }
        state.used += len;
        let State { ranges, violations, .. } = &mut *state;
        let Some((size, mapped)) = ranges.get_mut(&range.addr) else {
            violations.push(format!("map in {range:?}, which is not live"));
            return Ok(());
        };
        if !offset.is_multiple_of(unit) || !len.is_multiple_of(unit) || offset + len > *size {
            violations.push(format!("map {offset}+{len} in units of {unit} of {size}"));
        }
        for at in (offset..offset + len).step_by(unit as usize) {
            if mapped.insert(at, unit).is_some() {
                violations.push(format!("mapped twice: {at}"));
            }
        }
        Ok(())
    }

    fn unmap(&self, range: RawSegment, offset: u64, len: u64, unit: u64, _stream: u64) -> Result<(), PortError> {
        let mut state = self.call(Call::Unmap)?;
        state.used -= len;
        let State { ranges, violations, .. } = &mut *state;
        let Some((_, mapped)) = ranges.get_mut(&range.addr) else {
            violations.push(format!("unmap in {range:?}, which is not live"));
            return Ok(());
        };
        for at in (offset..offset + len).step_by(unit as usize) {
            if mapped.remove(&at) != Some(unit) {
                violations.push(format!("not mapped: {at}"));
            }
        }
        Ok(())
    }
}

impl Marks for TestDevice {
    fn mark(&self, stream: u64) -> Result<u64, PortError> {
        let mut state = self.call(Call::Mark)?;
        let held = state.held;
        let entry = state.streams.entry(stream).or_default();
        entry.0 += 1;
        if !held {
            entry.1 = entry.0;
        }
        Ok(entry.0)
    }

    fn completed(&self, stream: u64) -> Result<u64, PortError> {
        Ok(self.call(Call::Completed)?.streams.get(&stream).map_or(0, |s| s.1))
    }

    fn wait(&self, stream: u64, mark: u64) -> Result<(), PortError> {
        let mut state = self.call(Call::Wait)?;
        if let Some(entry) = state.streams.get_mut(&stream) {
            entry.1 = entry.1.max(mark);
        }
        Ok(())
    }
}

pub fn take(cache: &DeviceCache, size: u64, stream: u64) -> Allocation {
    let block = cache.alloc(size, stream).unwrap().unwrap();
    cache.audit().unwrap();
    block
}

pub fn free(cache: &DeviceCache, block: Allocation) {
    cache.free(block.handle).unwrap();
    cache.audit().unwrap();
}

pub fn oom(result: Result<Option<Allocation>, AllocError>) -> Box<OutOfMemory> {
    match result {
        Err(AllocError::OutOfMemory(report)) => report,
        other => panic!("expected out of memory, got {other:?}"),
    }
}
