//! Any program: what it was recorded under does not matter to a replay, and what is written is read.
#![allow(missing_docs)]

use std::sync::Arc;

use anyaccel_engine::alloc::replay::FakeDevice;
use anyaccel_engine::alloc::{AllocError, Departures, DeviceCache, Handle, Settings, Stats};
use anyaccel_snapshot::replay::{Conf, replay};
use anyaccel_snapshot::{
    Action, Block, BlockState, Event, Frame, History, NameId, Segment, Snapshot, StackId, Trace, read_bytes,
};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const ROOMY: u64 = 1 << 40;

/// A step of a program: take so much, give the n-th live block back, or give everything unused back to the device.
#[derive(Clone, Debug)]
enum Step {
    Take(u64),
    Give(usize),
    Empty,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![1u64..2000, 1u64..MIB, MIB..40 * MIB];
    let step = prop_oneof![
        6 => size.prop_map(Step::Take),
        5 => any::<usize>().prop_map(Step::Give),
        1 => Just(Step::Empty),
    ];
    proptest::collection::vec(step, 1..200)
}

fn settings() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just(""),
        Just("expandable_segments:True"),
        Just("max_split_size_mb:20"),
        Just("roundup_power2_divisions:4"),
        Just("large_segment_size_mb:64"),
        Just("garbage_collection_threshold:0.5,per_process_memory_fraction:0.9"),
    ]
}

fn event(action: Action, addr: u64, size: u64) -> Event {
    Event {
        addr,
        size,
        stream: 0,
        time_us: 0,
        stack: StackId::ABSENT,
        user_metadata: NameId(0),
        compile_context: NameId(0),
        pool: 0,
        action,
    }
}

/// Runs the program for real; gives its counters, whether it ran out, and what a recorder would have written.
fn run(steps: &[Step], text: &str, total: u64) -> (Stats, bool, Snapshot) {
    let device = Arc::new(FakeDevice::quiet(total));
    let settings = Settings::parse(text).unwrap();
    let cache = DeviceCache::new(0, device.ports(), settings, Departures::NONE);
    let mut snapshot = Snapshot::new();
    let frame = Frame { name: snapshot.names.intern("empty_cache"), file: NameId(0), line: 0 };
    let frame = snapshot.frame(frame);
    let empty = snapshot.stacks.intern(&[frame]);
    let mut live: Vec<(Handle, u64, u64)> = Vec::new();
    let mut events = Vec::new();
    let mut failed = false;
    for step in steps {
        match *step {
            Step::Take(size) => match cache.alloc(size, 0) {
                Ok(Some(block)) => {
                    live.push((block.handle, block.addr, size));
                    events.push(event(Action::Alloc, block.addr, size));
                }
                Ok(None) => {}
                Err(AllocError::OutOfMemory(_)) => {
                    failed = true;
                    break;
                }
                Err(error) => panic!("{error}"),
            },
            Step::Give(at) => {
                if !live.is_empty() {
                    let (handle, addr, size) = live.swap_remove(at % live.len());
                    cache.free(handle).unwrap();
                    events.push(event(Action::FreeRequested, addr, size));
                    events.push(event(Action::FreeCompleted, addr, size));
                }
            }
            Step::Empty => {
                cache.empty_cache().unwrap();
                // A recording knows it by a segment that went; here one goes in any case.
                events.push(event(Action::SegmentAlloc, 1 << 30, 512));
                events.push(Event { stack: empty, ..event(Action::SegmentFree, 1 << 30, 512) });
            }
        }
    }
    let stats = cache.stats();
    snapshot.traces.push(Trace { events });
    for view in cache.snapshot() {
        let mut addr = view.addr;
        let mut segment = Segment {
            device: 0,
            addr,
            total: view.bytes(|_| true),
            allocated: view.bytes(|block| block.allocated),
            active: view.bytes(|block| block.active),
            requested: 0,
            stream: 0,
            large: view.large,
            growable: view.growable,
            pool: 0,
            stack: StackId::EMPTY,
            blocks: Vec::new(),
        };
        for block in &view.blocks {
            let state = if block.active { BlockState::Allocated } else { BlockState::Inactive };
            let requested = block.requested;
            segment.blocks.push(Block { addr, size: block.size, requested, stack: StackId::EMPTY, state });
            addr += block.size;
        }
        snapshot.segments.push(segment);
    }
    (stats, failed, snapshot)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_setting_of_the_recording_does_not_matter(
        steps in steps(),
        recorded in settings(),
        other in settings(),
        tight in 20u64..400,
    ) {
        let (_, failed, snapshot) = run(&steps, recorded, ROOMY);
        prop_assert!(!failed);
        let read = read_bytes(&snapshot.to_pickle()).unwrap();
        let history = History::of(&read, 0).unwrap();
        prop_assert_eq!(history.caveats().missing_frees + history.caveats().unseen_blocks, 0);
        for total in [ROOMY, tight * MIB] {
            let outcome = replay(&history, &Conf::new(Settings::parse(other).unwrap(), total));
            let (stats, failed, _) = run(&steps, other, total);
            prop_assert_eq!(outcome.exhausted.is_some(), failed);
            prop_assert_eq!(outcome.stats, stats);
        }
    }

    #[test]
    fn what_is_written_is_read(steps in steps(), recorded in settings()) {
        let (_, _, snapshot) = run(&steps, recorded, ROOMY);
        let pickle = snapshot.to_pickle();
        let read = read_bytes(&pickle).unwrap();
        prop_assert_eq!(&read.segments, &snapshot.segments);
        prop_assert_eq!(&read.traces[0].events, &snapshot.traces[0].events);
        prop_assert_eq!(read.to_pickle(), pickle);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Err(error) = read_bytes(&bytes) {
            prop_assert_eq!(error.to_string().lines().count(), 1);
        }
        let pickle = [b"\x80\x04".as_slice(), &bytes].concat();
        if let Err(error) = read_bytes(&pickle) {
            prop_assert_eq!(error.to_string().lines().count(), 1);
        }
    }
}
