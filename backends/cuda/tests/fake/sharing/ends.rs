//! Giving things back while somebody else's work in the same context is held up, which the driver waits for.

use super::Lab;
use crate::lab::{PATIENCE, calls, control, eventually};
use anyaccel::Runtime;
use anyaccel_cuda::sys::{self, CU_STREAM_NON_BLOCKING, CU_STREAM_WAIT_VALUE_GEQ, CUcontext, CUstream, Cuda};
use anyaccel_hal::{FaultKind, HostStatus, Launch, Mark};
use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// A user of the driver beside us, with a stream that waits for a word.
struct Others {
    cuda: &'static Cuda,
    context: CUcontext,
    stream: CUstream,
    word: usize,
}

impl Others {
    /// Whose stream is held up until [`Self::go_on`].
    fn held() -> Self {
        let cuda = sys::cuda().expect("the fake");
        let (mut context, mut stream) = (CUcontext::NULL, CUstream::NULL);
        let (mut host, mut device) = (std::ptr::null_mut::<c_void>(), 0);
        // SAFETY: valid places for the answers; all lives until the process ends.
        unsafe {
            cuda.cuInit(0).expect("a start");
            cuda.cuDevicePrimaryCtxRetain(&raw mut context, 0).expect("a context");
            cuda.cuCtxPushCurrent_v2(context).expect("it becomes current");
            cuda.cuStreamCreateWithPriority(&raw mut stream, CU_STREAM_NON_BLOCKING, 0).expect("a stream");
            cuda.cuMemHostAlloc(&raw mut host, 4096, 3).expect("pinned memory");
            host.cast::<u32>().write_volatile(0);
            cuda.cuMemHostGetDevicePointer_v2(&raw mut device, host, 0).expect("its address");
            cuda.cuStreamWaitValue32_v2(stream, device, 1, CU_STREAM_WAIT_VALUE_GEQ).expect("a wait");
            cuda.cuCtxPopCurrent_v2(&raw mut context).expect("it is current no more");
        }
        Self { cuda, context, stream, word: host.expose_provenance() }
    }

    fn go_on(&self) {
        // SAFETY: a word of pinned memory that only the device reads.
        unsafe { std::ptr::with_exposed_provenance_mut::<u32>(self.word).write_volatile(1) };
    }

    /// Bytes that are taken on the device.
    fn taken(&self) -> usize {
        let (mut free, mut total, mut popped) = (0, 0, CUcontext::NULL);
        // SAFETY: valid places for the answers, a live context.
        unsafe {
            self.cuda.cuCtxPushCurrent_v2(self.context).expect("it becomes current");
            self.cuda.cuMemGetInfo_v2(&raw mut free, &raw mut total).expect("an answer");
            self.cuda.cuCtxPopCurrent_v2(&raw mut popped).expect("it is current no more");
        }
        total - free
    }
}

/// Does something that must not wait for others.
fn promptly<R: Send + 'static>(what: &str, act: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, ended) = channel();
    thread::spawn(move || done.send(act()));
    ended.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} waits for others"))
}

fn count(name: &str) -> usize {
    calls().iter().filter(|call| *call == name).count()
}

/// One of everything that a driver gives back in the end.
fn furnished() -> Lab {
    let lab = Lab::new();
    let stream = lab.stream();
    let place = lab.memory(1 << 20);
    lab.device.pinned().expect("pinned memory").alloc(4096).expect("pinned memory");
    let growable = lab.device.virtual_memory().expect("virtual memory");
    let step = growable.limits().granularity;
    let (range, _) = growable.reserve(4 * step).expect("addresses");
    // SAFETY: H1: the range was made above.
    unsafe { growable.map(range, step, 2 * step) }.expect("a mapping");
    let ptx = b".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}\n";
    let kernel = lab.load(anyaccel_hal::Format::Ptx, ptx, "nothing").expect("a kernel");
    lab.launch(stream, kernel, Launch::linear(1, 1), &[]).expect("a launch");
    lab.fill(stream, place, 1, 64).expect("a fill");
    lab.call(stream, |_| ()).expect("a call");
    lab.finish(stream).expect("an end");
    lab
}

fn all_is_back(others: &Others) {
    eventually("its memory comes back", || others.taken() == 0);
    eventually("its context is released", || count("cuDevicePrimaryCtxRelease_v2") == 1);
    for (taken, given) in [("cuMemHostAlloc", "cuMemFreeHost"), ("cuMemMap", "cuMemUnmap")] {
        let theirs = usize::from(taken == "cuMemHostAlloc");
        assert_eq!(count(taken) - theirs, count(given), "{given}");
    }
    assert_eq!(count("cuModuleUnload"), count("cuModuleLoadDataEx"));
    assert_eq!((count("cuMemAddressReserve"), count("cuMemAddressFree")), (1, 1));
}

pub(super) fn beside_others() {
    let lab = furnished();
    let others = Others::held();
    promptly("the end of a driver", move || drop(lab));
    assert!(others.taken() > 0, "the driver gives nothing back beside work that is held up");
    others.go_on();
    all_is_back(&others);
}

/// The same through the face, which empties its caches first.
pub(super) fn a_runtime() {
    let runtime = Runtime::builder().backend("cuda").build().expect("a runtime");
    let stream = runtime.stream(()).expect("a stream");
    let buffers: Vec<_> = (0..4).map(|_| runtime.zeros(12 << 20).expect("memory")).collect();
    let pinned = runtime.pinned(4096).expect("pinned memory");
    stream.fill(&buffers[0].all(), &[1]).expect("a fill");
    runtime.synchronize(()).expect("an end");
    let others = Others::held();
    promptly("the end of a runtime", move || drop((buffers, pinned, stream, runtime)));
    assert!(others.taken() > 0);
    others.go_on();
    eventually("its memory comes back", || others.taken() == 0);
    eventually("its context is released", || count("cuDevicePrimaryCtxRelease_v2") == 1);
}

/// A driver ends in the middle of its own work, here behind that of others, and what it uses comes back behind it.
pub(super) fn with_work() {
    let lab = furnished();
    let others = Others::held();
    let stream = lab.stream();
    // SAFETY: the stream lives until the process ends.
    let theirs = unsafe { lab.device.import_stream(others.stream.0 as u64) }.expect("a name for it");
    let Ok(Mark::At(mark)) = lab.mark(theirs) else { panic!("a mark") };
    lab.wait(stream, theirs, Mark::At(mark)).expect("a wait");
    let place = lab.memory(1 << 20);
    lab.fill(stream, place, 3, 1 << 20).expect("a fill");
    let (function, called) = channel();
    lab.call(stream, move |status| function.send(status).unwrap_or(())).expect("a call");
    promptly("the end of a driver", move || drop(lab));
    assert_eq!(called.recv_timeout(PATIENCE), Ok(HostStatus::Cancelled));
    assert_eq!(count("cuMemFree_v2") + count("cuMemFreeHost") + count("cuMemUnmap"), 0, "its work may use all of it");
    others.go_on();
    all_is_back(&others);
}

pub(super) fn memory_comes_back() {
    let lab = Lab::new();
    let most = 48 << 20;
    let (one, two) = (lab.memory(most / 2), lab.memory(most / 2));
    let others = Others::held();
    let device = lab.device.clone();
    let free = move |mem| {
        // SAFETY: H1, H4: no work uses it.
        unsafe { device.free(mem) }
    };
    let freed = promptly("giving memory back", move || (free(one.mem), free(two.mem)));
    assert_eq!(freed, (Ok(()), Ok(())));
    assert_eq!(others.taken(), most as usize);
    // Who needs the memory waits for it.
    let device = lab.device.clone();
    let (done, ended) = channel();
    thread::spawn(move || done.send(device.alloc(most).map(|segment| segment.mem)));
    assert!(ended.recv_timeout(Duration::from_millis(50)).is_err(), "there is no memory yet");
    others.go_on();
    let mem = ended.recv_timeout(PATIENCE).expect("an answer").expect("memory");
    lab.free(mem).expect("a free");
    // What the driver refuses is told as ever.
    let place = lab.memory(64);
    control().fail("cuMemFree_v2", 1, 999);
    assert_eq!(lab.free(place.mem).map_err(|fault| fault.kind), Err(FaultKind::Driver));
    assert_eq!(lab.free(place.mem), Ok(()));
}

pub(super) fn mappings_come_back() {
    let lab = Lab::new();
    let growable = lab.device.virtual_memory().expect("virtual memory");
    let step = growable.limits().granularity;
    let (range, _) = growable.reserve(4 * step).expect("addresses");
    // SAFETY: H1, H4, here and below: the range was made above, and no work uses it.
    unsafe { growable.map(range, 0, 2 * step) }.expect("a mapping");
    let others = Others::held();
    let device = lab.device.clone();
    let unmap = move || {
        // SAFETY: as above.
        unsafe { device.virtual_memory().expect("virtual memory").unmap(range, 0, 2 * step) }
    };
    promptly("unmapping", unmap).expect("it is taken away later");
    let device = lab.device.clone();
    let (done, ended) = channel();
    thread::spawn(move || {
        // SAFETY: as above.
        done.send(unsafe { device.virtual_memory().expect("virtual memory").map(range, step, 2 * step) })
    });
    assert!(ended.recv_timeout(Duration::from_millis(50)).is_err(), "part of it is still mapped");
    others.go_on();
    ended.recv_timeout(PATIENCE).expect("an answer").expect("a mapping");
    // SAFETY: as above.
    unsafe { growable.map(range, 0, step) }.expect("a mapping");
    // SAFETY: as above.
    unsafe { growable.release(range) }.expect("the end");
    eventually("the memory is there again", || others.taken() == 0);
}

/// The last handles of a runtime are in a thread-local of the main thread, whose end comes before what is registered to run
/// at exit.
pub(super) fn exit() {
    thread_local! {
        static LAST: RefCell<Option<(Runtime, anyaccel::Buffer, Lab)>> = const { RefCell::new(None) };
    }
    let runtime = Runtime::builder().backend("cuda").build().expect("a runtime");
    let buffer = runtime.zeros(1 << 20).expect("memory");
    runtime.synchronize(()).expect("an end");
    let lab = furnished();
    LAST.with(|last| last.borrow_mut().replace((runtime, buffer, lab)));
    // Nobody lets it go on.
    Others::held();
    thread::spawn(|| {
        thread::sleep(PATIENCE);
        eprintln!("the process does not exit");
        std::process::abort();
    });
}
