//! With the last device the backend's own threads end; those of the platform stay. A program of its own, so that no other
//! test has threads meanwhile.

use anyaccel_hal::{HostFn, Until, WaitMode, Waited};
use anyaccel_opencl::driver_by_name;
use std::fs;
use std::time::{Duration, Instant};

/// Threads of this process that the backend has named.
fn own_threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(Result::ok);
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("anyaccel-opencl")).count()
}

#[test]
fn threads_end_with_the_last_device() {
    if !cfg!(target_os = "linux") {
        return;
    }
    for _ in 0..3 {
        let driver = driver_by_name();
        if driver.start() == Ok(0) {
            let required = std::env::var("ANYACCEL_REQUIRE").is_ok_and(|list| list.split(',').any(|at| at == "opencl"));
            assert!(!required, "ANYACCEL_REQUIRE asks for opencl, but {:?}", driver.probe().absence);
            eprintln!("skipped: no OpenCL device here");
            return;
        }
        let device = driver.open(0).expect("a device");
        let stream = device.create_stream(0).expect("a stream");
        let memory = device.alloc(64).expect("memory");
        let (done, ran) = std::sync::mpsc::channel();
        let deadline = Some(Instant::now() + Duration::from_secs(60));
        // SAFETY: H1, H13: the function neither unwinds nor calls the driver.
        let waited = unsafe {
            device.host_call(stream, HostFn::new(move |_| done.send(()).unwrap_or(()))).expect("a call");
            device.wait_host(stream, Until::Now, deadline, WaitMode::Auto)
        };
        assert_eq!(waited, Ok(Waited::Ended));
        assert!(ran.recv().is_ok());
        assert!(own_threads() > 0);
        // Stream and memory are left to the end of the driver.
        let _left = (stream, memory);
        drop((device, driver));
        let begin = Instant::now();
        while own_threads() > 0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "{} threads live on", own_threads());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
