//! Memory by address: what is left to a runtime, found again and taken back.

use anyaccel::{Error, ErrorClass, GraphOptions, Result, Runtime, StreamOptions};
use std::sync::{Arc, mpsc};

fn runtime() -> Result<Runtime> {
    Runtime::builder().backend("host").build()
}

#[test]
fn a_buffer_is_found_by_any_address_inside_and_taken_by_its_first() -> Result<()> {
    let runtime = runtime()?;
    let addr = runtime.buffer_from(b"abcdef")?.into_address()?;
    let (shared, at) = runtime.buffer_at(addr + 5)?;
    assert_eq!((shared.len(), at, shared.address()), (6, 5, addr));
    for outside in [0, 1, addr - 1, addr + 6, u64::MAX] {
        let error = runtime.buffer_at(outside).expect_err("outside");
        assert_eq!(error, Error::UnknownAddress { what: "device memory", addr: outside });
        assert_eq!(error.class(), ErrorClass::Runtime);
    }
    assert!(runtime.take_buffer(addr + 1).is_err(), "not the first");
    let taken = runtime.take_buffer(addr)?;
    assert!(runtime.take_buffer(addr).is_err() && runtime.buffer_at(addr).is_err());
    drop(shared);
    assert_eq!(taken.to_vec()?, b"abcdef");
    assert_eq!(runtime.alloc(0)?.into_address()?, 0);
    Ok(())
}

#[test]
fn memory_lives_until_taken_and_until_nobody_shares_it() -> Result<()> {
    let runtime = runtime()?;
    let addr = runtime.alloc(1000)?.into_address()?;
    assert_eq!(runtime.memory_stats(())?.get("allocation.all.current"), Some(1));
    let (shared, _) = runtime.buffer_at(addr)?;
    drop(runtime.take_buffer(addr)?);
    assert_eq!(runtime.memory_stats(())?.get("allocation.all.current"), Some(1));
    drop(shared);
    assert_eq!(runtime.memory_stats(())?.get("allocation.all.current"), Some(0));
    Ok(())
}

#[test]
fn what_is_left_to_a_runtime_goes_with_it() -> Result<()> {
    let runtime = runtime()?;
    let (dropped, told) = mpsc::channel::<()>();
    runtime.stream(())?.host_fn(move || drop(dropped))?;
    runtime.alloc(1 << 20)?.into_address()?;
    runtime.alloc_pinned((), 1 << 20)?;
    runtime.synchronize(())?;
    drop(runtime);
    assert!(told.recv().is_err());
    Ok(())
}

#[test]
fn runtimes_do_not_know_one_another_s_addresses() -> Result<()> {
    let (one, other) = (runtime()?, runtime()?);
    let addr = one.alloc(100)?.into_address()?;
    let pinned = one.alloc_pinned((), 100)?;
    assert!(other.buffer_at(addr).is_err() && other.take_buffer(addr).is_err());
    assert!(other.pinned_at(pinned).is_none() && other.free_pinned(pinned).is_err());
    assert!(one.take_buffer(addr).is_ok() && one.free_pinned(pinned).is_ok());
    Ok(())
}

#[test]
fn the_home_of_memory_is_the_stream_that_it_was_taken_for() -> Result<()> {
    let runtime = runtime()?;
    let (one, other) = (runtime.stream(())?, runtime.stream(())?);
    let first = one.alloc(5000)?;
    let addr = first.address();
    drop(first);
    assert_ne!(other.alloc(5000)?.address(), addr, "another stream's");
    assert_eq!(one.alloc(5000)?.address(), addr, "reused on its home");
    assert!(one.alloc(0)?.is_empty());
    Ok(())
}

#[test]
fn pinned_memory_is_copied_at_once_and_freed_without_a_wait() -> Result<()> {
    let runtime = runtime()?;
    let (stream, device) = (runtime.stream(())?, runtime.alloc(100)?);
    let addr = runtime.alloc_pinned((), 300)?;
    let at = |offset: u64| std::ptr::with_exposed_provenance_mut::<u8>((addr + offset) as usize);
    // SAFETY: 300 bytes of this test's own, which no copy uses yet.
    unsafe { at(0).write_bytes(7, 300) };
    let (hold, held) = mpsc::channel::<()>();
    stream.host_fn(move || assert!(held.recv().is_err()))?;
    // SAFETY: both parts are within the 300 bytes; nobody touches them until the stream was synchronized.
    unsafe {
        stream.upload_from(&device.all(), at(50))?;
        stream.download_into(at(200), &device.all())?;
    }
    assert!(!stream.query()?, "neither waited for the stream");
    runtime.record_pinned(addr + 1, &stream)?;
    let found = runtime.pinned_at(addr + 299).expect("inside");
    assert_eq!((found.start, found.len), (addr, 300));
    assert!(runtime.pinned_at(addr + 300).is_none());
    drop(found);
    drop(hold);
    stream.synchronize()?;
    assert_eq!(device.to_vec()?, [7; 100]);

    // SAFETY: as above; freed while the copy may go on, which needs no wait.
    unsafe { stream.upload_from(&device.all(), at(0))? };
    runtime.free_pinned(addr)?;
    assert!(runtime.free_pinned(addr).is_err() && runtime.record_pinned(addr, &stream).is_err());
    stream.synchronize()
}

#[test]
fn other_host_memory_is_done_with_when_the_call_returns() -> Result<()> {
    let runtime = runtime()?;
    let (stream, device) = (runtime.stream(())?, runtime.alloc(1 << 20)?);
    let mut bytes = vec![3_u8; 1 << 20];
    // SAFETY: the whole vector, borrowed by nobody else.
    unsafe { stream.upload_from(&device.all(), bytes.as_ptr())? };
    bytes.fill(4);
    // SAFETY: as above.
    unsafe { stream.download_into(bytes.as_mut_ptr(), &device.all())? };
    assert!(bytes.iter().all(|&byte| byte == 3));
    Ok(())
}

#[test]
fn inside_a_capture_the_graph_keeps_what_was_given_back() -> Result<()> {
    let runtime = runtime()?;
    let stream = runtime.stream(())?;
    let _current = stream.enter()?;
    let (device, addr) = (runtime.alloc(64)?, runtime.alloc_pinned((), 64)?);
    let graph = runtime.graph(GraphOptions::default());
    graph.capture(|| {
        let scratch = stream.alloc(64)?.into_address()?;
        let (scratch_buffer, _) = runtime.buffer_at(scratch)?;
        stream.fill(&scratch_buffer.all(), &[9])?;
        stream.copy(&device.all(), &scratch_buffer.all())?;
        drop(scratch_buffer);
        drop(runtime.take_buffer(scratch)?);
        // SAFETY: 64 bytes that nobody touches before they are freed, from when on the graph alone has them.
        unsafe { stream.download_into(std::ptr::with_exposed_provenance_mut(addr as usize), &device.all()) }
    })?;
    runtime.free_pinned(addr)?;
    graph.replay_n(3)?;
    assert_eq!(device.to_vec()?, [9; 64]);
    Ok(())
}

#[test]
fn what_is_current_is_exchanged_and_told() -> Result<()> {
    let runtime = runtime()?;
    let (default, one) = (runtime.default_stream(())?, runtime.stream(())?);
    assert_eq!(runtime.exchange_stream(&one)?, default);
    assert_eq!(runtime.exchange_stream(&default)?, one);
    assert_eq!((runtime.exchange_device_index(0)?, runtime.exchange_device_index(-1)?), (0, 0));
    assert!(runtime.exchange_device_index(77).is_err());
    assert_eq!(runtime.stream_at(0, one.stream_id())?, one);
    let unknown = runtime.stream_at(0, 12345);
    assert!(matches!(unknown, Err(Error::UnknownStream { id: 12345, .. })), "{unknown:?}");
    let foreign = self::runtime()?.stream(())?;
    assert!(matches!(runtime.exchange_stream(&foreign), Err(Error::ForeignRuntime { .. })));
    Ok(())
}

#[test]
fn current_streams_are_told_as_numbers() -> Result<()> {
    let runtime = runtime()?;
    assert!(matches!(runtime.current_stream_id(77), Err(Error::IndexOutOfRange { index: 77, .. })));
    assert_eq!(runtime.current_stream_id(())?, (0, 0));
    assert!(runtime.is_started());

    let (one, reserved) =
        (runtime.stream(())?, runtime.stream_with((), StreamOptions { priority: 0, reserved: true })?);
    assert_eq!(runtime.exchange_stream_id(&one)?, 0);
    assert_eq!(runtime.exchange_stream_id(&reserved)?, one.stream_id());
    let (device, id) = runtime.current_stream_id("host:0")?;
    assert_eq!((device, id, runtime.stream_at(device, id)?), (0, reserved.stream_id(), runtime.current_stream(())?));
    {
        let _inside = one.enter()?;
        assert_eq!(runtime.current_stream_id(())?, (0, one.stream_id()));
    }
    assert_eq!(runtime.current_stream_id(())?, (0, id));

    // Other runtimes and threads have their own, and a stream that is refused changes nothing.
    let other = self::runtime()?;
    assert_eq!(other.current_stream_id(())?, (0, 0));
    assert!(matches!(runtime.exchange_stream_id(&other.stream(())?), Err(Error::ForeignRuntime { .. })));
    let elsewhere = std::thread::scope(|scope| scope.spawn(|| runtime.current_stream_id(0)).join());
    assert_eq!(elsewhere.expect("no panic")?, (0, 0));
    assert_eq!(runtime.current_stream_id(())?, (0, id));

    // Nobody else has the stream: replaced, it ends.
    drop(reserved);
    assert_eq!(runtime.exchange_stream_id(&one)?, id);
    assert!(matches!(runtime.stream_at(0, id), Err(Error::UnknownStream { .. })));

    let (tell, told) = mpsc::channel();
    let inside = runtime.clone();
    one.host_fn(move || tell.send(inside.current_stream_id(0)).expect("somebody listens"))?;
    assert_eq!(told.recv().expect("called"), Err(Error::InsideHostFunction { call: "current_stream_id" }));
    one.synchronize()
}

#[test]
fn generators_give_parts_of_their_sequence_away() -> Result<()> {
    let runtime = runtime()?;
    runtime.manual_seed(3)?;
    let start = runtime.take_random(5, ())?;
    assert_eq!((start.seed(), start.offset(), runtime.get_rng_state(())?.offset()), (3, 0, 8));
    let generator = Arc::new(anyaccel::random::Generator::seeded(1)?);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| assert!(generator.take(4).is_ok())));
        }
    });
    assert_eq!(generator.offset(), 1600);
    assert!(generator.take(u64::MAX).is_err());
    assert_eq!(generator.offset(), 1600, "unchanged");
    Ok(())
}

#[test]
fn pools_can_be_entered_without_a_guard() -> Result<()> {
    let runtime = runtime()?;
    let pool = runtime.mem_pool(())?;
    pool.begin()?;
    assert!(pool.begin().is_err());
    let inside = runtime.alloc(100)?.address();
    pool.end()?;
    assert!(pool.end().is_err());
    assert_ne!(runtime.alloc(100)?.address(), inside);
    Ok(())
}
