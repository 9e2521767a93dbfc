//! Streams that another library made, on the CUDA backend over a driver that needs no card. A process of its own: the
//! driver's library is chosen by variables.

use anyaccel::{Error, EventOptions, GraphError, GraphOptions, Runtime, StreamOptions};
use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn main() -> ExitCode {
    if let Some(name) = env::var_os("ANYACCEL_SANITIZER") {
        println!("skipped: no program can load the driver's library when both are built for {}", name.display());
        return ExitCode::SUCCESS;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake-cuda-external");
    let installed = anyaccel_fake_cuda::install(&folder, (12, 2)).expect("a fake driver");
    // SAFETY: no other thread runs yet.
    unsafe {
        env::set_var("ANYACCEL_CUDA_LIBRARY", &installed.cuda);
        env::set_var("ANYACCEL_NVML_LIBRARY", &installed.nvml);
        env::remove_var("CUDA_VISIBLE_DEVICES");
    }
    work_of_both_is_in_one_order();
    a_stream_of_others_waits_on_the_device();
    a_name_of_no_stream_is_refused();
    a_backend_without_such_streams_says_so();
    println!("test result: ok. 4 passed");
    ExitCode::SUCCESS
}

fn work_of_both_is_in_one_order() {
    let runtime = Runtime::builder().backend("cuda").build().unwrap();
    // The other library's, which here is ours.
    let theirs = runtime.stream(()).unwrap();
    let native = theirs.native_handle().unwrap();
    assert_ne!(native, 0);
    // SAFETY: it is a stream of that device, and outlives the runtime's use of it.
    let external = unsafe { runtime.external_stream((), native) }.unwrap();
    assert_eq!(external.native_handle().unwrap(), native);
    assert_ne!(external, theirs, "a stream of its own, over the same queue");

    let buffer = runtime.alloc(4096).unwrap();
    runtime.synchronize(()).unwrap();
    let held = Arc::new(AtomicBool::new(true));
    let hold = Arc::clone(&held);
    let wait = move || {
        while hold.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    };
    theirs.host_fn(wait).unwrap();
    external.fill(&buffer.all(), &[5]).unwrap();
    let event = runtime.event(EventOptions::default()).unwrap();
    event.record(Some(&external)).unwrap();
    assert!(!event.query().unwrap(), "behind what the other library enqueued");
    theirs.fill(&buffer.slice(..8).unwrap(), &[6]).unwrap();
    held.store(false, Ordering::Release);
    external.synchronize().unwrap();
    theirs.synchronize().unwrap();
    let seen = buffer.to_vec().unwrap();
    assert_eq!((&seen[..8], &seen[8..16]), (&[6; 8][..], &[5; 8][..]));

    // It leaves the stream to its maker.
    drop(external);
    runtime.synchronize(()).unwrap();
    theirs.fill(&buffer.all(), &[7]).unwrap();
    theirs.synchronize().unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [7; 4096]);
}

fn a_stream_of_others_waits_on_the_device() {
    let runtime = Runtime::builder().backend("cuda").build().unwrap();
    // Another library, with a runtime of its own on the same device.
    let library = Runtime::builder().backend("cuda").build().unwrap();
    let theirs = library.stream_with((), StreamOptions { priority: 0, reserved: true }).unwrap();
    let native = theirs.native_handle().unwrap();
    assert_eq!(runtime.stream_from_native((), native).unwrap(), None);

    let ours = runtime.stream(()).unwrap();
    let held = Arc::new(AtomicBool::new(true));
    let hold = Arc::clone(&held);
    let wait = move || {
        while hold.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    };
    ours.host_fn(wait).unwrap();
    // SAFETY: it is a stream of that device, and lives.
    unsafe { ours.external_wait(native) }.unwrap();
    let event = library.event(EventOptions::default()).unwrap();
    event.record(Some(&theirs)).unwrap();
    assert!(!event.query().unwrap() && !theirs.query().unwrap(), "behind what we enqueued");
    held.store(false, Ordering::Release);
    event.synchronize().unwrap();
    assert!(ours.query().unwrap());
    // Its maker may destroy it at once: nothing of ours names it any more.
    drop(theirs);
    library.synchronize(()).unwrap();
    ours.fill(&runtime.alloc(64).unwrap().all(), &[1]).unwrap();
    runtime.synchronize(()).unwrap();

    let graph = runtime.graph(GraphOptions::default());
    let inside = graph.capture(|| {
        // SAFETY: it is refused before anybody looks at the name.
        let refused = unsafe { runtime.current_stream(())?.external_wait(native) };
        assert!(matches!(refused, Err(Error::Graph(GraphError::OutsideEvent { .. }))), "{refused:?}");
        Ok::<(), Error>(())
    });
    inside.unwrap();
}

fn a_name_of_no_stream_is_refused() {
    let runtime = Runtime::builder().backend("cuda").build().unwrap();
    // SAFETY: as below.
    let error = unsafe { runtime.default_stream(()).unwrap().external_wait(0x10) }.unwrap_err();
    assert!(error.to_string().contains("cuStream"), "{error}");
    // SAFETY: the fake driver checks handles: nothing is done with one that it does not know.
    let error = unsafe { runtime.external_stream((), 0x10) }.unwrap_err();
    assert!(matches!(error, Error::Driver { .. }), "{error:?}");
    assert!(error.to_string().contains("cuStream"), "{error}");
}

fn a_backend_without_such_streams_says_so() {
    let runtime = Runtime::builder().backend("host").build().unwrap();
    // SAFETY: the host device has none, and looks at no name.
    let error = unsafe { runtime.default_stream(()).unwrap().external_wait(1) }.unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    // SAFETY: as above.
    let error = unsafe { runtime.external_stream((), 1) }.unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
}
