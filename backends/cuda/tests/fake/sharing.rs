//! Beside other users of the driver: contexts, native names, events of several processes.

mod ends;
mod events;

use crate::Scenario;
use crate::lab::{Lab, calls, eventually};
use anyaccel_cuda::sys::{self, CUcontext, CUstream};
use anyaccel_hal::{FaultKind, Place};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const ALL: &[Scenario] = &[
    Scenario::new("the_current_context_is_left_as_found", context_left_alone),
    Scenario::new("work_on_a_native_stream_is_seen", native_stream),
    Scenario::new("a_stream_of_somebody_else", borrowed_stream),
    Scenario::new("an_event_of_several_processes", interprocess),
    Scenario::new("an_event_that_either_process_records", events::recorded_on_either_side),
    Scenario::new("what_is_no_event_of_several_processes", events::refused),
    Scenario::new("a_device_that_shares_no_events", events::unshared).with(&[("ANYACCEL_FAKE_CUDA_IPC", "0")]),
    Scenario::new("registered_memory", registered),
    Scenario::new("a_driver_ends_beside_work_of_others", ends::beside_others),
    Scenario::new("a_runtime_ends_beside_work_of_others", ends::a_runtime),
    Scenario::new("a_driver_ends_with_work_of_its_own", ends::with_work),
    Scenario::new("memory_comes_back_behind_work_of_others", ends::memory_comes_back),
    Scenario::new("mappings_come_back_behind_work_of_others", ends::mappings_come_back),
    Scenario::new("the_process_exits_beside_work_of_others", ends::exit).with(&[("ANYACCEL_FAKE_CUDA_LATE", "abort")]),
    Scenario::new("memory_in_stream_order", in_stream_order).with(&[("ANYACCEL_CUDA_ALLOC", "async")]),
];

/// The context that is current on this thread.
fn current() -> CUcontext {
    let cuda = sys::cuda().expect("the fake");
    let mut context = CUcontext::NULL;
    // SAFETY: a valid place for the answer; what was there is put back.
    unsafe {
        if cuda.cuCtxPopCurrent_v2(&raw mut context).is_ok() {
            cuda.cuCtxPushCurrent_v2(context).expect("it was current");
        }
    }
    context
}

fn context_left_alone() {
    let lab = Lab::new();
    let stream = lab.stream();
    let place = lab.memory(64);
    let work = || {
        lab.fill(stream, place, 1, 64).expect("a fill");
        lab.call(stream, |_| ()).expect("a call");
        assert_eq!(lab.read(stream, place, 64), [1; 64]);
        assert!(lab.fill(stream, lab.nowhere(8), 1, 8).is_err());
    };
    assert_eq!(current(), CUcontext::NULL);
    work();
    assert_eq!(current(), CUcontext::NULL);
    let cuda = sys::cuda().expect("the fake");
    let mut other = CUcontext::NULL;
    // SAFETY: valid places for the answers; the context is retained until the process ends.
    unsafe {
        cuda.cuDevicePrimaryCtxRetain(&raw mut other, 1).expect("the other device's");
        cuda.cuCtxPushCurrent_v2(other).expect("it becomes current");
    }
    work();
    assert_eq!(current(), other);
}

/// Fills a byte of memory as another library would.
fn fill_natively(stream: u64, address: u64, byte: u8) {
    let cuda = sys::cuda().expect("the fake");
    let mut context = CUcontext::NULL;
    // SAFETY: valid places for the answers; stream and memory live.
    unsafe {
        cuda.cuDevicePrimaryCtxRetain(&raw mut context, 0).expect("a context");
        cuda.cuCtxPushCurrent_v2(context).expect("it becomes current");
        cuda.cuMemsetD8Async(address, byte, 1, CUstream(stream as usize)).expect("a fill");
        cuda.cuCtxPopCurrent_v2(&raw mut context).expect("it is current no more");
    }
}

fn native_stream() {
    let lab = Lab::new();
    let stream = lab.stream();
    let place = lab.memory(64);
    // SAFETY: H1.
    let (native, address) = unsafe { (lab.device.native_stream(stream), lab.device.native_mem(place.mem)) };
    assert!(native != 0 && address != 0);
    lab.finish(stream).expect("an end");
    let gates = lab.device.gates().expect("gates");
    let gate = gates.create().expect("a gate");
    // SAFETY: H1.
    unsafe { gates.wait(stream, gate) }.expect("a wait");
    lab.mark(stream).expect("a mark");
    // Nothing of ours lies between this mark and the one before.
    fill_natively(native, address, 9);
    let mark = lab.mark(stream).expect("a mark");
    // SAFETY: H1.
    let ended = unsafe { lab.device.completed(stream) }.expect("an answer");
    assert!(anyaccel_hal::Mark::At(ended) != mark, "it ended before the other library's work");
    // SAFETY: H1.
    unsafe { gates.open(gate) }.expect("an open gate");
    assert_eq!(lab.read(stream, place, 1), [9]);
}

fn borrowed_stream() {
    let lab = Lab::new();
    let theirs = lab.stream();
    // SAFETY: H1: the stream lives until the process ends.
    let native = unsafe { lab.device.native_stream(theirs) };
    // SAFETY: as above.
    let stream = unsafe { lab.device.import_stream(native) }.expect("a name for it");
    let destroyed = || calls().iter().filter(|call| *call == "cuStreamDestroy_v2").count();
    let before = destroyed();
    assert_ne!(stream, theirs);
    let place = lab.memory(64);
    lab.fill(stream, place, 5, 64).expect("a fill");
    // SAFETY: H1.
    fill_natively(native, unsafe { lab.device.native_mem(place.mem) }, 6);
    assert_eq!(lab.read(stream, place, 2), [6, 5]);
    // SAFETY: H1: its work has ended.
    unsafe { lab.device.destroy_stream(stream) }.expect("we let go of it");
    lab.fill(theirs, place, 7, 64).expect("its owner goes on");
    assert_eq!(lab.read(theirs, place, 1), [7]);
    assert_eq!(destroyed(), before, "it was not ours");
    // SAFETY: no stream is there.
    let nowhere = unsafe { lab.device.import_stream(0x10) };
    assert_eq!(nowhere.map_err(|fault| fault.kind), Err(FaultKind::Invalid));
}

fn interprocess() {
    let lab = Lab::new();
    let (one, other) = (lab.stream(), lab.stream());
    let events = lab.device.native_events().expect("events");
    assert_eq!(events.limits().ipc_bytes, 64);
    let plain = events.create(false).expect("an event");
    let shared = events.create(true).expect("an event");
    let mut handle = [0; 64];
    // SAFETY: H1, here and below.
    unsafe {
        assert_eq!(events.export(shared, &mut [0; 10]).map_err(|fault| fault.kind), Err(FaultKind::Invalid));
        assert!(events.export(plain, &mut handle).is_err(), "it was not made for that");
        events.export(shared, &mut handle).expect("a handle");
    }
    assert_eq!(events.import(&[1; 64]).map_err(|fault| fault.kind), Err(FaultKind::Invalid));
    assert_eq!(events.import(&[1; 3]).map_err(|fault| fault.kind), Err(FaultKind::Invalid));
    let again = events.import(&handle).expect("the same event");
    let gates = lab.device.gates().expect("gates");
    let gate = gates.create().expect("a gate");
    let reached = Arc::new(AtomicBool::new(false));
    let inside = reached.clone();
    // SAFETY: as above.
    unsafe {
        gates.wait(one, gate).expect("a wait");
        events.record(shared, one).expect("a record");
        events.wait(again, other).expect("a wait");
        lab.call(other, move |_| inside.store(true, Ordering::SeqCst)).expect("a call");
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!reached.load(Ordering::SeqCst), "it waits for the other process's stream");
        gates.open(gate).expect("an open gate");
        assert_ne!(events.native(shared), 0);
    }
    lab.finish(other).expect("an end");
    assert!(reached.load(Ordering::SeqCst));
    for event in [plain, shared, again] {
        // SAFETY: as above; used no more.
        unsafe { events.destroy(event) };
    }
}

fn registered() {
    let lab = Lab::new();
    let stream = lab.stream();
    let pinned = lab.device.pinned().expect("pinned memory");
    assert!(pinned.limits().register && pinned.limits().direct);
    let bytes = Box::leak(vec![7_u8; 10_000].into_boxed_slice());
    let ptr = anyaccel_hal::HostPtr(bytes.as_mut_ptr());
    // SAFETY: H1, H5: the memory is leaked, and work on it ends before it is freed.
    unsafe {
        let mem = pinned.register(ptr, 10_000).expect("a name");
        assert_eq!(pinned.register(ptr, 10_000).map_err(|fault| fault.kind), Err(FaultKind::Invalid), "twice");
        let place = lab.memory(10_000);
        let end = anyaccel_hal::End::Pinned(Place { mem, offset: 100 });
        lab.device.copy(stream, anyaccel_hal::End::Device(place), end, 9_900).expect("a copy");
        assert_eq!(lab.read(stream, place, 9_900), vec![7; 9_900]);
        assert!(lab.free(mem).is_err(), "it is no segment");
        pinned.free(mem).expect("giving it back");
        assert!(pinned.register(ptr, 10_000).is_ok(), "and again");
    }
}

fn in_stream_order() {
    let lab = Lab::new();
    let stream = lab.stream();
    let place = lab.memory(4096);
    lab.fill(stream, place, 3, 4096).expect("a fill");
    assert_eq!(lab.read(stream, place, 4096), [3; 4096]);
    // Giving memory back does not wait for a stream that is held up.
    let gates = lab.device.gates().expect("gates");
    let gate = gates.create().expect("a gate");
    // SAFETY: H1.
    unsafe { gates.wait(stream, gate) }.expect("a wait");
    let other = lab.memory(4096);
    lab.free(other.mem).expect("giving it back");
    lab.free(place.mem).expect("giving it back");
    // SAFETY: H1.
    unsafe { gates.open(gate) }.expect("an open gate");
    lab.finish(stream).expect("an end");
    assert!(!calls().iter().any(|call| call == "cuMemAlloc_v2" || call == "cuMemFree_v2"));
    eventually("the memory is there again", || {
        lab.device.memory_info().is_ok_and(|info| info.free == Some(info.total))
    });
}
