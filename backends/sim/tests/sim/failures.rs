//! Faults on demand, lost devices, memory that others take, work that fails.

use crate::support::{MIB, at, rig, small};
use anyaccel_hal::{Driver, Fault, FaultKind, HostStatus, Until, Waited};
use anyaccel_sim::{Injection, Interleaving, Method, SimConfig};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

#[test]
fn the_nth_call_fails_and_has_no_effect() {
    let rig = rig(small());
    let stream = rig.d().stream();
    let injected = rig.sim.inject(Injection::kind(Method::Alloc, FaultKind::OutOfMemory).nth(2).times(2));
    let results: Vec<_> = (0..4).map(|_| rig.devices[0].alloc(MIB).is_ok()).collect();
    assert_eq!(results, [true, false, false, true]);
    assert_eq!((rig.sim.used(0), rig.sim.fired(injected)), (2 * MIB, 2));

    let fault = Fault::new(FaultKind::Driver, "simMark").code(719);
    rig.sim.inject(Injection::new(Method::Mark, fault.clone()));
    assert_eq!(rig.d().try_mark(stream), Err(fault));
    assert_eq!(rig.d().mark(stream), 1);

    let log: Vec<_> = rig.sim.log().iter().rev().take(2).map(|call| (call.method, call.fault)).collect();
    assert_eq!(log, [(Method::Mark, None), (Method::Mark, Some(FaultKind::Driver))]);
}

#[test]
fn every_method_that_can_fail_can_be_made_to() {
    for &method in Method::ALL.iter().filter(|method| method.can_fail()) {
        let rig = rig(small());
        let (mem, stream) = (rig.d().alloc(64).mem, rig.d().stream());
        let other = rig.sim.driver();
        let device = &rig.devices[0];
        let gate = device.gates().unwrap().create().unwrap();
        let (range, segment) = device.virtual_memory().unwrap().reserve(4 * MIB).unwrap();
        let (pinned, ptr) = device.pinned().unwrap().alloc(64).unwrap();
        let kernel = device.builtin(1).unwrap();
        let mut foreign = [0u8; 64];
        let foreign_ptr = anyaccel_hal::HostPtr(foreign.as_mut_ptr());
        let injected = rig.sim.inject(Injection::kind(method, FaultKind::Driver).for_ever());
        let before = rig.sim.live(0);
        let fault = |result: Result<(), Fault>| result.map_err(|fault| (fault.kind, fault.api));
        let stamp = |device: &dyn anyaccel_hal::Device| {
            // SAFETY: H1: the stream is live.
            unsafe { device.stamp(stream) }
        };
        // SAFETY: H1, H4, H5: all handles and the host memory are live, and nothing gets through to the work.
        let result = unsafe {
            match method {
                Method::Start => fault(other.start().map(drop)),
                Method::Open => fault(other.open(0).map(drop)),
                Method::MemoryInfo => fault(device.memory_info().map(drop)),
                Method::Alloc => fault(device.alloc(1).map(drop)),
                Method::Free => fault(device.free(mem)),
                Method::Import => fault(device.import(foreign.as_ptr() as u64, 64).map(drop)),
                Method::CreateStream => fault(device.create_stream(0).map(drop)),
                Method::DestroyStream => fault(device.destroy_stream(stream)),
                Method::Mark => fault(device.mark(stream).map(drop)),
                Method::Wait => fault(rig.d().wait(stream, stream, 0)),
                Method::WaitHost => fault(rig.d().wait_host(stream, Until::Now).map(drop)),
                Method::Completed => fault(device.completed(stream).map(drop)),
                Method::Stamp => fault(stamp(&**device).map(drop)),
                Method::ElapsedNs => {
                    let stamp = stamp(&**device).unwrap();
                    let result = fault(device.elapsed_ns(stamp, stamp).map(drop));
                    device.drop_stamp(stamp);
                    result
                }
                Method::Copy => fault(rig.d().upload(stream, at(mem, 0), &foreign)),
                Method::Fill => fault(rig.d().fill(stream, at(mem, 0), 1, 1)),
                Method::Write => fault(rig.d().write(stream, at(mem, 0), &[1])),
                Method::HostCall => fault(rig.d().call(stream, |_| ())),
                Method::Launch => fault(rig.d().launch(stream, kernel, anyaccel_hal::Launch::linear(1, 1), &[])),
                Method::PinnedAlloc => fault(device.pinned().unwrap().alloc(1).map(drop)),
                Method::PinnedRegister => fault(device.pinned().unwrap().register(foreign_ptr, 64).map(drop)),
                Method::PinnedFree => fault(device.pinned().unwrap().free(pinned)),
                Method::PeersCopy => fault(device.peers().unwrap().copy(stream, at(mem, 0), 1, at(mem, 0), 1)),
                Method::Reserve => fault(device.virtual_memory().unwrap().reserve(4 * MIB).map(drop)),
                Method::Map => fault(device.virtual_memory().unwrap().map(range, 0, 2 * MIB)),
                Method::Unmap => fault(device.virtual_memory().unwrap().unmap(range, 0, 2 * MIB)),
                Method::Release => fault(device.virtual_memory().unwrap().release(range)),
                Method::Load => {
                    let kernel = anyaccel_hal::HostKernel::new(|_, _| ());
                    fault(device.kernels().unwrap().load(anyaccel_hal::KernelSource::Host(kernel)).map(drop))
                }
                Method::GateCreate => fault(device.gates().unwrap().create().map(drop)),
                Method::GateWait => fault(device.gates().unwrap().wait(stream, gate)),
                Method::GateOpen => fault(device.gates().unwrap().open(gate)),
                Method::Utilization => fault(device.telemetry().unwrap().utilization().map(drop)),
                Method::MemoryUsage => fault(device.telemetry().unwrap().memory_usage().map(drop)),
                Method::Temperature => fault(device.telemetry().unwrap().temperature().map(drop)),
                Method::PowerDraw => fault(device.telemetry().unwrap().power_draw().map(drop)),
                Method::ClockRate => fault(device.telemetry().unwrap().clock_rate().map(drop)),
                other => panic!("{other} is not tested"),
            }
        };
        assert_eq!(result, Err((FaultKind::Driver, method.name())), "{method}");
        assert_eq!(rig.sim.fired(injected), 1, "{method}");
        assert_eq!((rig.sim.live(0), rig.sim.pending(stream)), (before, u64::from(method == Method::ElapsedNs)));
        assert_eq!((ptr.0.is_null(), segment.len), (false, 4 * MIB));
        rig.clean();
    }
}

#[test]
fn what_cannot_fail_is_not_injected_silently() {
    let rig = rig(small());
    rig.sim.inject(Injection::kind(Method::DropStamp, FaultKind::Driver));
    assert_eq!(rig.violations(), ["inject broken in drop_stamp: this method has no way to fail"]);
}

#[test]
fn a_start_can_fail_a_few_times() {
    let sim = small().build();
    let driver = sim.driver();
    sim.inject(Injection::kind(Method::Start, FaultKind::Driver).times(2));
    let starts: Vec<_> = (0..3).map(|_| driver.start().ok()).collect();
    assert_eq!(starts, [None, None, Some(1)]);
}

#[test]
fn a_lost_device_refuses_everything_but_giving_back() {
    let rig = rig(SimConfig::new().memories([MIB, MIB]));
    let (mem, stream) = (rig.d().alloc(64).mem, rig.d().stream());
    let (other_mem, other) = (rig.on(1).alloc(64).mem, rig.on(1).stream());
    let seen = Arc::new(Mutex::new(Vec::new()));
    rig.d().fill(stream, at(mem, 0), 1, 64).unwrap();
    for _ in 0..2 {
        let seen = Arc::clone(&seen);
        rig.d().call(stream, move |status| seen.lock().unwrap().push(status)).unwrap();
    }
    let mark = rig.d().mark(stream);
    rig.on(1).wait(other, stream, mark).unwrap();
    rig.on(1).fill(other, at(other_mem, 0), 1, 64).unwrap();
    // SAFETY: H1: the stream is live.
    let stamp = unsafe { rig.devices[0].stamp(stream) }.unwrap();
    rig.sim.lose_device(0);
    assert_eq!(*seen.lock().unwrap(), [HostStatus::Cancelled; 2]);
    let lost = |result: Result<(), Fault>| assert_eq!(result.map_err(|fault| fault.kind), Err(FaultKind::DeviceLost));
    lost(rig.devices[0].alloc(1).map(drop));
    lost(rig.devices[0].memory_info().map(drop));
    lost(rig.devices[0].create_stream(0).map(drop));
    lost(rig.d().try_mark(stream).map(drop));
    lost(rig.d().fill(stream, at(mem, 0), 1, 1));
    lost(rig.d().call(stream, |_| ()));
    lost(rig.d().wait_host(stream, Until::Mark(mark)).map(drop));
    // SAFETY: H1: the stamp is live.
    lost(unsafe { rig.devices[0].elapsed_ns(stamp, stamp) }.map(drop));
    assert_eq!(rig.d().completed(stream), mark);
    rig.on(1).sync(other);
    assert_eq!(rig.sim.peek(other_mem, 63, 1), Some(vec![1]));
    // SAFETY: H1: the stamp is live.
    unsafe { rig.devices[0].drop_stamp(stamp) };
    rig.d().free(mem).unwrap();
    rig.d().destroy(stream).unwrap();
    assert_eq!(rig.sim.live(0).total(), 0);
    rig.clean();
}

#[test]
fn a_device_is_lost_at_its_nth_operation() {
    let rig = rig(small());
    let (mem, stream) = (rig.d().alloc(64).mem, rig.d().stream());
    rig.sim.lose_device_at(0, 3);
    let marks: Vec<_> = (0..4)
        .map(|n| {
            rig.d().write(stream, at(mem, n), &[1]).unwrap();
            rig.d().mark(stream)
        })
        .collect();
    let fault = rig.d().wait_host(stream, Until::Now).unwrap_err();
    assert_eq!(fault.kind, FaultKind::DeviceLost);
    assert_eq!(rig.d().completed(stream), marks[3]);
    assert_eq!(rig.sim.executed().iter().filter(|executed| executed.what == "write").count(), 2);
}

#[test]
fn others_take_memory() {
    let rig = rig(small());
    assert_eq!(rig.devices[0].memory_info().unwrap().free, Some(64 * MIB));
    rig.sim.set_foreign_memory(0, 60 * MIB);
    assert_eq!(rig.devices[0].memory_info().unwrap().free, Some(4 * MIB));
    let fault = rig.devices[0].alloc(5 * MIB).unwrap_err();
    assert_eq!(fault.kind, FaultKind::OutOfMemory);
    assert_eq!(
        fault.note.as_deref(),
        Some("5242880 bytes asked, 4194304 free of 67108864: 0 used here, 62914560 by others")
    );
    rig.sim.set_foreign_memory(0, 0);
    rig.d().alloc(64 * MIB);
    assert_eq!(rig.devices[0].memory_info().unwrap().free, Some(0));
    let unknown = crate::support::rig(small().each_device(|device| device.capabilities.free_known = false));
    assert_eq!(unknown.devices[0].memory_info().unwrap().free, None);
}

#[test]
fn failed_work_is_told_once_and_cancels_the_functions_behind_it() {
    for interleaving in [Interleaving::RoundRobin, Interleaving::Eager] {
        let rig = rig(small().interleaving(interleaving));
        let (mem, stream) = (rig.d().alloc(64).mem, rig.d().stream());
        let (ran, cancelled) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let count = |ran: &Arc<AtomicU32>, cancelled: &Arc<AtomicU32>| {
            let (ran, cancelled) = (Arc::clone(ran), Arc::clone(cancelled));
            move |status| {
                let counter = if status == HostStatus::Run { &ran } else { &cancelled };
                counter.fetch_add(1, Ordering::Relaxed);
            }
        };
        rig.d().fill(stream, at(mem, 0), 5, 64).unwrap();
        rig.d().sync(stream);
        rig.sim.fail_work(stream, Fault::new(FaultKind::Driver, "simFill").code(9));
        rig.d().fill(stream, at(mem, 0), 6, 64).unwrap();
        rig.d().call(stream, count(&ran, &cancelled)).unwrap();
        let mark = rig.d().mark(stream);
        let fault = rig.d().wait_host(stream, Until::Mark(mark)).unwrap_err();
        assert_eq!((fault.kind, fault.code), (FaultKind::Driver, 9));
        assert_eq!(rig.d().completed(stream), mark);
        assert_eq!(rig.sim.peek(mem, 0, 1), Some(vec![5]));
        rig.d().call(stream, count(&ran, &cancelled)).unwrap();
        assert_eq!(rig.d().wait_host(stream, Until::Now), Ok(Waited::Ended));
        assert_eq!((ran.load(Ordering::Relaxed), cancelled.load(Ordering::Relaxed)), (1, 1));
        rig.d().free(mem).unwrap();
        rig.clean();
    }
}
