//! Rules of the caller, broken one by one: refused, explained, kept.

use crate::support::{MIB, Rig, at, rig, small};
use anyaccel_hal::{Arg, End, FaultKind, HostPtr, KernelSource, Launch, Mark, Stamp, StreamId, Until};
use anyaccel_sim::{Interleaving, SimConfig};

/// A broken rule: the call returns `Invalid` with the rule in its note, and the violation is kept with those words.
#[track_caller]
fn refused<T: std::fmt::Debug>(rig: &Rig, result: Result<T, anyaccel_hal::Fault>, rule: &str, words: &str) {
    let fault = result.expect_err("the rule was broken");
    assert_eq!(fault.kind, FaultKind::Invalid);
    let note = fault.note.unwrap_or_default();
    assert!(note.starts_with(&format!("{rule}: ")) && note.contains(words), "{note}");
    let violations = rig.violations();
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(violations[0].contains(words), "{violations:?}");
}

fn two() -> Rig {
    rig(SimConfig::new().memories([MIB, MIB]))
}

#[test]
fn handles_are_live_and_of_their_device() {
    let rig = two();
    let (mem, stream) = (rig.d().alloc(64).mem, rig.d().stream());
    let (foreign, there) = (rig.on(1).alloc(64).mem, rig.on(1).stream());
    refused(&rig, rig.d().fill(stream, at(foreign, 0), 1, 1), "H1", "is of device 1, used on device 0");
    refused(&rig, rig.d().fill(there, at(mem, 0), 1, 1), "H1", "is of device 1, used on device 0");
    refused(&rig, rig.d().free(foreign), "H1", "is of device 1");
    rig.d().free(mem).unwrap();
    refused(&rig, rig.d().free(mem), "H1", "memory #1 is stale");
    refused(&rig, rig.d().write(stream, at(mem, 0), &[1]), "H1", "memory #1 is stale");
    rig.d().destroy(stream).unwrap();
    refused(&rig, rig.d().try_mark(stream), "H1", "stream #2 is stale");
    refused(&rig, rig.d().try_mark(StreamId(5)), "H1", "not of this driver");
    let elsewhere = two();
    refused(&rig, rig.d().try_mark(elsewhere.d().stream()), "H1", "not of this driver");
    // SAFETY: H1 is what is being tested.
    unsafe {
        let device = &rig.devices[0];
        refused(&rig, device.elapsed_ns(Stamp(1), Stamp(1)), "H1", "stamp");
        device.drop_stamp(Stamp(1));
        assert_eq!(rig.violations().len(), 1);
        assert_eq!(device.native_mem(mem), 0);
        assert_eq!(rig.violations().len(), 1);
    }
}

#[test]
fn a_handle_does_not_serve_for_another_type() {
    let rig = two();
    let stream = rig.d().stream();
    refused(&rig, rig.d().free(anyaccel_hal::Mem(stream.0)), "H1", "another type");
}

#[test]
fn marks_come_from_their_stream() {
    let rig = two();
    let (a, b) = (rig.d().stream(), rig.d().stream());
    let mark = rig.d().mark(a);
    refused(&rig, rig.d().wait(b, a, mark + 1), "H1", "mark 2 was never given out by stream #1");
    refused(&rig, rig.d().wait_host(a, Until::Mark(mark + 1)), "H1", "mark 2 was never given out");
    // SAFETY: H1 is what is being tested.
    refused(&rig, unsafe { rig.devices[0].wait(a, b, Mark::Captured(1)) }, "H1", "capture");
}

#[test]
fn places_lie_inside_of_their_memory() {
    let rig = two();
    let (mem, stream) = (rig.d().alloc(64).mem, rig.d().stream());
    refused(&rig, rig.d().fill(stream, at(mem, 60), 1, 5), "H4", "5 bytes at offset 60 pass the end");
    refused(&rig, rig.d().write(stream, at(mem, 64), &[1]), "H4", "pass the end");
    refused(&rig, rig.d().fill(stream, at(mem, 0), 1, 0), "H4", "0 bytes");
    refused(&rig, rig.d().write(stream, at(mem, 0), &[]), "H4", "0 bytes");
    let (low, high) = (End::Device(at(mem, 0)), End::Device(at(mem, 8)));
    refused(&rig, rig.d().copy(stream, low, high, 9), "copy", "9 bytes at offset 0 and at 8 overlap");
    refused(&rig, rig.d().copy(stream, low, low, 1), "copy", "overlap");
    rig.d().copy(stream, low, high, 8).unwrap();
    assert_eq!(rig.sim.pending(stream), 1);
}

#[test]
fn memory_is_freed_when_its_work_has_ended_and_the_host_knows() {
    let rig = two();
    let (mem, a, b) = (rig.d().alloc(64).mem, rig.d().stream(), rig.d().stream());
    rig.d().fill(a, at(mem, 0), 1, 64).unwrap();
    refused(&rig, rig.d().free(mem), "H4", "1 operations that name it are pending");
    // It has run, and nobody could know.
    rig.d().completed(b);
    assert_eq!(rig.sim.pending(a), 0);
    refused(&rig, rig.d().free(mem), "H4", "the host has not seen the end of operation 1 of stream #2");
    // Another stream's mark tells as well, if it waited.
    let mark = rig.d().mark(a);
    rig.d().wait(b, a, mark).unwrap();
    let last = rig.d().mark(b);
    while rig.d().completed(b) < last {}
    rig.d().free(mem).unwrap();
    rig.clean();
}

#[test]
fn an_eager_simulation_finds_the_same() {
    let rig = rig(small().interleaving(Interleaving::Eager));
    let (mem, a, b) = (rig.d().alloc(64).mem, rig.d().stream(), rig.d().stream());
    rig.d().fill(a, at(mem, 0), 1, 64).unwrap();
    rig.d().fill(b, at(mem, 32), 2, 64 - 32).unwrap();
    let races = rig.violations();
    let expected = "write of 32..64 by operation 1 of stream #3 of device 0 is not ordered with write of 0..64 by operation \
                    1 of stream #2 of device 0";
    assert_eq!(races.len(), 1);
    assert!(races[0].contains(expected), "{races:?}");
    refused(&rig, rig.d().free(mem), "H4", "the host has not seen the end");
    // Reads do not race.
    let other = rig.d().alloc(64).mem;
    for stream in [a, b] {
        rig.d().copy(stream, End::Device(at(other, u64::from(stream == a) * 8)), End::Device(at(mem, 0)), 8).unwrap();
    }
    let notes = rig.violations();
    assert_eq!(notes.len(), 1, "b has not waited for a's fill: {notes:?}");
    rig.d().sync(a);
    rig.d().sync(b);
    rig.d().fill(b, at(mem, 0), 3, 64).unwrap();
    rig.clean();
}

#[test]
fn a_simulation_that_is_not_strict_minds_only_pending_work() {
    let rig = rig(small().interleaving(Interleaving::Eager).strict(false));
    let (mem, a, b) = (rig.d().alloc(64).mem, rig.d().stream(), rig.d().stream());
    rig.d().fill(a, at(mem, 0), 1, 64).unwrap();
    rig.d().fill(b, at(mem, 0), 2, 64).unwrap();
    rig.d().free(mem).unwrap();
    rig.clean();
}

#[test]
fn host_functions_tell_the_host() {
    let rig = rig(small());
    let (mem, a, b) = (rig.d().alloc(64).mem, rig.d().stream(), rig.d().stream());
    rig.d().fill(a, at(mem, 0), 1, 64).unwrap();
    rig.d().call(a, |_| ()).unwrap();
    rig.sim.step(a);
    rig.sim.step(a);
    rig.d().fill(b, at(mem, 0), 2, 64).unwrap();
    rig.d().sync(b);
    rig.d().free(mem).unwrap();
    rig.clean();
}

#[test]
fn host_memory_is_there_and_where_it_may_be() {
    let rig = rig(small());
    let (mem, stream) = (rig.d().alloc(64).mem, rig.d().stream());
    let place = End::Device(at(mem, 0));
    refused(&rig, rig.d().copy(stream, place, End::Host(HostPtr(std::ptr::null_mut())), 1), "H5", "null");
    let (pinned, ptr) = rig.devices[0].pinned().unwrap().alloc(64).unwrap();
    let near_the_end = HostPtr(ptr.0.wrapping_add(4090));
    refused(&rig, rig.d().copy(stream, place, End::Host(near_the_end), 7), "H5", "pass an end of pinned memory");
    refused(&rig, rig.d().copy(stream, place, End::Pinned(at(pinned, 4090)), 7), "H4", "pass the end of the block");
    refused(&rig, rig.d().copy(stream, place, End::Pinned(at(mem, 0)), 7), "H1", "pinned memory #1");
    refused(&rig, rig.d().fill(stream, at(pinned, 0), 1, 1), "H27", "named as device memory");
    rig.d().copy(stream, place, End::Host(ptr), 8).unwrap();
    // SAFETY: H5 is what is being tested.
    refused(&rig, unsafe { rig.devices[0].pinned().unwrap().free(pinned) }, "H5", "pending");
    rig.d().sync(stream);
    // SAFETY: H1, H5: its copy has ended.
    unsafe { rig.devices[0].pinned().unwrap().free(pinned) }.unwrap();
    rig.clean();

    let rig = crate::support::rig(small().each_device(|device| device.host_ends = false));
    let (mem, stream) = (rig.d().alloc(64).mem, rig.d().stream());
    refused(&rig, rig.d().upload(stream, at(mem, 0), &[1]), "H5", "host_ends is false");
}

#[test]
fn patterns_fit_the_place() {
    let rig = rig(small());
    let (mem, stream) = (rig.d().alloc(64).mem, rig.d().stream());
    refused(&rig, rig.d().pattern(stream, at(mem, 2), &[1; 4], 4), "H14", "offset 2 or length 4");
    refused(&rig, rig.d().pattern(stream, at(mem, 0), &[1; 4], 6), "H14", "offset 0 or length 6");
    rig.d().pattern(stream, at(mem, 4), &[1, 2, 3, 4], 8).unwrap();
    assert_eq!(rig.d().read(stream, at(mem, 4), 8), [1, 2, 3, 4, 1, 2, 3, 4]);
    rig.clean();
}

#[test]
fn streams_are_destroyed_when_their_work_has_ended() {
    let rig = rig(small());
    let (mem, a, b) = (rig.d().alloc(64).mem, rig.d().stream(), rig.d().stream());
    rig.d().fill(a, at(mem, 0), 1, 64).unwrap();
    let mark = rig.d().mark(a);
    refused(&rig, rig.d().destroy(a), "destroy_stream", "2 operations that have not ended");
    rig.d().wait(b, a, mark).unwrap();
    refused(&rig, rig.d().destroy(b), "destroy_stream", "1 operations");
    rig.d().sync(a);
    // The wait and a last mark are nobody's concern.
    rig.d().mark(b);
    rig.d().destroy(a).unwrap();
    rig.d().destroy(b).unwrap();
    assert_eq!(rig.sim.live(0).streams, 0);
    rig.clean();
}

#[test]
fn host_functions_do_not_call_the_driver() {
    let rig = rig(small());
    let stream = rig.d().stream();
    let device = std::sync::Arc::clone(&rig.devices[0]);
    rig.d().call(stream, move |_| assert!(device.memory_info().is_err())).unwrap();
    rig.d().sync(stream);
    let violations = rig.violations();
    assert_eq!(violations, ["H13 broken in memory_info: called inside a host function"]);
}

#[test]
fn arguments_of_kernels_are_aligned_and_kernels_outlive_their_launches() {
    let rig = rig(small().each_device(|device| device.place_alignment = 256));
    let (mem, stream) = (rig.d().alloc(512).mem, rig.d().stream());
    let kernels = rig.devices[0].kernels().unwrap();
    let source = KernelSource::Host(anyaccel_hal::HostKernel::new(|_, _| ()));
    // SAFETY: it does nothing.
    let kernel = unsafe { kernels.load(source) }.unwrap();
    let launch = Launch::linear(1, 1);
    let arg = |offset| [Arg::Place { place: at(mem, offset), len: 8 }];
    refused(&rig, rig.d().launch(stream, kernel, launch, &arg(8)), "H15", "offset 8");
    rig.d().launch(stream, kernel, launch, &arg(256)).unwrap();
    // SAFETY: H4 is what is being tested.
    unsafe { kernels.unload(kernel) };
    assert_eq!(rig.violations().len(), 1);
    rig.d().sync(stream);
    refused(&rig, rig.d().launch(stream, kernel, launch, &[]), "H1", "kernel");
}

#[test]
fn unmapped_bytes_and_bytes_in_use_are_guarded() {
    let rig = rig(small());
    let stream = rig.d().stream();
    let memory = rig.devices[0].virtual_memory().unwrap();
    let (range, segment) = memory.reserve(8 * MIB).unwrap();
    // SAFETY: H1; H4 is what is being tested.
    unsafe {
        memory.map(range, 2 * MIB, 2 * MIB).unwrap();
        refused(&rig, rig.d().fill(stream, at(segment.mem, 0), 1, 1), "H4", "not all backed");
        refused(&rig, rig.d().fill(stream, at(segment.mem, 4 * MIB - 1), 1, 2), "H4", "not all backed");
        rig.d().fill(stream, at(segment.mem, 2 * MIB), 1, 2 * MIB).unwrap();
        refused(&rig, memory.unmap(range, 2 * MIB, 2 * MIB), "H4", "unmapped under 1 operations");
        refused(&rig, memory.release(range), "H4", "pending");
        refused(&rig, rig.d().free(segment.mem), "H29", "belongs to a reserved range");
        rig.d().sync(stream);
        memory.release(range).unwrap();
    }
    rig.clean();
    assert_eq!(rig.sim.used(0), 0);
}

#[test]
fn devices_are_opened_after_the_start() {
    let sim = small().build();
    let driver = sim.driver();
    assert!(anyaccel_hal::Driver::open(&driver, 0).is_err());
    assert_eq!(sim.violations().len(), 1);
    assert_eq!(sim.violations()[0].rule, "H23");
}
