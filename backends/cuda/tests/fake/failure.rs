//! Faults: what they name, and what goes on.

use crate::Scenario;
use crate::lab::{Lab, PATIENCE, calls, control, driver, eventually};
use anyaccel_hal::{CaptureMode, FaultKind, HostStatus, Until, WaitMode, Waited};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

pub(crate) const ALL: &[Scenario] = &[
    Scenario::new("the_first_failing_call_is_named", the_first_failing_call),
    Scenario::new("a_kernel_that_faults_loses_the_device", a_kernel_that_faults),
    Scenario::new("lost_in_the_middle_of_a_capture", lost_in_a_capture),
    Scenario::new("other_devices_go_on", other_devices_go_on),
    Scenario::new("out_of_memory_is_none_for_good", out_of_memory),
    Scenario::new("every_call_may_fail_once", every_call_may_fail),
    Scenario::new("a_refused_function_is_not_called", a_refused_function),
    Scenario::new("peers_that_do_not_reach", no_peers).with(&[("ANYACCEL_FAKE_CUDA_PEERS", "0")]),
    Scenario::new("a_lost_card_has_no_sensors", lost_sensors),
];

fn the_first_failing_call() {
    let lab = Lab::new();
    let stream = lab.stream();
    let place = lab.memory(64);
    control().fail("cuMemsetD8Async", 1, 719);
    let fault = lab.fill(stream, place, 1, 64).expect_err("it was to fail");
    assert_eq!((fault.kind, fault.api, fault.code), (FaultKind::DeviceLost, "cuMemsetD8Async", 719));
    // Every later call tells of that one, whatever it is itself.
    let later = [
        lab.device.alloc(64).map(drop).expect_err("lost"),
        lab.mark(stream).map(drop).expect_err("lost"),
        lab.device.memory_info().map(drop).expect_err("lost"),
    ];
    for fault in later {
        assert_eq!((fault.kind, fault.api, fault.code), (FaultKind::DeviceLost, "cuMemsetD8Async", 719));
    }
    assert_eq!(lab.free(place.mem), Ok(()));
}

fn a_kernel_that_faults() {
    let lab = Lab::new();
    let stream = lab.stream();
    let ptx = b".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry fault()\n{\n\tret;\n}\n";
    let kernel = lab.load(anyaccel_hal::Format::Ptx, ptx, "fault").expect("a kernel");
    lab.launch(stream, kernel, anyaccel_hal::Launch::linear(1, 1), &[]).expect("a launch");
    let fault = lab.finish(stream).expect_err("the kernel faults");
    assert_eq!((fault.kind, fault.code), (FaultKind::DeviceLost, 700));
    assert!(fault.note.is_some_and(|note| note.contains("ILLEGAL_ADDRESS")));
}

fn lost_in_a_capture() {
    let lab = Lab::new();
    let (stream, other) = (lab.stream(), lab.stream());
    let place = lab.memory(64);
    let graphs = lab.device.graphs().expect("graphs");
    // SAFETY: H1: streams of this device.
    unsafe { graphs.begin(stream, CaptureMode::ThreadLocal) }.expect("a capture");
    lab.fill(stream, place, 1, 64).expect("a node");
    control().lose(0);
    assert_eq!(lab.fill(stream, place, 2, 64).map_err(|fault| fault.kind), Err(FaultKind::DeviceLost));
    // SAFETY: as above.
    let ended = unsafe { graphs.end(stream) };
    assert_eq!(ended.map_err(|fault| fault.kind), Err(FaultKind::DeviceLost));
    // SAFETY: as above. It always succeeds.
    unsafe { graphs.abort(stream) };
    assert_eq!(lab.finish(other).map_err(|fault| fault.kind), Err(FaultKind::DeviceLost));
    // Nothing is left of the capture.
    assert!(matches!(lab.mark(stream), Err(fault) if fault.kind == FaultKind::DeviceLost));
}

fn other_devices_go_on() {
    let driver = driver();
    driver.start().expect("a start");
    let (lost, lives) = (Lab::of(driver.clone(), 0), Lab::of(driver, 1));
    let (stream, other) = (lost.stream(), lives.stream());
    let place = lives.memory(64);
    let cancelled = Arc::new(AtomicU32::new(0));
    let gates = lost.device.gates().expect("gates");
    let gate = gates.create().expect("a gate");
    // SAFETY: H1: of this device.
    unsafe { gates.wait(stream, gate) }.expect("a wait");
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

fn out_of_memory() {
    let lab = Lab::new();
    let piece = 16 << 20;
    let mut taken = Vec::new();
    let fault = loop {
        match lab.device.alloc(piece) {
            Ok(segment) => taken.push(segment.mem),
            Err(fault) => break fault,
        }
    };
    assert_eq!((fault.kind, fault.api, fault.code), (FaultKind::OutOfMemory, "cuMemAlloc_v2", 2));
    assert_eq!(fault.note.as_deref(), Some("CUDA_ERROR_OUT_OF_MEMORY"), "as the driver names it");
    assert_eq!(taken.len(), 4);
    lab.free(taken[0]).expect("a free");
    lab.device.alloc(piece).expect("there is room again");
}

/// Each native call on the way of some work fails once; the fault names it, and the same work then succeeds.
fn every_call_may_fail() {
    let lab = Lab::new();
    let stream = lab.stream();
    let work = || -> Result<(), anyaccel_hal::Fault> {
        let place = anyaccel_hal::Place { mem: lab.device.alloc(4096)?.mem, offset: 0 };
        lab.fill(stream, place, 3, 4096)?;
        lab.write(stream, place, &[1, 2, 3])?;
        lab.mark(stream)?;
        lab.call(stream, |_| ())?;
        lab.finish(stream)?;
        lab.free(place.mem)
    };
    work().expect("it works to begin with");
    let names: std::collections::BTreeSet<String> = calls().into_iter().collect();
    let control = control();
    let of_work =
        ["cuMemAlloc_v2", "cuMemsetD8Async", "cuLaunchKernel", "cuEventRecord", "cuLaunchHostFunc", "cuMemFree_v2"];
    for name in of_work {
        assert!(names.contains(name), "{name} was not called");
        control.fail(name, 1, 999);
        let fault = work().expect_err(name);
        assert_eq!((fault.kind, fault.api, fault.code), (FaultKind::Driver, name, 999));
        work().expect("it works again");
    }
}

fn a_refused_function() {
    let lab = Lab::new();
    let stream = lab.stream();
    control().fail("cuLaunchHostFunc", 1, 999);
    let (calls, kept) = (Arc::new(AtomicU32::new(0)), Arc::new(()));
    let (inside, guard) = (calls.clone(), kept.clone());
    let refused = lab.call(stream, move |_| {
        let _guard = &guard;
        inside.fetch_add(1, Ordering::SeqCst);
    });
    assert_eq!(refused.map_err(|fault| fault.api), Err("cuLaunchHostFunc"));
    assert_eq!((calls.load(Ordering::SeqCst), Arc::strong_count(&kept)), (0, 1), "it was dropped without a call");
    lab.finish(stream).expect("an end");
}

fn no_peers() {
    let driver = driver();
    driver.start().expect("a start");
    let (one, other) = (Lab::of(driver.clone(), 0), Lab::of(driver, 1));
    let (from, to) = (one.memory(64), other.memory(64));
    let peers = other.device.peers().expect("peers");
    assert!(!peers.can_access(0));
    assert_eq!(peers.limits().reachable, 0);
    let stream = other.stream();
    // SAFETY: H1, H4: live places of both devices.
    let fault = unsafe { peers.copy(stream, to, 0, from, 64) }.expect_err("there is no way");
    assert_eq!((fault.kind, fault.api), (FaultKind::Unsupported, "cuMemcpyPeerAsync"));
    assert!(fault.note.is_some_and(|note| note.contains("device 1 does not reach device 0")));
    // SAFETY: H1.
    let waited =
        unsafe { other.device.wait_host(stream, Until::Now, Some(Instant::now() + PATIENCE), WaitMode::Block) };
    assert_eq!(waited, Ok(Waited::Ended));
}

fn lost_sensors() {
    let lab = Lab::new();
    let sensors = lab.device.telemetry().expect("telemetry");
    assert!(sensors.temperature().is_ok());
    control().lose(0);
    assert_eq!(sensors.temperature().map_err(|fault| fault.kind), Err(FaultKind::DeviceLost));
}
