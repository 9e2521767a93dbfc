//! Threads that start in a child of a fork too.
//!
//! The threads of `std` take a lock of the standard library when they begin and when they end, in programs whose `main` is
//! Rust's: a table that tells overflown stacks by it. A fork while any thread is in there leaves it taken in the child, where
//! every further thread of `std` then hangs before its first line. A runtime that starts anew in a child (H24) must not depend on
//! when its parent forked, so its threads are made by the system's call. What they lose is the message of an overflown stack.

use std::io;

/// A thread. Dropping this leaves it to itself.
///
/// ```
/// use anyaccel_kit::Thread;
///
/// let (tell, told) = std::sync::mpsc::channel();
/// let thread = Thread::spawn("teller", move || tell.send(7).expect("somebody listens"))?;
/// assert_eq!(told.recv(), Ok(7));
/// thread.join();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Thread(imp::Thread);

impl Thread {
    /// Starts a thread of that name (15 bytes of it on Linux), with 2 MiB of stack. A panic in `body` ends it alone.
    ///
    /// # Errors
    /// If the system gives no more threads.
    pub fn spawn(name: &'static str, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        imp::spawn(name, Box::new(body)).map(Self)
    }

    /// Waits until it has ended.
    pub fn join(self) {
        self.0.join();
    }

    /// Whether it is the calling thread, which can't join itself.
    pub fn is_current(&self) -> bool {
        self.0.is_current()
    }
}

type Body = Box<dyn FnOnce() + Send>;

#[cfg(unix)]
mod imp {
    use super::Body;
    use std::ffi::c_void;
    use std::mem::{ManuallyDrop, MaybeUninit};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::{io, ptr};

    const STACK: usize = 2 << 20;

    #[derive(Debug)]
    pub(super) struct Thread(libc::pthread_t);

    // SAFETY: a thread's name may be used on any thread (POSIX), whatever type it has on a system.
    unsafe impl Send for Thread {}
    // SAFETY: as above; by reference it is compared alone.
    unsafe impl Sync for Thread {}

    struct Start {
        name: &'static str,
        body: Body,
    }

    extern "C" fn run(start: *mut c_void) -> *mut c_void {
        // SAFETY: the box that `spawn` gave to this thread alone.
        let Start { name, body } = *unsafe { Box::from_raw(start.cast::<Start>()) };
        name_this(name);
        // The hook has told of a panic, as for threads of std that nobody joins.
        let _told = catch_unwind(AssertUnwindSafe(body));
        ptr::null_mut()
    }

    #[cfg(target_os = "linux")]
    fn name_this(name: &str) {
        let mut bytes = [0_u8; 16];
        let len = name.len().min(15);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        // SAFETY: a terminated name of at most 16 bytes for this thread, as pthread_setname_np(3) demands.
        unsafe { libc::pthread_setname_np(libc::pthread_self(), bytes.as_ptr().cast()) };
    }

    #[cfg(not(target_os = "linux"))]
    fn name_this(_: &str) {}

    pub(super) fn spawn(name: &'static str, body: Body) -> io::Result<Thread> {
        let start = Box::into_raw(Box::new(Start { name, body }));
        let mut attr = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
        // SAFETY: POSIX: attributes are initialised, changed, used and destroyed in that order. `run` takes the box that it is
        // given, once. A size that the system doesn't take leaves its own.
        let failed = unsafe {
            let mut failed = libc::pthread_attr_init(attr.as_mut_ptr());
            if failed == 0 {
                libc::pthread_attr_setstacksize(attr.as_mut_ptr(), STACK);
                failed = libc::pthread_create(thread.as_mut_ptr(), attr.as_ptr(), run, start.cast());
                libc::pthread_attr_destroy(attr.as_mut_ptr());
            }
            failed
        };
        if failed == 0 {
            // SAFETY: pthread_create has filled it.
            Ok(Thread(unsafe { thread.assume_init() }))
        } else {
            // SAFETY: made above, and no thread has it.
            drop(unsafe { Box::from_raw(start) });
            Err(io::Error::from_raw_os_error(failed))
        }
    }

    impl Thread {
        pub(super) fn join(self) {
            let thread = ManuallyDrop::new(self);
            // SAFETY: made by pthread_create and neither joined nor detached: both take the value.
            unsafe { libc::pthread_join(thread.0, ptr::null_mut()) };
        }

        pub(super) fn is_current(&self) -> bool {
            // SAFETY: both name threads: this one, and one that was not joined.
            unsafe { libc::pthread_equal(self.0, libc::pthread_self()) != 0 }
        }
    }

    impl Drop for Thread {
        fn drop(&mut self) {
            // SAFETY: as in `join`.
            unsafe { libc::pthread_detach(self.0) };
        }
    }
}

#[cfg(not(unix))]
mod imp {
    use super::Body;
    use std::io;

    #[derive(Debug)]
    pub(super) struct Thread(std::thread::JoinHandle<()>);

    pub(super) fn spawn(name: &'static str, body: Body) -> io::Result<Thread> {
        std::thread::Builder::new().name(name.to_owned()).spawn(body).map(Thread)
    }

    impl Thread {
        pub(super) fn join(self) {
            // A panic in it has been told by the hook.
            let _ended = self.0.join();
        }

        pub(super) fn is_current(&self) -> bool {
            self.0.thread().id() == std::thread::current().id()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Thread;
    use std::sync::{Arc, mpsc};

    #[test]
    fn it_is_joined_or_left_to_itself() {
        let (tell, told) = mpsc::channel();
        let held = Arc::new(());
        let (own, other) = (Arc::clone(&held), tell.clone());
        let thread = Thread::spawn("joined", move || {
            let _kept_to_the_end = own;
            other.send(1).expect("the receiver is there");
        });
        let thread = thread.expect("a thread is to be had");
        assert!(!thread.is_current());
        thread.join();
        assert_eq!(Arc::strong_count(&held), 1, "what it had is dropped when it has ended");
        drop(Thread::spawn("left alone", move || tell.send(2).expect("the receiver is there")));
        assert_eq!(told.iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_panic_ends_it_alone() {
        let thread = Thread::spawn("panics", || std::panic::resume_unwind(Box::new("on purpose")));
        thread.expect("a thread is to be had").join();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn it_has_its_name() {
        let (tell, told) = mpsc::channel();
        let name = || std::fs::read_to_string("/proc/thread-self/comm");
        let thread = Thread::spawn("a-name-that-is-cut", move || tell.send(name()).expect("the receiver is there"));
        thread.expect("a thread is to be had").join();
        assert_eq!(told.recv().expect("it was told").expect("proc is there").trim_end(), "a-name-that-is-");
    }
}
