//! What this backend costs beside the bare calls of OpenCL, in the same process, on the same device, in every form of
//! memory that it has.
//!
//! `cargo bench -p anyaccel-opencl`. Ours and the bare calls take turns, round by round; each figure is the best of its
//! rounds, as other processes only ever add to it. Queues are held up while things are enqueued, so that no thread of
//! the driver runs meanwhile. A single argument that is no option keeps the rows that contain it.

mod bare;
#[path = "../../src/sys/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the baseline calls only some of it")]
mod sys;

use anyaccel_hal::{
    Arg, DType, Device, End, Format, GraphNode, Kernel, KernelSource, Launch, Op, OwnedArg, Pattern, Place, StreamId,
    Until, WaitMode, Waited,
};
use anyaccel_kernels::random::{Draw, Fill, Layout, Source};
use anyaccel_opencl::{Addressing, OpenClConfig, driver_with};
use bare::Bare;
use std::sync::Arc;
use std::time::Instant;

const ROUNDS: usize = 25;
/// Commands of one round.
const BATCH: usize = 200;
/// Bytes that a command of the enqueueing rows touches.
const SMALL: u64 = 256;
/// Nodes of the graph.
const NODES: usize = 8;

const SET: &str = "kernel void set(global uchar *to, uint what) { to[get_global_id(0)] = (uchar)what; }";

fn main() {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    println!("{:<40} {:>12} {:>12} {:>7}", "work", "ours", "baseline", "ratio");
    let mut any = false;
    for addressing in Addressing::ALL {
        let driver = driver_with(OpenClConfig::new().cpus(true).addressing(addressing));
        let device = match driver.start() {
            Ok(0) | Err(_) => continue,
            Ok(_) => match driver.open(0) {
                Ok(device) => device,
                Err(fault) => {
                    println!("no device: {fault}");
                    continue;
                }
            },
        };
        if !any {
            println!("{}", device.info().name);
        }
        any = true;
        let rows = Rows { name: addressing.name(), only: only.clone(), ours: Ours::new(device) };
        rows.enqueueing(addressing);
        rows.graph(addressing);
    }
    if !any {
        return println!("no OpenCL device here");
    }
    uniform(only.as_deref());
    cached(only.as_deref());
}

fn row(work: &str, unit: &str, ours: f64, baseline: f64) {
    println!(
        "{work:<40} {:>12} {:>12} {:>7.2}",
        format!("{ours:.0} {unit}"),
        format!("{baseline:.0} {unit}"),
        ours / baseline
    );
}

/// The best of both, round by round.
fn both(mut ours: impl FnMut() -> f64, mut baseline: impl FnMut() -> f64) -> (f64, f64) {
    let mut best = (f64::INFINITY, f64::INFINITY);
    for round in 0..ROUNDS {
        // Who goes first changes, so that neither always meets the other's leavings.
        if round % 2 == 0 {
            best.0 = best.0.min(ours());
            best.1 = best.1.min(baseline());
        } else {
            best.1 = best.1.min(baseline());
            best.0 = best.0.min(ours());
        }
    }
    best
}

/// Microseconds of processor time that a call takes, of all threads: what a busy machine does not stretch.
fn processor(call: impl FnOnce()) -> f64 {
    let now = || {
        // SAFETY: getrusage fills the struct that it is given, and has no other preconditions.
        let usage = unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
            usage
        };
        let micros = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
        micros(usage.ru_utime) + micros(usage.ru_stime)
    };
    let begin = now();
    call();
    now() - begin
}

/// Nanoseconds for each of `count` things.
fn mean(count: usize, call: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    call();
    begin.elapsed().as_nanos() as f64 / count as f64
}

/// The backend.
struct Ours {
    device: Arc<dyn Device>,
    stream: StreamId,
    to: Place,
    from: Place,
    kernel: Kernel,
}

impl Ours {
    fn new(device: Arc<dyn Device>) -> Self {
        let stream = device.create_stream(0).expect("a stream");
        let place = || Place { mem: device.alloc(4096).expect("memory").mem, offset: 0 };
        let (to, from) = (place(), place());
        let source = KernelSource::Code { format: Format::OpenClC, code: SET.as_bytes(), entry: "set" };
        // SAFETY: the kernel writes as many bytes as it has threads, which is what the bench gives it.
        let kernel = unsafe { device.kernels().expect("kernels").load(source) }.expect("a kernel");
        let ours = Self { device, stream, to, from, kernel };
        ours.fill();
        ours.copy();
        ours.launch();
        ours.finish();
        ours
    }

    fn fill(&self) {
        // SAFETY: H1, H4: stream and memory live as long as the bench.
        unsafe { self.device.fill(self.stream, self.to, Pattern::byte(1), SMALL) }.expect("a fill");
    }

    fn copy(&self) {
        // SAFETY: H1, H4, as above.
        unsafe { self.device.copy(self.stream, End::Device(self.to), End::Device(self.from), SMALL) }.expect("a copy");
    }

    fn launch(&self) {
        let args = [Arg::Place { place: self.to, len: SMALL }, Arg::Bytes(&[1, 0, 0, 0])];
        // SAFETY: H1, H4, H15.
        unsafe { self.device.launch(self.stream, self.kernel, Launch::linear(4, 64), &args) }.expect("a launch");
    }

    fn finish(&self) {
        // SAFETY: H1.
        let waited = unsafe { self.device.wait_host(self.stream, Until::Now, None, WaitMode::Auto) };
        assert_eq!(waited, Ok(Waited::Ended));
    }

    /// The mean time of enqueueing one thing on a stream that is held up.
    fn held(&self, each: impl Fn(&Self)) -> f64 {
        let gates = self.device.gates().expect("gates");
        let gate = gates.create().expect("a gate");
        // SAFETY: H1: the gate is opened and forgotten below.
        unsafe { gates.wait(self.stream, gate) }.expect("a wait");
        let time = mean(BATCH, || (0..BATCH).for_each(|_| each(self)));
        // SAFETY: H1, as above.
        unsafe {
            gates.open(gate).expect("the gate to open");
            gates.destroy(gate);
        }
        self.finish();
        time
    }
}

struct Rows {
    name: &'static str,
    only: Option<String>,
    ours: Ours,
}

impl Rows {
    fn wanted(&self, work: &str) -> bool {
        wanted(self.only.as_deref(), work)
    }

    /// What a call costs who enqueues.
    fn enqueueing(&self, addressing: Addressing) {
        let Some(bare) = Bare::new(addressing) else { return };
        let name = self.name;
        type Row = (&'static str, fn(&Ours), fn(&Bare));
        let all: [Row; 3] = [
            ("fill", Ours::fill, Bare::fill),
            ("copy", Ours::copy, Bare::copy),
            ("kernel", Ours::launch, Bare::launch),
        ];
        for (what, ours, theirs) in all {
            let work = format!("enqueue a {what}, {name}");
            if self.wanted(&work) {
                let (ours, theirs) = both(|| self.ours.held(ours), || bare.held(theirs));
                row(&work, "ns", ours, theirs);
            }
        }
    }

    /// Replays of a graph of kernels, with the wait for the last.
    fn graph(&self, addressing: Addressing) {
        let (work, device) = (format!("replay of {NODES} kernels, {}", self.name), &self.ours.device);
        let (Some(graphs), true) = (device.graphs(), self.wanted(&work)) else { return };
        let Some(bare) = Bare::new(addressing) else { return };
        let Some(buffer) = bare.command_buffer(NODES) else { return };
        let node = |at: u32| GraphNode {
            op: Op::Launch {
                kernel: self.ours.kernel,
                launch: Launch::linear(4, 64),
                args: [OwnedArg::Place { place: self.ours.to, len: SMALL }, OwnedArg::Bytes([1, 0, 0, 0].into())]
                    .into(),
            },
            after: at.checked_sub(1).into_iter().collect(),
        };
        // SAFETY: H1, H4, H15: as for the launches above.
        let graph = unsafe { graphs.build((0..NODES as u32).map(node).collect()) }.expect("a graph");
        // SAFETY: H1; replays on one stream are ordered.
        let replay = |ours: &Ours| unsafe { graphs.replay(graph, ours.stream) }.expect("a replay");
        let (ours, theirs) = both(|| self.ours.held(replay), || bare.held(|bare| buffer.enqueue(bare)));
        row(&format!("enqueue a {work}"), "ns", ours, theirs);
        let ours = || {
            mean(BATCH, || {
                (0..BATCH).for_each(|_| replay(&self.ours));
                self.ours.finish();
            })
        };
        let theirs = || {
            mean(BATCH, || {
                (0..BATCH).for_each(|_| buffer.enqueue(&bare));
                bare.finish();
            })
        };
        let (ours, theirs) = both(ours, theirs);
        row(&format!("{work}, ran"), "ns", ours, theirs);
        // SAFETY: H1: its replays have ended.
        unsafe { graphs.destroy(graph) };
    }
}

fn wanted(only: Option<&str>, work: &str) -> bool {
    only.is_none_or(|only| work.contains(only))
}

/// 64 MiB of uniform float32, beside the host device on the same cores, in processor time.
fn uniform(only: Option<&str>) {
    const COUNT: u64 = 16 << 20;
    let work = "uniform float32, 64 MiB, beside host";
    if !wanted(only, work) {
        return;
    }
    let draw = Draw { source: Source::Value { seed: 1, offset: 0 }, layout: Layout::Portable };
    let fill = Fill::uniform(DType::F32, COUNT, draw, 0.0, 1.0).expect("a fill");
    let run = |driver: Arc<dyn anyaccel_hal::Driver>| {
        driver.start().expect("a start");
        let device = driver.open(0).expect("a device");
        let kernel = device.builtin(fill.kernel().number());
        let stream = device.create_stream(0).expect("a stream");
        let mem = device.alloc(4 * COUNT).expect("memory").mem;
        move || {
            let Some(kernel) = kernel else { return f64::INFINITY };
            let place = Arg::Place { place: Place { mem, offset: 0 }, len: 4 * COUNT };
            let params = fill.params().to_bytes();
            let launch = Launch::linear(fill.split().chunks(), 1);
            processor(|| {
                // SAFETY: H1, H4, H15: the arguments are the built-in's.
                let waited = unsafe {
                    device.launch(stream, kernel, launch, &[place, place, Arg::Bytes(&params)]).expect("a launch");
                    device.wait_host(stream, Until::Now, None, WaitMode::Auto)
                };
                assert_eq!(waited, Ok(Waited::Ended));
            })
        }
    };
    let ours = run(driver_with(OpenClConfig::new().cpus(true)));
    let host = run(anyaccel_host::driver());
    let (ours, host) = both(ours, host);
    row(work, "us", ours, host);
}

/// Taking and giving back 1 MiB that the cache has, beside the host device.
fn cached(only: Option<&str>) {
    let work = "cached allocation, 1 MiB, beside host";
    if !wanted(only, work) {
        return;
    }
    let pair = |backend: &str| {
        let runtime = anyaccel::Runtime::builder().backend(backend).build().expect("a runtime");
        drop(runtime.alloc(1 << 20).expect("memory"));
        move || mean(1000, || (0..1000).for_each(|_| drop(runtime.alloc(1 << 20).expect("memory"))))
    };
    let (ours, host) = both(pair("opencl"), pair("host"));
    row(work, "ns", ours, host);
}
