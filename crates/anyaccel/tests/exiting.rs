//! A process that is exiting. One test, since the order of what is called at exit is that of a whole process.
#![cfg(unix)]

use anyaccel::{Error, Runtime};

/// Called at exit after this library's own handler, which was registered later.
extern "C" fn late() {
    let refused = |runtime: &Runtime| {
        let exiting = matches!(runtime.alloc(10), Err(Error::Exiting { .. }));
        exiting && !runtime.is_started() && runtime.synchronize(()).is_ok() && runtime.memory_allocated(()).is_ok()
    };
    let own = Runtime::builder().backend("host").build();
    let good = own.is_ok_and(|own| refused(&own)) && refused(&Runtime::global());
    // SAFETY: POSIX fork, at the end of the process.
    let pid = unsafe { libc::fork() };
    let (mut status, good_child) = (0, pid == 0 && refused(&Runtime::global()));
    // SAFETY: the child made above; then the process ends with what was found.
    unsafe {
        if pid > 0 {
            libc::waitpid(pid, &raw mut status, 0);
        }
        libc::_exit(if (pid == 0 && good_child) || (pid > 0 && good && status == 0) { 0 } else { 1 });
    }
}

#[test]
fn nothing_starts_any_more() {
    // SAFETY: POSIX fork, before this library was used, so that the order of handlers at exit is the child's to choose.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: a plain function.
        unsafe { libc::atexit(late) };
        let runtime = Runtime::builder().backend("host").build().expect("it is built in");
        let stream = runtime.stream(()).expect("the host starts");
        stream.host_fn(|| std::thread::sleep(std::time::Duration::from_millis(50))).expect("a thread");
        std::process::exit(2);
    }
    let mut status = 0;
    // SAFETY: the child made above.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
}
