//! Many threads on many streams, against a shadow of the order that each stream must show.
//!
//! Every operation that steps a stream reads and writes plain memory without synchronizing, so under a thread sanitizer
//! an order that only happens to hold is reported as a race (in a debug build, see `anyaccel_kit::Mutex`):
//!
//! ```text
//! RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
//! TSAN_OPTIONS="suppressions=$PWD/backends/host/tests/tsan.supp" \
//! cargo test -p anyaccel-host --target x86_64-unknown-linux-gnu --test stress
//! ```
#![cfg(not(loom))]

use anyaccel_hal::{
    Arg, Device, Driver, End, HostFn, HostKernel, HostPtr, Kernel, KernelArg, KernelSource, Launch, Mark, Place,
    StreamId, Until, WaitMode, Waited, WorkGroup,
};
use anyaccel_host::{HostConfig, driver_with};
use anyaccel_kit::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
/// Steps that one stream can record.
const SLOTS: u64 = 4096;

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// A stream and what it must show: `steps` steps were enqueued, each leaves its number in a slot of its own.
struct Lane {
    stream: StreamId,
    /// A counter, then a slot for each step.
    memory: Place,
    steps: AtomicU64,
    /// The mark after a step, by the step.
    marks: Mutex<Vec<(u64, u64)>>,
}

struct Yard {
    device: Arc<dyn Device>,
    _driver: Arc<dyn Driver>,
    lanes: Vec<Lane>,
    step: Kernel,
    check: Kernel,
    wrong: Arc<AtomicU64>,
    /// How many threads have ended: a sanitizer does not see that a scope waits for them.
    ended: Mutex<usize>,
}

fn word(arg: &KernelArg, at: u64) -> *mut u64 {
    assert!(at * 8 + 8 <= arg.len);
    // SAFETY: inside the argument, by the assertion.
    unsafe { arg.ptr.cast::<u64>().add(at as usize) }
}

fn value(arg: &KernelArg) -> u64 {
    assert_eq!(arg.len, 8);
    // SAFETY: the argument is 8 bytes long.
    unsafe { arg.ptr.cast::<u64>().read_unaligned() }
}

impl Yard {
    fn new(lanes: usize, workers: usize) -> Self {
        let driver = driver_with(HostConfig::new().devices(1).memory(1 << 30).workers(workers));
        assert_eq!(driver.start(), Ok(1));
        let device = driver.open(0).expect("opens");
        let wrong = Arc::new(AtomicU64::new(0));
        let kernels = device.kernels().expect("kernels");
        let (stepped, checked) = (Arc::clone(&wrong), Arc::clone(&wrong));
        // The counter must be what this step expects; then it is one more and the slot holds the step.
        let step = move |_: &WorkGroup, args: &[KernelArg]| {
            let expected = value(&args[1]);
            // SAFETY: only operations of this lane touch its counter, one after the other.
            unsafe {
                let counter = word(&args[0], 0);
                if counter.read() != expected {
                    stepped.fetch_add(1, Ordering::Relaxed);
                }
                counter.write(expected + 1);
                word(&args[0], 1 + expected).write(expected + 1);
            }
        };
        // A step of another lane that was waited for must be there.
        let check = move |_: &WorkGroup, args: &[KernelArg]| {
            let step = value(&args[1]);
            // SAFETY: the slot was written once, before the mark that was waited for.
            if unsafe { word(&args[0], 1 + step).read() } != step + 1 {
                checked.fetch_add(1, Ordering::Relaxed);
            }
        };
        // SAFETY: the kernels are launched with matching arguments.
        let (step, check) = unsafe {
            let load = |kernel| kernels.load(KernelSource::Host(kernel)).expect("a kernel");
            (load(HostKernel::new(step)), load(HostKernel::new(check)))
        };
        let lanes = (0..lanes).map(|at| {
            let stream = device.create_stream(-(at as i32 % 4)).expect("a stream");
            let memory = Place { mem: device.alloc(8 * (SLOTS + 1)).expect("memory").mem, offset: 0 };
            Lane { stream, memory, steps: AtomicU64::new(0), marks: Mutex::new(Vec::new()) }
        });
        let lanes = lanes.collect();
        Self { device, _driver: driver, lanes, step, check, wrong, ended: Mutex::new(0) }
    }

    fn launch(&self, on: &Lane, kernel: Kernel, of: &Lane, step: u64) {
        let args = [Arg::Place { place: of.memory, len: 8 * (SLOTS + 1) }, Arg::Bytes(&step.to_le_bytes())];
        // SAFETY: H1, H4, H15.
        unsafe { self.device.launch(on.stream, kernel, Launch::linear(1, 1), &args) }.expect("a launch");
    }

    /// One step of a lane, of which this thread is the only one to enqueue.
    fn advance(&self, lane: &Lane, dice: &mut Dice) {
        let step = lane.steps.load(Ordering::Relaxed);
        if step == SLOTS {
            return;
        }
        lane.steps.store(step + 1, Ordering::Relaxed);
        // SAFETY: H1, H4, H5, H13.
        unsafe {
            match dice.below(4) {
                0 | 3 => {
                    // The same step as writes, which waiters may run.
                    let bytes = (step + 1).to_le_bytes();
                    self.device.write(lane.stream, lane.memory, &bytes).expect("a write");
                    self.device.write(lane.stream, lane.memory.add(8 * (1 + step)), &bytes).expect("a write");
                }
                1 => {
                    self.launch(lane, self.step, lane, step);
                    let nap = dice.below(3);
                    let function = HostFn::new(move |_| {
                        if nap == 0 {
                            std::thread::sleep(Duration::from_micros(100));
                        }
                    });
                    self.device.host_call(lane.stream, function).expect("a call");
                }
                _ => self.launch(lane, self.step, lane, step),
            }
            if dice.below(2) == 0
                && let Mark::At(mark) = self.device.mark(lane.stream).expect("a mark")
            {
                lane.marks.lock().push((step, mark));
            }
        }
    }

    /// A step of some lane that has a mark.
    fn marked(&self, dice: &mut Dice) -> Option<(&Lane, u64, u64)> {
        let lane = &self.lanes[dice.below(self.lanes.len() as u64) as usize];
        let marks = lane.marks.lock();
        let at = dice.below(marks.len().max(1) as u64) as usize;
        marks.get(at).map(|&(step, mark)| (lane, step, mark))
    }

    /// What one thread does with its own lanes, and now and then with those of others.
    fn drive(&self, own: &[Lane], rounds: u64, mut dice: Dice) {
        for _ in 0..rounds {
            let lane = &own[dice.below(own.len() as u64) as usize];
            match dice.below(8) {
                0..4 => self.advance(lane, &mut dice),
                4 | 5 => {
                    if let Some((of, step, mark)) = self.marked(&mut dice) {
                        // SAFETY: H1; the mark came from that stream.
                        unsafe { self.device.wait(lane.stream, of.stream, Mark::At(mark)) }.expect("a wait");
                        self.launch(lane, self.check, of, step);
                    }
                }
                6 => {
                    if let Some((of, step, mark)) = self.marked(&mut dice) {
                        let mode = if dice.below(2) == 0 { WaitMode::Auto } else { WaitMode::Block };
                        let short = dice.below(2) == 0;
                        let patience = if short { Duration::from_micros(50) } else { PATIENCE };
                        self.look(of, step, mark, patience, mode);
                    }
                }
                _ => {
                    // SAFETY: H1.
                    let ended = unsafe { self.device.completed(lane.stream) }.expect("an answer");
                    let marks = lane.marks.lock();
                    assert!(ended <= marks.last().map_or(0, |&(_, last)| last), "a mark that was not given out");
                }
            }
        }
    }

    /// Waits for a mark on the host and looks at the slot of its step.
    fn look(&self, of: &Lane, step: u64, mark: u64, patience: Duration, mode: WaitMode) {
        let deadline = Some(Instant::now() + patience);
        // SAFETY: H1; the mark came from that stream.
        match unsafe { self.device.wait_host(of.stream, Until::Mark(mark), deadline, mode) } {
            Ok(Waited::Ended) => {
                let slot = self.device_word(of, 1 + step);
                // SAFETY: the slot was written once, before the mark that has ended.
                assert_eq!(unsafe { slot.read() }, step + 1, "a mark that was early");
            }
            Ok(Waited::TimedOut) => assert!(patience < PATIENCE, "a wait that never ended"),
            Err(fault) => panic!("{fault}"),
        }
    }

    /// Where device memory is, which this backend can tell.
    fn device_word(&self, lane: &Lane, at: u64) -> *const u64 {
        // SAFETY: H1.
        let base = unsafe { self.device.native_mem(lane.memory.mem) };
        std::ptr::with_exposed_provenance::<u64>(base as usize).wrapping_add(at as usize)
    }

    /// Everything ends, and every lane shows all of its steps in order.
    fn settle(&self) {
        for lane in &self.lanes {
            let deadline = Some(Instant::now() + PATIENCE);
            // SAFETY: H1, H4, H5: the vector lives until the wait.
            unsafe {
                let waited = self.device.wait_host(lane.stream, Until::Now, deadline, WaitMode::Auto);
                assert_eq!(waited, Ok(Waited::Ended));
                let steps = lane.steps.load(Ordering::Relaxed);
                let mut seen = vec![0_u64; steps as usize + 1];
                let bytes = 8 * (steps + 1);
                let host = End::Host(HostPtr(seen.as_mut_ptr().cast()));
                self.device.copy(lane.stream, host, End::Device(lane.memory), bytes).expect("a copy");
                let waited = self.device.wait_host(lane.stream, Until::Now, deadline, WaitMode::Block);
                assert_eq!(waited, Ok(Waited::Ended));
                assert_eq!(seen[0], steps);
                assert!(seen[1..].iter().copied().eq(1..=steps));
            }
        }
        assert_eq!(self.wrong.load(Ordering::Relaxed), 0, "steps out of order or waits that did not hold");
    }
}

fn stress(threads: usize, lanes: usize, workers: usize, rounds: u64) {
    let yard = Yard::new(threads * lanes, workers);
    std::thread::scope(|scope| {
        for (at, own) in yard.lanes.chunks(lanes).enumerate() {
            let yard = &yard;
            scope.spawn(move || {
                yard.drive(own, rounds, Dice(0x9e37_79b9_7f4a_7c15 ^ (at as u64 + 1)));
                *yard.ended.lock() += 1;
            });
        }
    });
    assert_eq!(*yard.ended.lock(), threads);
    yard.settle();
}

#[test]
fn few_streams_and_many_waits() {
    stress(4, 1, 2, 3000);
}

#[test]
fn many_streams_on_few_workers() {
    stress(4, 100, 2, 3000);
}

#[test]
fn one_worker_is_enough() {
    stress(3, 10, 1, 2000);
}

#[test]
fn more_workers_than_cores() {
    stress(6, 5, 8, 2000);
}

#[test]
fn drivers_come_and_go_with_work_on_them() {
    for round in 0..200 {
        let yard = Yard::new(4, 2);
        let mut dice = Dice(round + 1);
        for lane in &yard.lanes {
            (0..dice.below(20)).for_each(|_| yard.advance(lane, &mut dice));
        }
        if let Some((of, step, mark)) = yard.marked(&mut dice) {
            // SAFETY: H1; the mark came from that stream.
            unsafe { yard.device.wait(yard.lanes[0].stream, of.stream, Mark::At(mark)) }.expect("a wait");
            yard.launch(&yard.lanes[0], yard.check, of, step);
        }
    }
}
