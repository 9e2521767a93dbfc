//! What the whole path from the face to the driver costs beside the bare driver call: `cargo bench -p anyaccel-cuda`.
//!
//! On the fake driver by default, whose calls only put something on a queue: so the difference of a row is what the face,
//! the engine and this backend add. The stream is held up meanwhile, so that nothing is run and nobody is woken. With
//! `ANYACCEL_CUDA_LIBRARY` set, whatever that names is measured.

use anyaccel::{EventOptions, GraphOptions, LaunchArg, Runtime, Stream};
use anyaccel_cuda::sys::{self, CUcontext, CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUstream, Cuda};
use anyaccel_hal::{Format, Launch};
use std::env;
use std::ffi::c_void;
use std::path::Path;
use std::time::Instant;

const ROUNDS: usize = 100;
/// A card takes about a thousand commands before it blocks who enqueues more, and the path may enqueue two a call.
const CALLS: usize = 250;
/// A replay is this many commands, and is not held up: a whole round of them has to fit on the queue.
const COPIES: usize = 8;
const REPLAYS: usize = 25;
/// What the path may add to a call, in nanoseconds.
const GOAL: f64 = 150.0;

const PTX: &str = ".version 6.0\n.target sm_50\n.address_size 64\n\
    .visible .entry nothing(.param .u64 a, .param .u32 b)\n{\n\tret;\n}\n\0";

/// The best and the median of several rounds, in nanoseconds a call; `rest` empties the queue after each.
fn measure(call: impl FnMut(), rest: impl FnMut(bool)) -> (f64, f64) {
    measure_of(CALLS, call, rest)
}

fn measure_of(calls: usize, mut call: impl FnMut(), mut rest: impl FnMut(bool)) -> (f64, f64) {
    // The first call may load code, for which the driver may wait for all streams: so not while one is held up.
    call();
    rest(false);
    let mut figures: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            rest(true);
            let begin = Instant::now();
            for _ in 0..calls {
                call();
            }
            let spent = begin.elapsed().as_nanos() as f64 / calls as f64;
            rest(false);
            spent
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    (figures[0], figures[ROUNDS / 2])
}

/// Prints a row; `calls` of the driver are what the goal is for.
fn row(what: &str, path: (f64, f64), bare: (f64, f64), calls: f64) {
    let (best, median, goal) = (path.0 - bare.0, path.1 - bare.1, calls * GOAL);
    let verdict = if best <= goal { "ok" } else { "over" };
    let ratio = path.0 / bare.0;
    println!(
        "{what:<10} {:>9.1} {:>9.1} {best:>9.1} {median:>9.1}   <= {goal} {verdict}   {ratio:.2}x",
        path.0, bare.0
    );
}

/// The driver's own objects.
struct Bare {
    cuda: &'static Cuda,
    stream: CUstream,
    side: CUstream,
    event: CUevent,
    function: CUfunction,
    src: u64,
    dst: u64,
}

impl Bare {
    fn new() -> Self {
        let cuda = sys::cuda().expect("a driver");
        let (mut context, mut stream, mut event) = (CUcontext::NULL, CUstream::NULL, CUevent::NULL);
        let mut side = CUstream::NULL;
        let (mut module, mut function) = (CUmodule::NULL, CUfunction::NULL);
        let (mut src, mut dst) = (0, 0);
        let none = std::ptr::null_mut();
        // SAFETY: valid places for the answers; the objects live until the process ends.
        unsafe {
            cuda.cuInit(0).expect("a start");
            cuda.cuDevicePrimaryCtxRetain(&raw mut context, 0).expect("a context");
            cuda.cuCtxPushCurrent_v2(context).expect("it becomes current");
            cuda.cuStreamCreateWithPriority(&raw mut stream, 1, 0).expect("a stream");
            cuda.cuStreamCreateWithPriority(&raw mut side, 1, 0).expect("a stream");
            cuda.cuEventCreate(&raw mut event, sys::CU_EVENT_DISABLE_TIMING).expect("an event");
            cuda.cuModuleLoadDataEx(&raw mut module, PTX.as_ptr().cast(), 0, std::ptr::null_mut(), none).expect("code");
            cuda.cuModuleGetFunction(&raw mut function, module, c"nothing".as_ptr()).expect("a function");
            cuda.cuMemAlloc_v2(&raw mut src, 4096).expect("memory");
            cuda.cuMemAlloc_v2(&raw mut dst, 4096).expect("memory");
        }
        Self { cuda, stream, side, event, function, src, dst }
    }
}

impl Bare {
    /// The copies of a replay.
    fn graph(&self) -> CUgraphExec {
        let cuda = self.cuda;
        let (mut graph, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
        // SAFETY: live objects, valid places for the answers.
        unsafe {
            cuda.cuStreamBeginCapture_v2(self.stream, sys::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).expect("a capture");
            for _ in 0..COPIES {
                cuda.cuMemcpyDtoDAsync_v2(self.dst, self.src, 4096, self.stream).expect("a copy");
            }
            cuda.cuStreamEndCapture(self.stream, &raw mut graph).expect("a graph");
            cuda.cuGraphInstantiateWithFlags(&raw mut exec, graph, 0).expect("a graph that runs");
        }
        exec
    }

    fn synchronize(&self) {
        // SAFETY: live objects.
        unsafe {
            self.cuda.cuEventRecord(self.event, self.stream).expect("a record");
            self.cuda.cuEventSynchronize(self.event).expect("an end");
        }
    }
}

/// Holds a stream up by a word of its own.
struct Word {
    host: *mut u32,
    device: u64,
    value: u32,
}

impl Word {
    fn new(cuda: &Cuda) -> Self {
        let (mut host, mut device) = (std::ptr::null_mut::<c_void>(), 0);
        // SAFETY: valid places for the answers.
        unsafe {
            cuda.cuMemHostAlloc(&raw mut host, 4096, 3).expect("pinned memory");
            host.cast::<u32>().write_volatile(0);
            cuda.cuMemHostGetDevicePointer_v2(&raw mut device, host, 0).expect("its address");
        }
        Self { host: host.cast(), device, value: 0 }
    }

    fn close(&mut self, cuda: &Cuda, stream: CUstream) {
        self.value += 1;
        // SAFETY: a live stream, a word of pinned memory.
        unsafe { cuda.cuStreamWaitValue32_v2(stream, self.device, self.value, 0) }.expect("a wait");
    }

    fn open(&mut self) {
        // SAFETY: a word of pinned memory that only the device reads.
        unsafe { self.host.write_volatile(self.value) };
    }
}

fn main() {
    if env::var_os("ANYACCEL_CUDA_LIBRARY").is_none() {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake-bench");
        let installed = anyaccel_fake_cuda::install(&folder, (12, 2)).expect("a fake");
        // SAFETY: the process has one thread, and nobody has read its environment.
        unsafe {
            env::set_var("ANYACCEL_CUDA_LIBRARY", installed.cuda);
            env::set_var("ANYACCEL_NVML_LIBRARY", installed.nvml);
        }
    }
    let bare = Bare::new();
    let cuda = bare.cuda;
    let runtime = Runtime::builder().backend("cuda").build().expect("a runtime");
    let stream: Stream = runtime.stream(()).expect("a stream");
    let native = CUstream(stream.native_handle().expect("a native stream") as usize);
    let (mut word, mut other) = (Word::new(cuda), Word::new(cuda));
    println!(
        "{:<10} {:>9} {:>9} {:>9} {:>9}   ns a call; the goal is for what the path adds",
        "call", "path", "bare", "adds", "(median)"
    );

    let a = runtime.zeros(4096).expect("memory");
    let b = runtime.zeros(4096).expect("memory");
    runtime.synchronize(()).expect("an end");
    stream.copy(&a.all(), &b.all()).expect("a copy");
    stream.synchronize().expect("an end");
    let mut hold = |begins: bool| {
        if begins {
            word.close(cuda, native);
        } else {
            word.open();
            stream.synchronize().expect("an end");
        }
    };
    let (to, from) = (a.all(), b.all());
    let copy = measure(|| stream.copy(&to, &from).expect("a copy"), &mut hold);
    // SAFETY: the code touches nothing.
    let kernel = unsafe { runtime.load_kernel((), Format::Ptx, PTX.trim_end_matches('\0').as_bytes(), "nothing") };
    let kernel = kernel.expect("a kernel");
    let args = [LaunchArg::Buffer(a.all()), LaunchArg::Bytes(&[1; 4])];
    let launch = measure(
        || {
            // SAFETY: the kernel touches nothing.
            unsafe { stream.launch(&kernel, Launch::linear(1, 32), &args) }.expect("a launch");
        },
        &mut hold,
    );
    let event = runtime.event(EventOptions::default()).expect("an event");
    let record = measure(|| event.record(Some(&stream)).expect("a record"), &mut hold);
    let side = runtime.stream(()).expect("a stream");
    let handover = measure(
        || {
            event.record(Some(&stream)).expect("a record");
            side.wait_event(&event).expect("a wait");
        },
        &mut hold,
    );
    side.synchronize().expect("an end");
    let current = stream.enter().expect("a current stream");
    let graph = runtime.graph(GraphOptions::default());
    graph.capture(|| (0..COPIES).try_for_each(|_| stream.copy(&to, &from))).expect("a graph");
    let settle = |_| stream.synchronize().expect("an end");
    let replay = measure_of(REPLAYS, || graph.replay().expect("a replay"), settle);
    drop(current);

    let mut hold = |begins: bool| {
        if begins {
            other.close(cuda, bare.stream);
        } else {
            other.open();
            bare.synchronize();
        }
    };
    // SAFETY: live objects, here and below.
    let bare_copy = measure(
        || unsafe { cuda.cuMemcpyDtoDAsync_v2(bare.dst, bare.src, 4096, bare.stream) }.expect("a copy"),
        &mut hold,
    );
    let (mut address, mut number) = (bare.src, 1_u32);
    let mut params = [(&raw mut address).cast::<c_void>(), (&raw mut number).cast()];
    let bare_launch = measure(
        || {
            let none = std::ptr::null_mut();
            // SAFETY: as above; two parameters, as the function has.
            unsafe { cuda.cuLaunchKernel(bare.function, 1, 1, 1, 32, 1, 1, 0, bare.stream, params.as_mut_ptr(), none) }
                .expect("a launch");
        },
        &mut hold,
    );
    // SAFETY: as above.
    let bare_record = measure(|| unsafe { cuda.cuEventRecord(bare.event, bare.stream) }.expect("a record"), &mut hold);
    let bare_handover = measure(
        || {
            // SAFETY: as above.
            unsafe {
                cuda.cuEventRecord(bare.event, bare.stream).expect("a record");
                cuda.cuStreamWaitEvent(bare.side, bare.event, 0).expect("a wait");
            }
        },
        &mut hold,
    );
    let exec = bare.graph();
    // SAFETY: as above.
    let bare_launched = || unsafe { cuda.cuGraphLaunch(exec, bare.stream) }.expect("a replay");
    let bare_replay = measure_of(REPLAYS, bare_launched, |_| bare.synchronize());
    row("copy", copy, bare_copy, 1.0);
    row("launch", launch, bare_launch, 1.0);
    row("record", record, bare_record, 1.0);
    row("handover", handover, bare_handover, 2.0);
    row("replay", replay, bare_replay, 1.0);
}
