//! The production cache records what PyTorch 2.14's own allocator recorded: the calls that a recording of PyTorch's tells
//! of are made again, on a device that hands addresses out as the recorded one did. Every event must agree in its place,
//! action, address, size, stream and pool.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyaccel_engine::alloc::{
    Departures, DeviceCache, DeviceMemory, Handle, Marks, PoolId, PortError, Ports, RawSegment, Scope, Segments,
    Settings, Virtual,
};
use anyaccel_engine::history::{Action as Told, HistoryOptions, Records};
use anyaccel_snapshot::{Action, Event, Snapshot, read_file};

const MIB: u64 = 1 << 20;

/// Address space in steps of 2 MiB: always above what was handed out before, or the lowest gap that is wide enough.
struct Device {
    total: u64,
    base: u64,
    reuses: bool,
    state: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    used: u64,
    top: u64,
    /// Address -> end.
    ranges: BTreeMap<u64, u64>,
}

impl Device {
    fn place(&self, len: u64) -> RawSegment {
        let mut state = self.state.lock().unwrap();
        let room = len.next_multiple_of(2 * MIB);
        let mut addr = self.base.max(state.top);
        if self.reuses {
            addr = self.base;
            for (&start, &end) in &state.ranges {
                if start - addr >= room {
                    break;
                }
                addr = end;
            }
        }
        state.top = state.top.max(addr + room);
        state.ranges.insert(addr, addr + room);
        RawSegment { token: addr, addr, len }
    }

    fn take(&self, len: u64) -> Result<(), PortError> {
        let mut state = self.state.lock().unwrap();
        if len > self.total - state.used {
            return Err(PortError::OutOfMemory);
        }
        state.used += len;
        Ok(())
    }
}

impl Segments for Device {
    fn alloc(&self, len: u64, _stream: u64) -> Result<RawSegment, PortError> {
        self.take(len)?;
        Ok(self.place(len))
    }

    fn free(&self, segment: RawSegment, _stream: u64) -> Result<(), PortError> {
        let mut state = self.state.lock().unwrap();
        state.used -= segment.len;
        state.ranges.remove(&segment.addr);
        Ok(())
    }

    fn memory(&self) -> DeviceMemory {
        DeviceMemory { total: self.total, free: Some(self.total - self.state.lock().unwrap().used) }
    }
}

impl Virtual for Device {
    fn reserve(&self, len: u64, _unit: u64, _stream: u64) -> Result<RawSegment, PortError> {
        Ok(self.place(len))
    }

    fn release(&self, range: RawSegment) -> Result<(), PortError> {
        self.state.lock().unwrap().ranges.remove(&range.addr);
        Ok(())
    }

    fn map(&self, _range: RawSegment, _offset: u64, len: u64, _unit: u64) -> Result<(), PortError> {
        self.take(len)
    }

    fn unmap(&self, _range: RawSegment, _offset: u64, len: u64, _unit: u64, _stream: u64) -> Result<(), PortError> {
        self.state.lock().unwrap().used -= len;
        Ok(())
    }
}

/// Streams on which everything has ended.
impl Marks for Device {
    fn mark(&self, _stream: u64) -> Result<u64, PortError> {
        Ok(1)
    }

    fn completed(&self, _stream: u64) -> Result<u64, PortError> {
        Ok(1)
    }

    fn wait(&self, _stream: u64, _mark: u64) -> Result<(), PortError> {
        Ok(())
    }
}

fn told(action: Action) -> Told {
    match action {
        Action::Alloc => Told::Alloc,
        Action::FreeRequested => Told::FreeRequested,
        Action::FreeCompleted => Told::FreeCompleted,
        Action::SegmentAlloc => Told::SegmentAlloc,
        Action::SegmentFree => Told::SegmentFree,
        Action::SegmentMap => Told::SegmentMap,
        Action::SegmentUnmap => Told::SegmentUnmap,
        Action::Oom => Told::Oom,
        Action::Snapshot => Told::Snapshot,
        Action::Annotate => Told::Annotate,
    }
}

fn empties_the_cache(snapshot: &Snapshot, event: &Event) -> bool {
    snapshot.stacks.get(event.stack).iter().any(|&frame| snapshot.frame_name(frame) == "empty_cache")
}

/// Makes the calls of a trace.
fn replay(snapshot: &Snapshot, events: &[Event], device: &Arc<Device>) -> Records {
    let text = snapshot.settings.as_ref().map_or("", |settings| &settings.text);
    let ports = Ports { segments: device.clone(), growable: Some(device.clone()), marks: device.clone() };
    let cache = DeviceCache::new(0, ports, Settings::parse(text).unwrap(), Departures::NONE);
    cache.record_history(Some(&HistoryOptions::new(usize::MAX)), false);
    let mut live: HashMap<u64, Handle> = HashMap::new();
    let mut emptying = false;
    for event in events {
        let (first, second) = snapshot.pools[usize::from(event.pool)];
        let scoped = |call: &dyn Fn()| {
            let pool = Some(PoolId(first, second)).filter(|pool| *pool != PoolId(0, 0));
            pool.inspect(|&pool| cache.begin_pool(pool, Scope::All).unwrap());
            call();
            pool.inspect(|&pool| cache.end_pool(pool).unwrap());
        };
        let before = emptying;
        emptying =
            matches!(event.action, Action::SegmentFree | Action::SegmentUnmap) && empties_the_cache(snapshot, event);
        if emptying && !before {
            cache.empty_cache().unwrap();
        }
        match event.action {
            Action::Alloc => {
                let block = Cell::new(None);
                scoped(&|| block.set(cache.alloc(event.size, event.stream).unwrap()));
                live.insert(event.addr, block.get().unwrap().handle);
            }
            Action::Oom => scoped(&|| assert!(cache.alloc(event.size, event.stream).is_err())),
            Action::FreeRequested => cache.free(live.remove(&event.addr).unwrap()).unwrap(),
            Action::Snapshot => drop(cache.history()),
            _ => {}
        }
    }
    cache.history().records
}

fn compare(snapshot: &Snapshot, ours: &Records, theirs: &[Event]) {
    for (at, (our, their)) in ours.iter().zip(theirs).enumerate() {
        let pool = ours.pool(our).map_or((0, 0), |pool| (pool.0, pool.1));
        assert_eq!(
            (our.action, our.addr, our.size, our.stream, pool),
            (told(their.action), their.addr, their.size, their.stream, snapshot.pools[usize::from(their.pool)]),
            "event {at}: ours {our:x?}, theirs {their:x?}"
        );
    }
    assert_eq!(ours.len(), theirs.len());
}

/// A recording, the memory of its devices in MiB, and whether they handed addresses out again.
fn check(name: &str, total: u64, reuses: bool) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/data/snapshots");
    let snapshot = read_file(&data.join(name)).unwrap();
    for (at, trace) in snapshot.traces.iter().enumerate() {
        let base = (at as u64 + 2) << 44;
        let device = Arc::new(Device { total: total * MIB, base, reuses, state: Mutex::default() });
        compare(&snapshot, &replay(&snapshot, &trace.events, &device), &trace.events);
    }
}

#[test]
fn trims_are_told_as_pytorch_tells_them() {
    check("accumulate.pickle.gz", 81920, true);
}

#[test]
fn retries_are_told_as_pytorch_tells_them() {
    check("decode_tight.default.pickle.gz", 900, true);
}

#[test]
fn growable_segments_are_told_as_pytorch_tells_them() {
    check("gpt_varlen.exp.pickle.gz", 8192, false);
}

#[test]
fn running_out_of_memory_is_told_as_pytorch_tells_it() {
    check("oom_varlen.default.pickle.gz", 4400, true);
    check("edge/edge_oom_caught_twice.pickle", 81920, false);
}

#[test]
fn private_pools_and_several_devices_are_told_as_pytorch_tells_them() {
    check("graph.pickle.gz", 81920, false);
    check("edge/edge_mempool.pickle", 81920, false);
    check("two_devices.pickle.gz", 81920, false);
}

#[test]
fn snapshots_are_told_as_pytorch_tells_them() {
    check("edge/edge_second_snapshot.pickle", 81920, false);
}
