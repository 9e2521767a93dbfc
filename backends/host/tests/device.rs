//! The device through its contract: each test names what it proves.
#![cfg(not(loom))]

use anyaccel_hal::{
    Arg, Device, Driver, End, FaultKind, HostFn, HostKernel, HostPtr, HostStatus, KernelSource, Launch, Mark, Pattern,
    Place, StreamId, Until, WaitMode, Waited,
};
use anyaccel_host::{HostConfig, driver_with};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn open(config: HostConfig) -> (Arc<dyn Driver>, Vec<Arc<dyn Device>>) {
    let driver = driver_with(config);
    let count = driver.start().expect("starts");
    let devices = (0..count).map(|ordinal| driver.open(ordinal).expect("opens")).collect();
    (driver, devices)
}

fn one() -> (Arc<dyn Driver>, Arc<dyn Device>) {
    let (driver, mut devices) = open(HostConfig::new().devices(1).memory(256 * MIB).workers(2));
    (driver, devices.remove(0))
}

fn place(device: &dyn Device, len: u64) -> Place {
    Place { mem: device.alloc(len).expect("memory").mem, offset: 0 }
}

fn at(mark: Mark) -> u64 {
    match mark {
        Mark::At(mark) => mark,
        Mark::Captured(_) => panic!("no capture here"),
    }
}

fn wait(device: &dyn Device, stream: StreamId) {
    // SAFETY: H1 by the tests.
    let waited = unsafe { device.wait_host(stream, Until::Now, Some(Instant::now() + PATIENCE), WaitMode::Auto) };
    assert_eq!(waited, Ok(Waited::Ended));
}

/// Reads device memory back, on a stream of its own turn.
fn read(device: &dyn Device, stream: StreamId, src: Place, len: usize) -> Vec<u8> {
    let mut bytes = vec![0_u8; len];
    let dst = End::Host(HostPtr(bytes.as_mut_ptr()));
    // SAFETY: H1, H4, H5: the vector lives until the wait below.
    unsafe { device.copy(stream, dst, End::Device(src), len as u64) }.expect("a copy");
    wait(device, stream);
    bytes
}

/// A door that host functions wait behind.
#[derive(Default)]
struct Door(Mutex<bool>, Condvar);

impl Door {
    fn pass(&self) {
        let mut open = self.0.lock().expect("not poisoned");
        while !*open {
            open = self.1.wait(open).expect("not poisoned");
        }
    }

    fn open(&self) {
        *self.0.lock().expect("not poisoned") = true;
        self.1.notify_all();
    }
}

#[test]
fn copies_fills_and_writes_arrive_in_order() {
    let (_driver, device) = one();
    let stream = device.create_stream(0).expect("a stream");
    let len = 100_000;
    let (a, b) = (place(&*device, len), place(&*device, len));
    let source: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
    let pattern = Pattern::new(&[1, 2, 3, 4]).expect("4 bytes");
    // SAFETY: H1, H4, H5: the source lives until `read` has waited.
    unsafe {
        let host = End::Host(HostPtr(source.as_ptr().cast_mut()));
        device.copy(stream, End::Device(a), host, len).expect("a copy");
        device.copy(stream, End::Device(b), End::Device(a), len).expect("a copy");
        device.fill(stream, b.add(16), pattern, 8).expect("a fill");
        device.write(stream, b.add(20), &[9; 2]).expect("a write");
    }
    let mut want = source.clone();
    want[16..24].copy_from_slice(&[1, 2, 3, 4, 9, 9, 3, 4]);
    assert!(read(&*device, stream, b, len as usize) == want);
}

#[test]
fn large_work_is_whole_however_it_is_shared() {
    let (_driver, device) = one();
    let stream = device.create_stream(0).expect("a stream");
    let len = 37 * MIB + 12_345;
    let (a, b) = (place(&*device, len + 16), place(&*device, len));
    let pattern: [u8; 16] = std::array::from_fn(|at| at as u8 * 3 + 1);
    // SAFETY: H1, H4.
    unsafe {
        device.fill(stream, a, Pattern::new(&pattern).expect("16 bytes"), len.next_multiple_of(16)).expect("a fill");
        device.copy(stream, End::Device(b), End::Device(a), len).expect("a copy");
    }
    let bytes = read(&*device, stream, b, len as usize);
    assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == pattern[at % 16]));
}

#[test]
fn marks_rise_and_end_and_completed_never_runs_ahead() {
    let (_driver, device) = one();
    let stream = device.create_stream(0).expect("a stream");
    let door = Arc::new(Door::default());
    let behind = Arc::clone(&door);
    // SAFETY: H1, H13.
    unsafe {
        assert_eq!(device.completed(stream), Ok(0));
        let first = at(device.mark(stream).expect("a mark"));
        assert_eq!(device.completed(stream), Ok(first), "nothing is before it");
        device.host_call(stream, HostFn::new(move |_| behind.pass())).expect("a call");
        let second = at(device.mark(stream).expect("a mark"));
        let third = at(device.mark(stream).expect("a mark"));
        assert!(0 < first && first < second && second < third);
        let soon = Instant::now() + Duration::from_millis(20);
        for mode in [WaitMode::Auto, WaitMode::Block] {
            let waited = device.wait_host(stream, Until::Mark(second), Some(soon), mode);
            assert_eq!(waited, Ok(Waited::TimedOut));
        }
        assert!(Instant::now() >= soon);
        assert_eq!(device.completed(stream), Ok(first));
        door.open();
        let waited = device.wait_host(stream, Until::Mark(third), None, WaitMode::Block);
        assert_eq!((waited, device.completed(stream)), (Ok(Waited::Ended), Ok(third)));
    }
}

#[test]
fn streams_wait_for_marks_of_others_and_not_for_what_is_after_them() {
    let (_driver, devices) = open(HostConfig::new().devices(2).memory(16 * MIB).workers(2));
    let (one, two) = (&*devices[0], &*devices[1]);
    let (a, b) = (one.create_stream(0).expect("a stream"), two.create_stream(0).expect("a stream"));
    let (first, later) = (Arc::new(Door::default()), Arc::new(Door::default()));
    let target = place(two, 8);
    let (before, after) = (Arc::clone(&first), Arc::clone(&later));
    // SAFETY: H1, H4, H13.
    unsafe {
        one.host_call(a, HostFn::new(move |_| before.pass())).expect("a call");
        let mark = one.mark(a).expect("a mark");
        one.host_call(a, HostFn::new(move |_| after.pass())).expect("a call");
        two.fill(b, target, Pattern::byte(1), 8).expect("a fill");
        let early = at(two.mark(b).expect("a mark"));
        two.wait(b, a, mark).expect("a wait");
        two.fill(b, target, Pattern::byte(2), 8).expect("a fill");
        let late = at(two.mark(b).expect("a mark"));
        let ended = |mark, millis| {
            let deadline = Some(Instant::now() + Duration::from_millis(millis));
            two.wait_host(b, Until::Mark(mark), deadline, WaitMode::Auto)
        };
        assert_eq!(ended(early, 30_000), Ok(Waited::Ended), "earlier work is not held up");
        assert_eq!(ended(late, 30), Ok(Waited::TimedOut), "later work is");
        assert_eq!(two.completed(b), Ok(early));
        first.open();
        assert_eq!(ended(late, 30_000), Ok(Waited::Ended), "what is after the mark is not waited for");
        later.open();
        wait(one, a);
    }
    assert_eq!(read(two, b, target, 8), [2; 8]);
}

#[test]
fn blocked_functions_stop_neither_copies_nor_other_functions() {
    let (_driver, device) = one();
    let door = Arc::new(Door::default());
    let blocked: Vec<StreamId> = (0..20).map(|_| device.create_stream(0).expect("a stream")).collect();
    for &stream in &blocked {
        let behind = Arc::clone(&door);
        // SAFETY: H1, H13.
        unsafe { device.host_call(stream, HostFn::new(move |_| behind.pass())) }.expect("a call");
    }
    let free = device.create_stream(0).expect("a stream");
    let target = place(&*device, MIB);
    let called = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&called);
    // SAFETY: H1, H4, H13.
    unsafe {
        device.fill(free, target, Pattern::byte(7), MIB).expect("a fill");
        let count = move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        device.host_call(free, HostFn::new(count)).expect("a call");
    }
    assert!(read(&*device, free, target, MIB as usize).iter().all(|&byte| byte == 7));
    assert_eq!(called.load(Ordering::Relaxed), 1);
    door.open();
    blocked.iter().for_each(|&stream| wait(&*device, stream));
}

#[test]
fn functions_come_in_order_once_and_may_enqueue() {
    let (_driver, device) = one();
    let (stream, other) = (device.create_stream(0).expect("a stream"), device.create_stream(-1).expect("a stream"));
    let (say, said) = mpsc::channel();
    for at in 0..100 {
        let (say, within) = (say.clone(), Arc::clone(&device));
        let target = place(&*device, 64);
        let function = move |status| {
            // SAFETY: H1, H4. The face refuses this; enqueueing must not deadlock all the same.
            unsafe { within.fill(other, target, Pattern::byte(1), 64) }.expect("a fill");
            say.send((at, status)).expect("heard");
        };
        // SAFETY: H1, H13.
        unsafe { device.host_call(stream, HostFn::new(function)) }.expect("a call");
    }
    wait(&*device, stream);
    let order: Vec<_> = said.try_iter().collect();
    assert_eq!(order, (0..100).map(|at| (at, HostStatus::Run)).collect::<Vec<_>>());
    wait(&*device, other);
}

#[test]
fn a_panic_in_a_function_or_a_kernel_is_contained() {
    let (_driver, device) = one();
    let stream = device.create_stream(0).expect("a stream");
    let kernels = device.kernels().expect("kernels");
    // SAFETY: H1, H13, H15.
    unsafe {
        device.host_call(stream, HostFn::new(|_| panic!("a test's own panic"))).expect("a call");
        let kernel = kernels.load(KernelSource::Host(HostKernel::new(|_, _| panic!("a test's own panic"))));
        device.launch(stream, kernel.expect("a kernel"), Launch::linear(3, 1), &[]).expect("a launch");
    }
    wait(&*device, stream);
}

#[test]
fn dropping_the_device_cancels_what_has_not_begun_and_ends_the_threads() {
    let (driver, device) = one();
    let (stream, second) = (device.create_stream(0).expect("a stream"), device.create_stream(0).expect("a stream"));
    let door = Arc::new(Door::default());
    let (say, said) = mpsc::channel();
    let (behind, begun) = (Arc::clone(&door), say.clone());
    // SAFETY: H1, H13; the memory of the copy that never runs is device memory.
    unsafe {
        let first = move |status| {
            begun.send((0, status)).expect("heard");
            behind.pass();
        };
        device.host_call(stream, HostFn::new(first)).expect("a call");
        let mark = device.mark(stream).expect("a mark");
        let later = say.clone();
        device.host_call(stream, HostFn::new(move |status| later.send((1, status)).expect("heard"))).expect("a call");
        device.wait(second, stream, mark).expect("a wait");
        let blocked = say.clone();
        device.host_call(second, HostFn::new(move |status| blocked.send((2, status)).expect("heard"))).expect("a call");
    }
    drop(say);
    assert_eq!(said.recv_timeout(PATIENCE), Ok((0, HostStatus::Run)));
    drop((device, driver));
    assert_eq!(said.recv_timeout(PATIENCE), Ok((2, HostStatus::Cancelled)), "while the first still blocks");
    door.open();
    assert_eq!(said.recv_timeout(PATIENCE), Ok((1, HostStatus::Cancelled)));
    assert_eq!(said.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected), "each was called once");
}

#[test]
fn the_last_reference_may_go_away_in_a_function() {
    let (driver, device) = one();
    let stream = device.create_stream(0).expect("a stream");
    let (say, said) = mpsc::channel();
    let door = Arc::new(Door::default());
    let (behind, held) = (Arc::clone(&door), Arc::clone(&device));
    let function = move |_| {
        behind.pass();
        let _ = &held;
    };
    // SAFETY: H1, H13.
    unsafe {
        device.host_call(stream, HostFn::new(function)).expect("a call");
        device.host_call(stream, HostFn::new(move |status| say.send(status).expect("heard"))).expect("a call");
    }
    drop((driver, device));
    door.open();
    assert_eq!(said.recv_timeout(PATIENCE), Ok(HostStatus::Cancelled));
}

#[test]
fn stamps_tell_the_time_between_their_turns() {
    let (_driver, device) = one();
    let stream = device.create_stream(0).expect("a stream");
    // SAFETY: H1, H13.
    unsafe {
        let before = device.stamp(stream).expect("a stamp");
        device.host_call(stream, HostFn::new(|_| std::thread::sleep(Duration::from_millis(20)))).expect("a call");
        let after = device.stamp(stream).expect("a stamp");
        assert_eq!(device.elapsed_ns(before, after).map_err(|fault| fault.kind), Err(FaultKind::NotReady));
        wait(&*device, stream);
        let forth = device.elapsed_ns(before, after).expect("both turns came");
        assert!((20_000_000..5_000_000_000).contains(&forth), "{forth}");
        assert_eq!(device.elapsed_ns(after, before), Ok(-forth));
        device.drop_stamp(before);
        assert_eq!(device.elapsed_ns(before, after).map_err(|fault| fault.kind), Err(FaultKind::Invalid));
    }
}

#[test]
fn memory_is_limited_and_comes_back() {
    let (_driver, device) = one();
    let total = 256 * MIB;
    let all = device.alloc(total).expect("everything");
    assert_eq!(device.memory_info().map(|info| (info.free, info.total)), Ok((Some(0), total)));
    assert_eq!(device.alloc(1).map_err(|fault| fault.kind), Err(FaultKind::OutOfMemory));
    for len in [0, total + 1, u64::MAX] {
        assert_eq!(device.alloc(len).map_err(|fault| fault.kind), Err(FaultKind::Invalid), "{len}");
    }
    // SAFETY: H1, H4.
    unsafe {
        device.free(all.mem).expect("freed");
        assert_eq!(device.free(all.mem).map_err(|fault| fault.kind), Err(FaultKind::Invalid), "a stale handle");
    }
    let piece = device.alloc(1).expect("a piece");
    assert_eq!((piece.len, piece.addr % 4096), (4096, 0));
    assert_ne!(piece.mem, all.mem);
    assert_eq!(device.alloc(3 * MIB).expect("a large piece").addr % (2 * MIB), 0);
}

#[test]
fn places_outside_their_memory_are_refused_before_anything_happens() {
    let (_driver, device) = one();
    let stream = device.create_stream(0).expect("a stream");
    let target = place(&*device, 4096);
    // SAFETY: these break H4 on purpose, and this backend says that it checks.
    unsafe {
        for (place, len) in [(target, 4097), (target.add(4096), 1), (target.add(1), u64::MAX)] {
            let fault = device.fill(stream, place, Pattern::byte(0), len).expect_err("refused");
            assert_eq!(fault.kind, FaultKind::Invalid);
        }
        assert!(device.write(stream, target, &[0; 65]).is_err());
        let host = End::Host(HostPtr(std::ptr::dangling_mut()));
        assert!(device.copy(stream, host, host, 1).is_err());
        assert_eq!(device.wait_host(stream, Until::Now, None, WaitMode::Auto), Ok(Waited::Ended));
    }
}

#[test]
fn pinned_memory_is_an_end_of_copies_and_registers_once() {
    let (_driver, device) = one();
    let stream = device.create_stream(0).expect("a stream");
    let pinned = device.pinned().expect("pinned");
    let target = place(&*device, 4096);
    let mut own = vec![0_u8; 10_000];
    // SAFETY: H1, H4, H5: the memory lives until the waits.
    unsafe {
        let (mem, ptr) = pinned.alloc(5000).expect("pinned memory");
        assert_eq!(ptr.0 as usize % 4096, 0);
        ptr.0.write_bytes(5, 4096);
        device.copy(stream, End::Device(target), End::Pinned(Place { mem, offset: 0 }), 4096).expect("a copy");
        device.copy(stream, End::Host(HostPtr(ptr.0.add(4096))), End::Device(target), 904).expect("a copy");
        wait(&*device, stream);
        assert_eq!(ptr.0.add(4999).read(), 5);
        assert!(device.free(mem).is_err(), "it is no segment");
        pinned.free(mem).expect("freed");
        assert!(pinned.free(mem).is_err());
        let own = HostPtr(own.as_mut_ptr());
        let registered = pinned.register(own, 10_000).expect("registered");
        for (at, len) in [(0, 10_000), (9_999, 1), (0, 1), (5000, 100_000)] {
            assert!(pinned.register(HostPtr(own.0.add(at)), len).is_err(), "{at} {len}");
        }
        pinned.free(registered).expect("forgotten");
        let again = pinned.register(own, 1).expect("registered again");
        pinned.free(again).expect("forgotten");
    }
    assert!(own.iter().all(|&byte| byte == 0));
}

#[test]
fn devices_copy_between_each_other() {
    let (_driver, devices) = open(HostConfig::new().devices(2).memory(16 * MIB));
    let (one, two) = (&*devices[0], &*devices[1]);
    let peers = two.peers().expect("peers");
    assert_eq!([0, 1, 2].map(|ordinal| peers.can_access(ordinal)), [true, false, false]);
    assert_eq!(peers.limits().reachable, 1);
    let (a, b) = (one.create_stream(0).expect("a stream"), two.create_stream(0).expect("a stream"));
    let (src, dst) = (place(one, 1000), place(two, 1000));
    // SAFETY: H1, H4.
    unsafe {
        one.fill(a, src, Pattern::byte(3), 1000).expect("a fill");
        two.wait(b, a, one.mark(a).expect("a mark")).expect("a wait");
        peers.copy(b, dst, 0, src, 1000).expect("a copy");
        assert!(peers.copy(b, dst, 1, src, 1).is_err());
    }
    assert_eq!(read(two, b, dst, 1000), [3; 1000]);
}

#[test]
fn gates_hold_streams_up_until_they_open() {
    let (_driver, device) = one();
    let gates = device.gates().expect("gates");
    let stream = device.create_stream(0).expect("a stream");
    let target = place(&*device, 16);
    // SAFETY: H1, H4.
    unsafe {
        let gate = gates.create().expect("a gate");
        device.fill(stream, target, Pattern::byte(1), 16).expect("a fill");
        let before = at(device.mark(stream).expect("a mark"));
        gates.wait(stream, gate).expect("held");
        device.fill(stream, target, Pattern::byte(2), 16).expect("a fill");
        let after = at(device.mark(stream).expect("a mark"));
        let waited = device.wait_host(stream, Until::Mark(before), None, WaitMode::Auto);
        assert_eq!(waited, Ok(Waited::Ended));
        let soon = Some(Instant::now() + Duration::from_millis(20));
        assert_eq!(device.wait_host(stream, Until::Now, soon, WaitMode::Auto), Ok(Waited::TimedOut));
        gates.open(gate).expect("opened");
        let waited = device.wait_host(stream, Until::Mark(after), None, WaitMode::Auto);
        assert_eq!(waited, Ok(Waited::Ended));
        gates.wait(stream, gate).expect("open for good");
        wait(&*device, stream);
        gates.destroy(gate);
        let closed = gates.create().expect("a gate");
        gates.wait(stream, closed).expect("held");
        gates.destroy(closed);
        wait(&*device, stream);
        assert!(gates.open(gate).is_err());
    }
    assert_eq!(read(&*device, stream, target, 16), [2; 16]);
}

#[test]
fn reserved_ranges_grow_and_shrink() {
    let (_driver, device) = one();
    let ranges = device.virtual_memory().expect("virtual memory");
    let unit = ranges.limits().granularity;
    let stream = device.create_stream(0).expect("a stream");
    assert!(ranges.reserve(unit - 1).is_err());
    let (range, segment) = ranges.reserve(1000 * unit).expect("more than there is memory");
    let target = Place { mem: segment.mem, offset: unit };
    // SAFETY: H1, H4.
    unsafe {
        ranges.map(range, unit, 2 * unit).expect("backed");
        assert_eq!(device.memory_info().expect("info").free, Some(256 * MIB - 2 * unit));
        assert!(ranges.map(range, 2 * unit, unit).is_err(), "backed already");
        assert!(ranges.unmap(range, 0, unit).is_err(), "not backed");
        assert!(ranges.map(range, 1, unit).is_err() && ranges.map(range, 999 * unit, 2 * unit).is_err());
        let fault = ranges.map(range, 3 * unit, 200 * unit).expect_err("too much");
        assert_eq!(fault.kind, FaultKind::OutOfMemory);
        device.fill(stream, target, Pattern::byte(8), 2 * unit).expect("a fill");
        assert!(read(&*device, stream, target, 2 * unit as usize).iter().all(|&byte| byte == 8));
        ranges.unmap(range, 2 * unit, unit).expect("unbacked");
        ranges.map(range, 2 * unit, unit).expect("backed again");
        let fresh = read(&*device, stream, target.add(unit), 1);
        assert_eq!(fresh, [0], "new memory");
        assert_eq!(read(&*device, stream, target, 1), [8], "the rest stayed");
        ranges.release(range).expect("released");
        assert!(ranges.release(range).is_err());
    }
    assert_eq!(device.memory_info().expect("info").free, Some(256 * MIB));
}

#[test]
fn kernels_run_every_group_with_its_arguments() {
    let (_driver, device) = one();
    let kernels = device.kernels().expect("kernels");
    let stream = device.create_stream(0).expect("a stream");
    let target = place(&*device, 4096);
    let kernel = HostKernel::new(|group, args| {
        assert_eq!((args.len(), args[0].len, args[1].len, args[2].len), (3, 2000, 4, 100));
        let at = (group.index[2] * 5 + group.index[1]) * 10 + group.index[0];
        assert_eq!((group.groups, group.threads, group.shared), ([10, 5, 4], [2, 1, 1], 64));
        assert_eq!((args[1].ptr as usize % 16, args[2].ptr as usize % 16), (0, 0));
        // SAFETY: the arguments that the launch below gives; each group has its own element and local memory.
        unsafe {
            args[2].ptr.write_bytes(at as u8, 100);
            let base = args[1].ptr.cast::<u32>().read();
            let local = u32::from(args[2].ptr.add(99).read());
            args[0].ptr.cast::<u32>().add(at as usize).write(base + local);
        }
    });
    // SAFETY: H1, H4, H15.
    unsafe {
        let kernel = kernels.load(KernelSource::Host(kernel)).expect("a kernel");
        let launch = Launch { groups: [10, 5, 4], threads: [2, 1, 1], shared: 64 };
        let value = 1000_u32.to_le_bytes();
        let args = [Arg::Place { place: target, len: 2000 }, Arg::Bytes(&value), Arg::Local(100)];
        device.launch(stream, kernel, launch, &args).expect("a launch");
        let bytes = read(&*device, stream, target, 800);
        let got: Vec<u32> = bytes.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect();
        assert_eq!(got, (1000..1200).collect::<Vec<u32>>());
        for bad in [
            Launch { groups: [0, 1, 1], ..launch },
            Launch { threads: [1 << 16, 2, 1], ..launch },
            Launch { shared: u32::MAX, ..launch },
            Launch { groups: [u32::MAX; 3], ..launch },
        ] {
            let fault = device.launch(stream, kernel, bad, &args).expect_err("refused");
            assert_eq!(fault.kind, FaultKind::Invalid, "{bad:?}");
        }
        kernels.unload(kernel);
        assert!(device.launch(stream, kernel, launch, &args).is_err());
    }
}

#[test]
fn built_ins_are_checked_and_compute_their_reference() {
    use anyaccel_hal::DType;
    use anyaccel_kernels::{Builtin, convert, histogram};
    let (_driver, device) = one();
    let stream = device.create_stream(0).expect("a stream");
    let builtin = |builtin: Builtin| device.builtin(builtin.number()).expect("every built-in");
    assert!(Builtin::ALL.iter().all(|builtin| device.builtin(builtin.number()).is_some()));
    assert_eq!(device.builtin(0), None);
    assert_eq!(device.builtin(9999), None);
    let len = 3 * MIB + 5;
    let (data, counts, wide) = (place(&*device, len), place(&*device, 4096), place(&*device, 4 * len));
    let source: Vec<u8> = (0..len).map(|at| ((at * at) >> 7) as u8).collect();
    let params = histogram::Params::new(len).to_bytes();
    let count = [Arg::Place { place: counts, len: 2048 }, Arg::Place { place: data, len }, Arg::Bytes(&params)];
    let cast = convert::Params::new(DType::F32, DType::U8, len).to_bytes();
    let widen = [Arg::Place { place: wide, len: 4 * len }, Arg::Place { place: data, len }, Arg::Bytes(&cast)];
    // SAFETY: H1, H4, H5, H15.
    unsafe {
        let host = End::Host(HostPtr(source.as_ptr().cast_mut()));
        device.copy(stream, End::Device(data), host, len).expect("a copy");
        device.fill(stream, counts, Pattern::byte(0), 2048).expect("a fill");
        let histogram = builtin(Builtin::Histogram);
        let launch = Launch::linear(histogram::split(len).chunks(), 1);
        device.launch(stream, histogram, launch, &count).expect("a launch");
        device.launch(stream, builtin(Builtin::Noop), Launch::linear(1, 1), &[]).expect("a launch");
        let groups = Launch::linear(convert::split(len).chunks(), 256);
        device.launch(stream, builtin(Builtin::Convert), groups, &widen).expect("a launch");
        let bytes = read(&*device, stream, counts, 2048);
        let got: Vec<u64> = bytes.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect();
        let mut want = [0; 256];
        histogram::count(&source, &mut want);
        assert_eq!(got, want);
        let floats = read(&*device, stream, wide, 4 * len as usize);
        let right = |(at, &bytes): (usize, &[u8; 4])| f32::from_le_bytes(bytes) == f32::from(source[at]);
        assert!(floats.as_chunks().0.iter().enumerate().all(right));
        for bad in [
            &count[..2],
            &count[1..],
            &[count[1], count[0], count[2]][..],
            &[count[0], count[2], count[2]],
            &[Arg::Place { place: counts.add(1), len: 2048 }, count[1], count[2]],
            &[Arg::Place { place: counts, len: 2047 }, count[1], count[2]],
        ] {
            let fault = device.launch(stream, histogram, launch, bad).expect_err("refused");
            assert_eq!(fault.kind, FaultKind::Invalid, "{bad:?}");
        }
        let few = Launch::linear(launch.groups[0] - 1, 1);
        assert!(device.launch(stream, histogram, few, &count).is_err());
    }
}

#[test]
fn random_fills_equal_their_reference_from_a_value_and_from_a_cell() {
    use anyaccel_hal::DType;
    use anyaccel_kernels::random::{Draw, Fill, Source};
    let (_driver, device) = one();
    let stream = device.create_stream(0).expect("a stream");
    let count = 200_001;
    let (target, cell) = (place(&*device, 4 * count), place(&*device, 16));
    let draw = Draw::portable(42, 8);
    let state: Vec<u8> = [42_u64, 8].iter().flat_map(|word| word.to_le_bytes()).collect();
    let fills = [
        Fill::uniform(DType::F32, count, draw, 0.0, 1.0),
        Fill::normal(DType::F32, count, draw, 0.0, 1.0).map(|fill| fill.with_source(Source::Cell { delta: 0 })),
        Fill::permutation(DType::I32, count, draw),
    ];
    for fill in fills {
        let fill = fill.expect("a fill");
        let params = fill.params().to_bytes();
        let args = [
            Arg::Place { place: target, len: fill.destination_len() },
            Arg::Place { place: cell, len: fill.cell_len() },
            Arg::Bytes(&params),
        ];
        let mut want = vec![0; 4 * count as usize];
        fill.run(0..count, &mut want, &state).expect("the reference");
        // SAFETY: H1, H4, H15.
        unsafe {
            device.write(stream, cell, &state).expect("a write");
            let kernel = device.builtin(fill.kernel().number()).expect("every built-in");
            device.launch(stream, kernel, Launch::linear(fill.split().chunks(), 1), &args).expect("a launch");
        }
        assert!(read(&*device, stream, target, want.len()) == want, "{}", fill.kernel());
    }
}

#[test]
fn urgent_streams_go_first() {
    let (_driver, mut devices) = open(HostConfig::new().devices(1).memory(16 * MIB).workers(1));
    let device = devices.remove(0);
    let kernels = device.kernels().expect("kernels");
    let door = Arc::new(Door::default());
    let behind = Arc::clone(&door);
    let order = Arc::new(Mutex::new(Vec::new()));
    // SAFETY: H1, H15.
    unsafe {
        let hold = kernels.load(KernelSource::Host(HostKernel::new(move |_, _| behind.pass()))).expect("a kernel");
        let busy = device.create_stream(0).expect("a stream");
        device.launch(busy, hold, Launch::linear(1, 1), &[]).expect("a launch");
        device.mark(busy).expect("a mark");
        std::thread::sleep(Duration::from_millis(20));
        let mut streams = vec![busy];
        for priority in [0, -1, -3, -2, -1, -3, 0, -9] {
            let order = Arc::clone(&order);
            let say = HostKernel::new(move |_, _| order.lock().expect("not poisoned").push(priority));
            let say = kernels.load(KernelSource::Host(say)).expect("a kernel");
            let stream = device.create_stream(priority).expect("a stream");
            device.launch(stream, say, Launch::linear(1, 1), &[]).expect("a launch");
            device.mark(stream).expect("a mark");
            streams.push(stream);
        }
        door.open();
        streams.iter().for_each(|&stream| wait(&*device, stream));
    }
    assert_eq!(*order.lock().expect("not poisoned"), [-3, -3, -9, -2, -1, -1, 0, 0]);
}

#[test]
fn ten_thousand_streams_need_few_threads_and_little_memory() {
    let (_driver, device) = one();
    let target = place(&*device, 10_000 * 16);
    let before = resident();
    let streams: Vec<StreamId> = (0..10_000).map(|at| device.create_stream(-(at % 4)).expect("a stream")).collect();
    for (at, &stream) in streams.iter().enumerate() {
        // SAFETY: H1, H4.
        unsafe {
            device.write(stream, target.add(at as u64 * 16), &[1; 16]).expect("a write");
            device.mark(stream).expect("a mark");
        }
    }
    streams.iter().for_each(|&stream| wait(&*device, stream));
    let used = resident().saturating_sub(before);
    assert!(used < 100 << 20, "{used} bytes for 10,000 streams");
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux").count();
    assert!(threads < 400, "{threads} threads in all tests of this process");
    for stream in streams {
        // SAFETY: H1; its work has ended.
        unsafe { device.destroy_stream(stream) }.expect("destroyed");
    }
}

/// Bytes of memory that this process has.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * 4096
}

#[test]
fn nothing_starts_before_there_is_work() {
    let driver = driver_with(HostConfig::new().devices(3).memory(MIB));
    assert!(driver.fork_safe_probe() && driver.restartable());
    assert_eq!(driver.probe().visible, 3);
    assert_eq!(driver.describe(2).map(|info| info.memory), Some(MIB));
    assert_eq!(driver.describe(3), None);
    assert!(driver.open(0).is_err(), "not started");
    assert_eq!((driver.start(), driver.start()), (Ok(3), Ok(3)));
    assert!(driver.open(3).is_err());
    let (first, again) = (driver.open(1).expect("opens"), driver.open(1).expect("opens"));
    assert!(std::ptr::addr_eq(Arc::as_ptr(&first), Arc::as_ptr(&again)), "the same device");
    let none = driver_with(HostConfig::new().devices(0));
    assert_eq!((none.probe().visible, none.start()), (0, Ok(0)));
}
