//! What the host device costs, each figure beside a baseline that ran in the same minute on the same machine.
//!
//! `cargo bench -p anyaccel-host`. Each figure is the best of several rounds, a round being a median or a mean as said:
//! other processes only ever add to it. A single argument that is no option keeps the rows that contain it.

use anyaccel_hal::{
    Arg, DType, Device, Driver, End, HostFn, Launch, Mark, Pattern, Place, StreamId, Until, WaitMode, Waited,
};
use anyaccel_host::{HostConfig, driver_with};
use anyaccel_kernels::Builtin;
use anyaccel_kernels::random::{Draw, Fill};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: usize = 7;

struct Bench {
    device: Arc<dyn Device>,
    _driver: Arc<dyn Driver>,
    only: Option<String>,
}

fn main() {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let driver = driver_with(HostConfig::new().devices(1).memory(4 << 30));
    let device = match driver.start().and_then(|_| driver.open(0)) {
        Ok(device) => device,
        Err(fault) => return println!("no device: {fault}"),
    };
    let bench = Bench { device, _driver: driver, only };
    println!("{:<44} {:>12} {:>12} {:>7}  baseline", "work", "host", "baseline", "ratio");
    bench.enqueue();
    bench.round_trip();
    bench.function();
    bench.event_wait();
    bench.streams();
    bench.throughput();
    bench.random();
}

/// How long all threads of this process have been on a processor.
fn processor_seconds() -> f64 {
    // SAFETY: getrusage fills the struct that it is given, for which any bytes are good.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + 1e-6 * time.tv_usec as f64;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// The best of some rounds.
fn best(mut round: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// The median time of a call, in nanoseconds.
fn median(calls: usize, mut call: impl FnMut()) -> f64 {
    let mut times: Vec<u64> = (0..calls)
        .map(|_| {
            let begin = Instant::now();
            call();
            begin.elapsed().as_nanos() as u64
        })
        .collect();
    times.sort_unstable();
    times[calls / 2] as f64
}

/// The mean time of `count` things that a call does, in nanoseconds.
fn mean(count: usize, call: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    call();
    begin.elapsed().as_nanos() as f64 / count as f64
}

impl Bench {
    fn stream(&self) -> StreamId {
        self.device.create_stream(0).expect("a stream")
    }

    fn place(&self, len: u64) -> Place {
        Place { mem: self.device.alloc(len).expect("memory").mem, offset: 0 }
    }

    fn wanted(&self, work: &str) -> bool {
        self.only.as_ref().is_none_or(|only| work.contains(only.as_str()))
    }

    fn mark(&self, stream: StreamId) -> Mark {
        // SAFETY: H1: the stream lives as long as the bench.
        unsafe { self.device.mark(stream) }.expect("a mark")
    }

    fn wait(&self, stream: StreamId, until: Until) {
        // SAFETY: H1, as above.
        let waited = unsafe { self.device.wait_host(stream, until, None, WaitMode::Auto) };
        assert_eq!(waited, Ok(Waited::Ended));
    }

    fn fill(&self, stream: StreamId, target: Place, len: u64) {
        // SAFETY: H1, H4: the memory lives as long as the bench.
        unsafe { self.device.fill(stream, target, Pattern::byte(1), len) }.expect("a fill");
    }

    /// Enqueueing alone: a thousand small fills, without what runs them.
    fn enqueue(&self) {
        const BATCH: usize = 1000;
        let work = "enqueue a built-in, amortised";
        if !self.wanted(work) {
            return;
        }
        let (stream, target) = (self.stream(), self.place(4096));
        let enqueue = || {
            let mut sum = 0.0;
            for _ in 0..50 {
                sum += mean(BATCH, || (0..BATCH).for_each(|_| self.fill(stream, target, 64)));
                self.wait(stream, Until::Now);
            }
            sum / 50.0
        };
        let ours = best(enqueue);
        let (send, receive) = crossbeam_channel::unbounded::<[u64; 10]>();
        let (done, ended) = crossbeam_channel::unbounded();
        let consumer = std::thread::spawn(move || {
            while let Ok(message) = receive.recv() {
                if black_box(message)[0] == 1 {
                    done.send(()).expect("heard");
                }
            }
        });
        let channel = best(|| {
            let mut sum = 0.0;
            for _ in 0..50 {
                sum += mean(BATCH, || (0..BATCH).for_each(|_| send.send([0; 10]).expect("heard")));
                send.send([1; 10]).expect("heard");
                ended.recv().expect("an answer");
            }
            sum / 50.0
        });
        drop(send);
        consumer.join().expect("ended");
        let left = Arc::new(AtomicU64::new(0));
        let spawned = best(|| {
            let mut sum = 0.0;
            for _ in 0..50 {
                left.store(BATCH as u64, Ordering::Relaxed);
                sum += mean(BATCH, || {
                    for _ in 0..BATCH {
                        let left = Arc::clone(&left);
                        rayon::spawn(move || {
                            left.fetch_sub(1, Ordering::Release);
                        });
                    }
                });
                while left.load(Ordering::Acquire) > 0 {
                    std::thread::yield_now();
                }
            }
            sum / 50.0
        });
        row(work, ours, channel, "crossbeam channel, send of 80 bytes");
        row(work, ours, spawned, "rayon::spawn");
    }

    /// A small built-in and waiting for it.
    fn round_trip(&self) {
        let works = ["built-in + wait, median", "built-in + mark + wait, median", "no-op kernel + mark + wait, median"];
        if !works.iter().any(|work| self.wanted(work)) {
            return;
        }
        let (stream, target) = (self.stream(), self.place(4096));
        let direct = best(|| {
            median(5000, || {
                self.fill(stream, target, 64);
                self.wait(stream, Until::Now);
            })
        });
        let marked = best(|| {
            median(5000, || {
                self.fill(stream, target, 64);
                if let Mark::At(mark) = self.mark(stream) {
                    self.wait(stream, Until::Mark(mark));
                }
            })
        });
        let noop = self.device.builtin(Builtin::Noop.number()).expect("a no-op");
        let kernel = best(|| {
            median(5000, || {
                // SAFETY: H1, H15.
                unsafe { self.device.launch(stream, noop, Launch::linear(1, 1), &[]) }.expect("a launch");
                if let Mark::At(mark) = self.mark(stream) {
                    self.wait(stream, Until::Mark(mark));
                }
            })
        });
        let (send, receive) = crossbeam_channel::unbounded::<[u64; 10]>();
        let (done, ended) = crossbeam_channel::unbounded();
        let worker = std::thread::spawn(move || {
            while let Ok(message) = receive.recv() {
                black_box(message);
                done.send(()).expect("heard");
            }
        });
        let channel = best(|| {
            median(2000, || {
                send.send([0; 10]).expect("heard");
                ended.recv().expect("an answer");
            })
        });
        drop(send);
        worker.join().expect("ended");
        for (work, ours) in works.into_iter().zip([direct, marked, kernel]) {
            row(work, ours, channel, "crossbeam channels and a thread");
        }
    }

    /// A function of the user and waiting for it.
    fn function(&self) {
        let work = "host function + wait, median";
        if !self.wanted(work) {
            return;
        }
        let stream = self.stream();
        let ours = best(|| {
            median(2000, || {
                // SAFETY: H1, H13.
                unsafe { self.device.host_call(stream, HostFn::new(|_| ())) }.expect("a call");
                self.wait(stream, Until::Now);
            })
        });
        let park = best(park_round_trip);
        row(work, ours, park, "bare park/unpark round trip");
    }

    /// Two streams that wait for each other's marks in turn.
    fn event_wait(&self) {
        const TURNS: usize = 2000;
        let works = ["event wait across two streams, amortised", "the same, enqueued while both are held"];
        if !works.iter().any(|work| self.wanted(work)) {
            return;
        }
        let streams = [self.stream(), self.stream()];
        let target = self.place(4096);
        let turns = || {
            for turn in 0..TURNS {
                let (on, of) = (streams[turn % 2], streams[(turn + 1) % 2]);
                let mark = self.mark(of);
                // SAFETY: H1.
                unsafe { self.device.wait(on, of, mark) }.expect("a wait");
                self.fill(on, target, 64);
            }
        };
        let ours = best(|| {
            mean(TURNS, || {
                turns();
                streams.iter().for_each(|&stream| self.wait(stream, Until::Now));
            })
        });
        let gates = self.device.gates().expect("gates");
        let held = best(|| {
            // SAFETY: H1.
            unsafe {
                let gate = gates.create().expect("a gate");
                streams.iter().for_each(|&stream| gates.wait(stream, gate).expect("held"));
                turns();
                let time = mean(TURNS, || {
                    gates.open(gate).expect("opened");
                    streams.iter().for_each(|&stream| self.wait(stream, Until::Now));
                });
                gates.destroy(gate);
                time
            }
        });
        let (ping, pong) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (a, b) = (Arc::clone(&ping), Arc::clone(&pong));
        let hand_over = best(|| {
            ping.store(0, Ordering::Relaxed);
            pong.store(0, Ordering::Relaxed);
            let (a, b) = (Arc::clone(&a), Arc::clone(&b));
            let other = std::thread::spawn(move || {
                for turn in 1..=TURNS as u64 {
                    while a.load(Ordering::Acquire) < turn {
                        std::hint::spin_loop();
                    }
                    b.store(turn, Ordering::Release);
                }
            });
            let time = mean(2 * TURNS, || {
                for turn in 1..=TURNS as u64 {
                    ping.store(turn, Ordering::Release);
                    while pong.load(Ordering::Acquire) < turn {
                        std::hint::spin_loop();
                    }
                }
            });
            other.join().expect("ended");
            time
        });
        row(works[0], ours, hand_over, "a spinning hand-over of one atomic");
        row(works[1], held, hand_over, "a spinning hand-over of one atomic");
    }

    /// Memory of ten thousand streams that have all worked.
    fn streams(&self) {
        let work = "10,000 streams alive, MB";
        if !self.wanted(work) {
            return;
        }
        let target = self.place(4096);
        let before = resident();
        let streams: Vec<StreamId> = (0..10_000).map(|_| self.stream()).collect();
        for &stream in &streams {
            self.fill(stream, target, 64);
            self.mark(stream);
        }
        streams.iter().for_each(|&stream| self.wait(stream, Until::Now));
        let used = resident().saturating_sub(before) as f64 / 1e6;
        println!("{work:<44} {used:>9.1} MB {:>12} {:>7}  (goal: under 100)", "", "");
    }

    /// Large copies and fills.
    /// Random fills on all workers, beside the same on a device with one. Seconds say little on a busy machine, so the row
    /// also tells how much processor time a second of the fill took: up to as many seconds as there are cores for it.
    fn random(&self) {
        const COUNT: u64 = 16 << 20;
        let one = driver_with(HostConfig::new().devices(1).memory(1 << 30).workers(1));
        let Ok(single) = one.start().and_then(|_| one.open(0)) else { return };
        let single = Bench { device: single, _driver: one, only: None };
        let draw = Draw::portable(1, 0);
        let fills = [
            ("uniform float32 of 64 MiB", Fill::uniform(DType::F32, COUNT, draw, 0.0, 1.0)),
            ("normal float32 of 64 MiB", Fill::normal(DType::F32, COUNT, draw, 0.0, 1.0)),
        ];
        for (work, fill) in fills {
            let Ok(fill) = fill else { continue };
            if !self.wanted(work) {
                continue;
            }
            let each = |bench: &Bench| (bench.stream(), bench.place(4 * COUNT));
            let (all_at, one_at) = (each(self), each(&single));
            let (mut all, mut one, mut cores) = (f64::MAX, f64::MAX, 0.0_f64);
            for _ in 0..4 * ROUNDS {
                let (before, begin) = (processor_seconds(), Instant::now());
                self.random_fill(all_at, &fill);
                let took = seconds(begin);
                all = all.min(took);
                cores = cores.max((processor_seconds() - before) / took);
                let begin = Instant::now();
                single.random_fill(one_at, &fill);
                one = one.min(seconds(begin));
            }
            let rate = |time: f64| 4e-9 * COUNT as f64 / time;
            let text = format!("one worker, GB/s; {cores:.2} cores at most were in use");
            println!("{work:<44} {:>12.2} {:>12.2} {:>7.2}  {text}", rate(all), rate(one), one / all);
        }
    }

    fn random_fill(&self, (stream, dst): (StreamId, Place), fill: &Fill) {
        let Some(kernel) = self.device.builtin(fill.kernel().number()) else { return };
        let params = fill.params().to_bytes();
        let to = Arg::Place { place: dst, len: fill.destination_len() };
        // Seed and offset are among the parameters: the cell is not read.
        let args = [to, to, Arg::Bytes(&params)];
        // SAFETY: H1, H4, H15: the arguments of the built-in's documented layout, with a place that long.
        unsafe { self.device.launch(stream, kernel, Launch::linear(fill.split().chunks(), 1), &args) }.expect("a fill");
        self.wait(stream, Until::Now);
    }

    fn throughput(&self) {
        for mib in [1, 4, 16, 64, 512] {
            let (copying, filling) = (format!("copy of {mib} MiB"), format!("fill of {mib} MiB"));
            if !self.wanted(&copying) && !self.wanted(&filling) {
                continue;
            }
            let len = mib << 20;
            let (stream, src, dst) = (self.stream(), self.place(len), self.place(len));
            let (mut a, mut b) = (vec![1_u8; len as usize], vec![2_u8; len as usize]);
            self.fill(stream, src, len);
            self.fill(stream, dst, len);
            let times = (2048 / mib as usize).clamp(2, 64);
            let (mut copy, mut memcpy, mut fill, mut memset) = (f64::MAX, f64::MAX, f64::MAX, f64::MAX);
            // In turns of some calls each, so that what disturbs one disturbs the other, and each finds the caches as
            // its own kind left them.
            for _ in 0..ROUNDS {
                for _ in 0..times {
                    let begin = Instant::now();
                    // SAFETY: H1, H4.
                    unsafe { self.device.copy(stream, End::Device(dst), End::Device(src), len) }.expect("a copy");
                    self.wait(stream, Until::Now);
                    copy = copy.min(seconds(begin));
                }
                for _ in 0..times {
                    let begin = Instant::now();
                    b.copy_from_slice(black_box(&a));
                    black_box(&mut b);
                    memcpy = memcpy.min(seconds(begin));
                }
                for _ in 0..times {
                    let begin = Instant::now();
                    self.fill(stream, dst, len);
                    self.wait(stream, Until::Now);
                    fill = fill.min(seconds(begin));
                }
                for _ in 0..times {
                    let begin = Instant::now();
                    a.fill(black_box(3));
                    black_box(&mut a);
                    memset = memset.min(seconds(begin));
                }
            }
            rate(&copying, len, copy, memcpy, "memcpy, one thread");
            rate(&filling, len, fill, memset, "memset, one thread");
        }
    }
}

fn seconds(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64()
}

fn row(work: &str, ours: f64, baseline: f64, what: &str) {
    println!("{work:<44} {ours:>9.0} ns {baseline:>9.0} ns {:>7.2}  {what}", ours / baseline);
}

fn rate(work: &str, len: u64, ours: f64, baseline: f64, what: &str) {
    let gb = |time: f64| len as f64 / time / 1e9;
    let (ours, baseline) = (gb(ours), gb(baseline));
    println!("{work:<44} {ours:>7.1} GB/s {baseline:>7.1} GB/s {:>7.2}  {what}", ours / baseline);
}

/// Median time of waking a parked thread and being woken by it.
fn park_round_trip() -> f64 {
    let main = std::thread::current();
    let (asked, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let (a, b, s) = (Arc::clone(&asked), Arc::clone(&answered), Arc::clone(&stop));
    let other = std::thread::spawn(move || {
        let mut turn = 1;
        while !s.load(Ordering::Acquire) {
            if a.load(Ordering::Acquire) < turn {
                std::thread::park_timeout(Duration::from_secs(1));
                continue;
            }
            b.store(turn, Ordering::Release);
            main.unpark();
            turn += 1;
        }
    });
    let mut turn = 0;
    let time = median(2000, || {
        turn += 1;
        asked.store(turn, Ordering::Release);
        other.thread().unpark();
        while answered.load(Ordering::Acquire) < turn {
            std::thread::park();
        }
    });
    stop.store(true, Ordering::Release);
    other.thread().unpark();
    other.join().expect("ended");
    time
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}
