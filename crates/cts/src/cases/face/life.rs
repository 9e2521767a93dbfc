//! Ends, in any order: runtimes, streams, events, buffers, kernels.

use super::Face;
use crate::case::{Capability, Case, Outcome, expect, same};
use crate::env::Env;
use anyaccel::{EventOptions, KernelArg, LaunchArg, StreamOptions, WorkGroup};
use anyaccel_hal::Launch;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

pub(super) const CASES: &[Case] = &[
    Case::face("life.runtime-first", &["life.handles"], runtime_first),
    Case::face("life.any-order", &["life.order"], any_order).devices(2),
    Case::face("life.with-work-under-way", &["life.order"], with_work_under_way),
    Case::face("life.many-runtimes", &["life.runtimes"], many_runtimes),
    Case::face("life.threads-end-first", &["life.order", "thread.current"], threads_end_first),
    Case::face("life.kernels", &["work.kernels"], kernels).needs(&[Capability::HostKernels]),
];

/// Handles keep their runtime alive.
fn runtime_first(env: &Env) -> Outcome {
    let Face { runtime, driver, patience } = Face::new(env)?;
    let stream = runtime.stream(())?;
    let event = runtime.event(EventOptions::default())?;
    let buffer = runtime.zeros(256)?;
    runtime.synchronize(())?;
    drop(driver);
    drop(runtime);
    stream.fill(&buffer.all(), &[3])?;
    event.record(Some(&stream))?;
    same("life.handles", "a wait for an event whose runtime handle is gone", event.synchronize_for(patience)?, true)?;
    drop(event);
    let mut seen = [0; 256];
    stream.download(&mut seen, &buffer.all())?;
    drop(stream);
    same("life.handles", "what a stream did without its runtime's handle", seen.to_vec(), vec![3; 256])?;
    same("life.handles", "a buffer that is left alone", buffer.to_vec()?, vec![3; 256])
}

fn any_order(env: &Env) -> Outcome {
    // Which of five things goes next, in all orders.
    fn orders(rest: &[usize]) -> Vec<Vec<usize>> {
        if rest.is_empty() {
            return vec![Vec::new()];
        }
        let with = |&first: &usize| {
            let others: Vec<usize> = rest.iter().copied().filter(|&other| other != first).collect();
            orders(&others).into_iter().map(move |order| [vec![first], order].concat())
        };
        rest.iter().flat_map(with).collect()
    }
    for order in orders(&[0, 1, 2, 3, 4]) {
        let Face { runtime, driver, .. } = Face::new(env)?;
        drop(driver);
        let stream = runtime.stream_with(1, StreamOptions { reserved: true, ..StreamOptions::default() })?;
        let buffer = runtime.alloc_on(1, 4096)?;
        let pinned = runtime.pinned(64)?;
        let event = runtime.event(EventOptions { enable_timing: true, ..EventOptions::default() })?;
        stream.fill(&buffer.all(), &[1])?;
        event.record(Some(&stream))?;
        let (mut runtime, mut stream, mut buffer) = (Some(runtime), Some(stream), Some(buffer));
        let (mut pinned, mut event) = (Some(pinned), Some(event));
        for which in order {
            match which {
                0 => drop(runtime.take()),
                1 => drop(stream.take()),
                2 => drop(buffer.take()),
                3 => drop(pinned.take()),
                _ => drop(event.take()),
            }
        }
    }
    Ok(())
}

/// Everything goes while a function blocks and work waits behind it; the function still ends by itself.
fn with_work_under_way(env: &Env) -> Outcome {
    for _ in 0..5 {
        let Face { runtime, driver, patience } = Face::new(env)?;
        drop(driver);
        let stream = runtime.stream(())?;
        let buffer = runtime.alloc(1 << 20)?;
        let dropped = Arc::new(AtomicU32::new(0));
        struct Counts(Arc<AtomicU32>);
        impl Drop for Counts {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        for _ in 0..20 {
            stream.fill(&buffer.all(), &[1])?;
            let counts = Counts(dropped.clone());
            stream.host_fn(move || drop(counts))?;
        }
        drop((runtime, buffer, stream));
        let deadline = std::time::Instant::now() + patience;
        while dropped.load(Ordering::SeqCst) < 20 && std::time::Instant::now() < deadline {
            thread::sleep(std::time::Duration::from_millis(1));
        }
        same("life.order", "functions whose data was dropped in the end", dropped.load(Ordering::SeqCst), 20)?;
    }
    Ok(())
}

fn many_runtimes(env: &Env) -> Outcome {
    for round in 0..30_u8 {
        let face = Face::new(env)?;
        let buffer = face.runtime.zeros(64)?;
        let stream = face.runtime.current_stream(())?;
        stream.fill(&buffer.all(), &[round])?;
        same("life.runtimes", "what one of many runtimes filled", buffer.to_vec()?, vec![round; 64])?;
    }
    let (one, other) = (Face::new(env)?, Face::new(env)?);
    one.runtime.current_stream(())?;
    same("life.runtimes", "whether another runtime started", other.runtime.is_started(), false)?;
    expect("life.runtimes", one.runtime != other.runtime, "two runtimes", "one")
}

/// A thread that goes leaves its current stream behind, in good order.
fn threads_end_first(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    for round in 0..20_u8 {
        let buffer = runtime.zeros(64)?;
        runtime.synchronize(())?;
        thread::scope(|scope| {
            let (runtime, buffer) = (&face.runtime, &buffer);
            let thread = scope.spawn(move || -> Outcome {
                let stream = runtime.stream_with((), StreamOptions { reserved: true, ..StreamOptions::default() })?;
                runtime.set_stream(&stream)?;
                stream.fill(&buffer.all(), &[round])?;
                std::mem::forget(stream.enter()?);
                Ok(())
            });
            super::join(thread.join())
        })?;
        runtime.synchronize(())?;
        same("life.order", "what a thread that has ended enqueued", buffer.to_vec()?, vec![round; 64])?;
    }
    Ok(())
}

fn kernels(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let stream = runtime.stream(())?;
    let buffer = runtime.zeros(64)?;
    stream.wait_stream(&runtime.current_stream(())?)?;
    for round in 0..20_u8 {
        let kernel = runtime.host_kernel((), |group: &WorkGroup, args: &[KernelArg]| {
            if let [place, value] = args {
                // SAFETY: the launch below passes 64 bytes and a value of one, and has 64 groups.
                unsafe { place.ptr.wrapping_add(group.index[0] as usize).write(value.ptr.read()) };
            }
        })?;
        let args = [LaunchArg::Buffer(buffer.all()), LaunchArg::Bytes(&[round])];
        // SAFETY: the arguments are those that the kernel expects, and nothing else uses the buffer.
        unsafe { stream.launch(&kernel, Launch::linear(64, 1), &args) }?;
        // Dropped while its launch may be under way.
        drop(kernel);
        let mut seen = [0; 64];
        stream.download(&mut seen, &buffer.all())?;
        same("work.kernels", "what a kernel wrote", seen.to_vec(), vec![round; 64])?;
    }
    Ok(())
}
