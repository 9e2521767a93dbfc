//! Work that fails on the device while the device lives (H33).
//!
//! There is no portable way to make a command fail. Here a fill on the native queue waits for an event of the host that ends
//! with an error. PoCL 3.1 then fails the fill and the marker behind it; Intel's runtime ignores the error and runs the
//! fill, which the specification leaves to it. PoCL 3.1 ends the process if a barrier waits for the failed
//! command (`PTHREAD ERROR in pocl_update_event_failed()`), as the one of a host function does: there is none in the test
//! on PoCL.

use crate::{Bench, at, devices_by, sys};
use anyaccel_hal::{FaultKind, HostFn, HostStatus, Pattern, Waited};
use anyaccel_opencl::Addressing;
use std::ptr;
use std::sync::mpsc;

#[test]
fn its_fault_is_told_once_and_later_work_runs() {
    let library = match sys::Library::load() {
        Ok(library) => library,
        Err(absent) => {
            eprintln!("skipped: {absent:?}");
            return;
        }
    };
    let api = &library.api;
    for device in devices_by(&[Addressing::Buffer]) {
        let bench = Bench::new(device);
        let pocl = bench.device.info().name.starts_with("pthread");
        let mem = bench.alloc(64);
        bench.upload(mem, &[1; 64]);
        // SAFETY: H1. The queue is live, and so is its context while it is.
        let failed = unsafe {
            let queue =
                ptr::with_exposed_provenance_mut::<std::ffi::c_void>(bench.device.native_stream(bench.stream) as usize);
            let context = context_of(api, queue);
            let mut status = 0;
            let event = (api.clCreateUserEvent)(context, &mut status);
            assert_eq!(status, 0);
            let (list, byte, mut filled) = ([event], 2_u8, ptr::null_mut());
            let object = ptr::with_exposed_provenance_mut(bench.device.native_mem(mem) as usize);
            let (list, byte) = (list.as_ptr(), (&raw const byte).cast());
            assert_eq!((api.clEnqueueFillBuffer)(queue, object, byte, 1, 0, 64, 1, list, &mut filled), 0);
            [event, filled]
        };
        let (told, fate) = mpsc::channel();
        if pocl {
            drop(told);
        } else {
            let function = HostFn::new(move |status| told.send(status).unwrap_or(()));
            // SAFETY: H1, H13.
            unsafe { bench.device.host_call(bench.stream, function) }.expect("a call");
        }
        // SAFETY: H1. Without a marker behind it, a command that has failed leaves no trace.
        let _marked = unsafe { bench.device.mark(bench.stream) }.expect("a mark");
        // SAFETY: C1: the event is one of the host and not yet set.
        unsafe { assert_eq!((api.clSetUserEventStatus)(failed[0], -5), 0) };
        let first = bench.wait();
        let fate = fate.recv().ok();
        match &first {
            Err(fault) => {
                assert_eq!(fault.kind, FaultKind::Driver, "{fault}");
                assert_ne!(fate, Some(HostStatus::Run), "a function behind failed work");
            }
            // The runtime went on as if nothing had happened.
            Ok(waited) => assert_eq!((*waited, fate), (Waited::Ended, Some(HostStatus::Run))),
        }
        assert_eq!(bench.wait(), Ok(Waited::Ended), "the wait after the one that told");
        // SAFETY: H1, H4, H14.
        unsafe { bench.device.fill(bench.stream, at(mem, 0), Pattern::byte(3), 64) }.expect("a fill");
        assert_eq!(bench.read(mem, 64), [3; 64], "work after failed work");
        bench.free(mem);
        // SAFETY: C1: released once, and used no more.
        failed.into_iter().for_each(|event| unsafe { assert_eq!((api.clReleaseEvent)(event), 0) });
    }
}

/// The context of a queue.
///
/// # Safety
/// The queue is live.
unsafe fn context_of(api: &sys::Api, queue: sys::Raw) -> sys::Raw {
    /// `CL_QUEUE_CONTEXT`.
    const CONTEXT: u32 = 0x1090;
    // SAFETY: the loader has this function; its type is the specification's.
    let ask: unsafe extern "C" fn(sys::Raw, u32, usize, *mut std::ffi::c_void, *mut usize) -> sys::Status = unsafe {
        let handle = libc::dlopen(c"libOpenCL.so.1".as_ptr(), libc::RTLD_NOW);
        let found = libc::dlsym(handle, c"clGetCommandQueueInfo".as_ptr());
        assert!(!found.is_null());
        std::mem::transmute(found)
    };
    let mut context: sys::Raw = ptr::null_mut();
    // SAFETY: C1, C2: the answer is one handle. The table is of the same library.
    let status = unsafe { ask(queue, CONTEXT, size_of::<sys::Raw>(), (&raw mut context).cast(), ptr::null_mut()) };
    let _same_library = api;
    assert_eq!(status, 0);
    context
}
