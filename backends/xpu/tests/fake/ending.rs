//! Ends: forks, runtimes that go while work is under way, and what is left of them.

use crate::Scenario;
use crate::lab::{Lab, driver, eventually};
use std::time::{Duration, Instant};

pub(crate) const ALL: &[Scenario] = &[
    Scenario::new("a_child_of_a_started_parent_is_told", a_child_is_told),
    Scenario::new("nothing_is_left_of_a_driver_that_went", nothing_is_left),
    Scenario::new("a_driver_goes_while_work_is_under_way", goes_while_busy),
    Scenario::new("threads_end_with_their_driver", threads_end),
];

fn a_child_is_told() {
    let runtime = anyaccel::Runtime::builder().backend("xpu").build().expect("a runtime");
    let buffer = runtime.zeros(64).expect("memory");
    assert_eq!(buffer.to_vec().expect("its bytes"), [0; 64]);
    // SAFETY: the child calls what a forked child may call, and ends.
    match unsafe { libc::fork() } {
        0 => {
            let told = runtime.zeros(64).map(drop).is_err_and(|error| error.to_string().contains("fork"));
            // SAFETY: ends the child.
            unsafe { libc::_exit(if told { 0 } else { 1 }) };
        }
        child => {
            let mut status = 0;
            // SAFETY: a child of this process, a valid place for the answer.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0, "the child is told that it was forked");
        }
    }
    assert_eq!(buffer.to_vec().expect("the parent goes on"), [0; 64]);
}

/// What the log says of objects that were made and given back.
fn balance(made: &str, back: &str) -> (usize, usize) {
    let calls = crate::lab::calls();
    let count = |name: &str| {
        calls.iter().filter(|line| line.split(|c: char| !c.is_alphanumeric()).any(|word| word == name)).count()
    };
    (count(made), count(back))
}

fn nothing_is_left() {
    {
        let lab = Lab::new();
        let stream = lab.stream();
        let place = lab.memory(4096);
        lab.fill(stream, place, 1, 4096).expect("a fill");
        lab.mark(stream).expect("a mark");
        lab.call(stream, |_| ()).expect("a call");
        let stamp = lab.stamp(stream);
        lab.finish(stream).expect("an end");
        lab.drop_stamp(stamp);
        let pinned = lab.device.pinned().expect("pinned memory");
        pinned.alloc(4096).expect("pinned memory");
        if let Some(virtual_memory) = lab.device.virtual_memory() {
            let step = virtual_memory.limits().granularity;
            let (range, _) = virtual_memory.reserve(4 * step).expect("addresses");
            // SAFETY: H1: reserved above.
            unsafe { virtual_memory.map(range, step, 2 * step) }.expect("a part of them backed");
        }
    }
    let pairs = [
        ("zeContextCreate", "zeContextDestroy"),
        ("zeCommandListCreateImmediate", "zeCommandListDestroy"),
        ("zeEventPoolCreate", "zeEventPoolDestroy"),
        ("zeEventCreate", "zeEventDestroy"),
        ("zePhysicalMemCreate", "zePhysicalMemDestroy"),
        ("zeVirtualMemReserve", "zeVirtualMemFree"),
    ];
    // A thread that called functions may have the context for a moment longer.
    eventually("the context is given back", || balance("zeContextCreate", "zeContextDestroy") == (1, 1));
    for (made, back) in pairs {
        let (made_count, back_count) = balance(made, back);
        assert!(made_count > 0, "{made}");
        assert_eq!(made_count, back_count, "{made} and {back}");
    }
    let (device, freed) = balance("zeMemAllocDevice", "zeMemFree");
    let (host, _) = balance("zeMemAllocHost", "zeMemFree");
    assert_eq!(device + host, freed, "memory");
}

fn goes_while_busy() {
    let begin = Instant::now();
    {
        let lab = Lab::new();
        let stream = lab.stream();
        let place = lab.memory(4096);
        let _gate = lab.close(stream);
        lab.fill(stream, place, 1, 4096).expect("a fill");
        lab.call(stream, |_| ()).expect("a call");
        lab.mark(stream).expect("a mark");
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "it does not wait for the device");
    // Another one starts as if nothing had been.
    let driver = driver();
    driver.start().expect("a start");
    let lab = Lab::of(driver, 0);
    let stream = lab.stream();
    let place = lab.memory(64);
    lab.fill(stream, place, 9, 64).expect("a fill");
    assert_eq!(lab.read(stream, place, 64), [9; 64]);
}

/// How many threads of this process have a name that begins so.
fn threads(prefix: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks
        .filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with(prefix)))
        .count()
}

fn threads_end() {
    {
        let lab = Lab::new();
        let stream = lab.stream();
        lab.call(stream, |_| ()).expect("a call");
        lab.finish(stream).expect("an end");
        assert!(threads("anyaccel-xpu") > 0);
    }
    eventually("its threads end", || threads("anyaccel-xpu") == 0);
}
