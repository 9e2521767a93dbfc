//! Faults: what they name, and what goes on.

use crate::Scenario;
use crate::lab::{Lab, calls, control, driver, eventually};
use anyaccel_hal::{FaultKind, HostStatus, Place};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const LOST: u32 = 0x7000_0001;
const NO_HOST_MEMORY: u32 = 0x7000_0002;
const NO_DEVICE_MEMORY: u32 = 0x7000_0003;
const UNKNOWN: u32 = 0x7fff_fffe;

pub(crate) const ALL: &[Scenario] = &[
    Scenario::new("the_first_failing_call_is_named", the_first_failing_call),
    Scenario::new("other_devices_go_on", other_devices_go_on),
    Scenario::new("a_host_thread_that_waits_is_told_of_the_loss", told_of_the_loss),
    Scenario::new("out_of_device_memory_is_none_for_good", out_of_device_memory),
    Scenario::new("out_of_host_memory_is_told_apart", out_of_host_memory)
        .with(&[("ANYACCEL_FAKE_ZE_HOST_MEMORY", "4194304")]),
    Scenario::new("memory_that_is_not_backed_is_given_back", not_backed),
    Scenario::new("every_call_may_fail_once", every_call_may_fail),
    Scenario::new("a_refused_function_is_not_called", a_refused_function),
    Scenario::new("peers_that_do_not_reach", no_peers).with(&[("ANYACCEL_FAKE_ZE_PEERS", "0")]),
    Scenario::new("a_driver_without_virtual_memory", without_virtual_memory)
        .with(&[("ANYACCEL_FAKE_ZE_WITHOUT", "virtual_memory,graph")]),
    Scenario::new("other_kinds_go_on", other_kinds_go_on).with(&[("ANYACCEL_FAKE_ZE_FAIL", "*:all:0x7ffffffe")]),
];

fn the_first_failing_call() {
    let lab = Lab::new();
    let stream = lab.stream();
    let place = lab.memory(64);
    control().fail("zeCommandListAppendMemoryFill", 1, LOST);
    let expected = (FaultKind::DeviceLost, "zeCommandListAppendMemoryFill", i64::from(LOST));
    let fault = lab.fill(stream, place, 1, 64).expect_err("it was to fail");
    assert_eq!((fault.kind, fault.api, fault.code), expected);
    // Every later call tells of that one, whatever it is itself.
    let later = [
        lab.device.alloc(64).map(drop).expect_err("lost"),
        lab.mark(stream).map(drop).expect_err("lost"),
        lab.device.memory_info().map(drop).expect_err("lost"),
        lab.finish(stream).expect_err("lost"),
    ];
    for fault in later {
        assert_eq!((fault.kind, fault.api, fault.code), expected);
    }
    assert_eq!(lab.free(place.mem), Ok(()));
}

fn other_devices_go_on() {
    let driver = driver();
    driver.start().expect("a start");
    let (lost, lives) = (Lab::of(driver.clone(), 0), Lab::of(driver, 1));
    let (stream, other) = (lost.stream(), lives.stream());
    let place = lives.memory(64);
    let cancelled = Arc::new(AtomicU32::new(0));
    let _gate = lost.close(stream);
    let inside = cancelled.clone();
    lost.call(stream, move |status| {
        if status == HostStatus::Cancelled {
            inside.fetch_add(1, Ordering::SeqCst);
        }
    })
    .expect("a call");
    control().lose(0);
    assert_eq!(lost.device.alloc(64).map_err(|fault| fault.kind), Err(FaultKind::DeviceLost));
    eventually("the function is cancelled", || cancelled.load(Ordering::SeqCst) == 1);
    for byte in 1..20 {
        lives.fill(other, place, byte, 64).expect("a fill");
        assert_eq!(lives.read(other, place, 64), [byte; 64]);
    }
}

fn told_of_the_loss() {
    let lab = Lab::new();
    let stream = lab.stream();
    let _gate = lab.close(stream);
    let place = lab.memory(64);
    lab.fill(stream, place, 1, 64).expect("a fill");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| lab.finish(stream));
        std::thread::sleep(std::time::Duration::from_millis(20));
        control().lose(0);
        let fault = waits.join().expect("no panic").expect_err("the device is lost");
        assert_eq!(fault.kind, FaultKind::DeviceLost);
    });
}

fn out_of_device_memory() {
    let lab = Lab::new();
    let piece = 16 << 20;
    let mut taken = Vec::new();
    let fault = loop {
        match lab.device.alloc(piece) {
            Ok(segment) => taken.push(segment.mem),
            Err(fault) => break fault,
        }
    };
    let expected = (FaultKind::OutOfMemory, "zeMemAllocDevice", i64::from(NO_DEVICE_MEMORY));
    assert_eq!((fault.kind, fault.api, fault.code), expected);
    assert_eq!(taken.len(), 4);
    lab.free(taken[0]).expect("a free");
    lab.device.alloc(piece).expect("there is room again");
}

fn out_of_host_memory() {
    let lab = Lab::new();
    let pinned = lab.device.pinned().expect("pinned memory");
    let fault = pinned.alloc(16 << 20).expect_err("there is not so much");
    let expected = (FaultKind::OutOfMemory, "zeMemAllocHost", i64::from(NO_HOST_MEMORY));
    assert_eq!((fault.kind, fault.api, fault.code), expected);
    assert!(fault.to_string().contains("OUT_OF_HOST_MEMORY"), "{fault}");
    pinned.alloc(1 << 20).expect("there is so much");
}

fn not_backed() {
    let lab = Lab::new();
    control().fail("zeContextMakeMemoryResident", 1, NO_DEVICE_MEMORY);
    let fault = lab.device.alloc(48 << 20).expect_err("it can't be made resident");
    assert_eq!((fault.kind, fault.api), (FaultKind::OutOfMemory, "zeContextMakeMemoryResident"));
    lab.device.alloc(48 << 20).expect("nothing was kept of the first");
}

/// Each native call on the way of some work fails once; the fault names it, and the same work then succeeds.
fn every_call_may_fail() {
    let lab = Lab::new();
    let work = || -> Result<(), anyaccel_hal::Fault> {
        let stream = lab.device.create_stream(0)?;
        let other = lab.device.create_stream(-1)?;
        let place = Place { mem: lab.device.alloc(4096)?.mem, offset: 0 };
        lab.fill(stream, place, 1, 4096)?;
        lab.write(stream, place, &[7; 24])?;
        let mark = lab.mark(stream)?;
        lab.wait(other, stream, mark)?;
        lab.call(other, |_| ())?;
        lab.finish(other)?;
        lab.finish(stream)?;
        // SAFETY: H1: all work has ended.
        unsafe {
            lab.device.destroy_stream(other)?;
            lab.device.destroy_stream(stream)?;
        }
        lab.free(place.mem)
    };
    work().expect("it works");
    let before = calls().len();
    work().expect("it works");
    let names: BTreeSet<String> = calls()[before..]
        .iter()
        .filter_map(|line| line.split(|c: char| !c.is_alphanumeric()).find(|word| word.starts_with("ze")))
        .map(str::to_owned)
        .collect();
    assert!(names.len() > 10, "{names:?}");
    for name in &names {
        control().fail(name, 1, UNKNOWN);
        // What gives things back, or only prepares, may fail without anybody being told.
        match work() {
            Ok(()) => {}
            Err(fault) => {
                assert_eq!(fault.kind, FaultKind::Driver, "{name}: {fault}");
                assert_eq!((fault.api, fault.code), (name.as_str(), i64::from(UNKNOWN)));
            }
        }
        control().heal();
        let again = work();
        assert_eq!(again, Ok(()), "after {name} failed once");
    }
}

fn a_refused_function() {
    let lab = Lab::new();
    let stream = lab.stream();
    let (called, dropped) = (Arc::new(AtomicU32::new(0)), Arc::new(()));
    for name in ["zeCommandListAppendSignalEvent", "zeCommandListAppendWaitOnEvents"] {
        control().fail(name, 1, UNKNOWN);
        let (inside, kept) = (called.clone(), dropped.clone());
        let refused = lab.call(stream, move |_| {
            let _kept = &kept;
            inside.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(refused.map_err(|fault| fault.api), Err(name));
        assert_eq!(Arc::strong_count(&dropped), 1, "dropped at once");
        lab.finish(stream).expect("an end");
    }
    assert_eq!(called.load(Ordering::SeqCst), 0);
}

fn no_peers() {
    let driver = driver();
    driver.start().expect("a start");
    let (one, other) = (Lab::of(driver.clone(), 0), Lab::of(driver, 1));
    let peers = one.device.peers().expect("peers");
    assert!(!peers.can_access(1) && !peers.can_access(0) && !peers.can_access(9));
    assert_eq!(peers.limits().reachable, 0);
    let (to, from) = (one.memory(64), other.memory(64));
    // SAFETY: H1, H4: live memory of both devices.
    let fault = unsafe { peers.copy(one.stream(), to, 1, from, 64) }.expect_err("they do not reach each other");
    assert_eq!(fault.kind, FaultKind::Unsupported);
}

fn without_virtual_memory() {
    let lab = Lab::new();
    assert!(lab.device.virtual_memory().is_none() && lab.device.graphs().is_none());
}

fn other_kinds_go_on() {
    let runtime = anyaccel::Runtime::builder().backend("host").build().expect("a runtime of another kind");
    let buffer = runtime.zeros(64).expect("memory of another kind");
    assert_eq!(buffer.to_vec().expect("its bytes"), [0; 64]);
    let broken = anyaccel::Runtime::builder().backend("xpu").build().expect("a runtime that has not started");
    let error = broken.zeros(64).map(drop).expect_err("no call succeeds");
    println!("{error}");
}
