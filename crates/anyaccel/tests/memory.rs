//! Device and pinned memory through the face, on simulated devices.

use anyaccel::{Error, Runtime, StreamOptions};
use anyaccel_sim::{Deadlock, Injection, Method, Sim, SimConfig};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const MIB: u64 = 1 << 20;

fn simulated(config: SimConfig) -> (Sim, Runtime) {
    let sim = config.deadlock(Deadlock::Fault).build();
    let runtime = Runtime::builder().driver(Arc::new(sim.driver())).build().expect("a driver was given");
    (sim, runtime)
}

fn stat(runtime: &Runtime, key: &str) -> i64 {
    runtime.memory_stats(()).unwrap().get(key).unwrap_or_else(|| panic!("no key {key}"))
}

#[test]
fn statistics_are_empty_before_the_start_and_check_their_argument() {
    let (sim, runtime) = simulated(SimConfig::new());
    assert!(runtime.memory_stats(()).unwrap().is_empty());
    assert!(runtime.memory_stats(()).unwrap().flat().is_empty());
    assert_eq!(runtime.max_memory_reserved(0).unwrap(), 0);
    assert!(matches!(runtime.memory_allocated(7), Err(Error::IndexOutOfRange { index: 7, count: Some(1) })));
    assert!(matches!(runtime.memory_stats(-1), Err(Error::IndexOutOfRange { index: -1, .. })));
    assert!(runtime.host_memory_stats(()).unwrap().is_empty());
    runtime.reset_peak_memory_stats(()).unwrap();
    runtime.empty_cache().unwrap();
    runtime.empty_host_cache().unwrap();
    assert!(!runtime.is_started());
    assert_eq!(sim.calls(Method::Alloc), 0);
}

#[test]
fn a_kibibyte_shows_as_1024_active_bytes() {
    let (_sim, runtime) = simulated(SimConfig::new());
    let buffer = runtime.alloc(1000).unwrap();
    assert_eq!((buffer.len(), buffer.capacity()), (1000, 1024));
    assert_eq!(stat(&runtime, "active_bytes.all.current"), 1024);
    assert_eq!(stat(&runtime, "requested_bytes.all.current"), 1000);
    assert_eq!(stat(&runtime, "reserved_bytes.all.current"), 2 * MIB as i64);
    assert_eq!(stat(&runtime, "allocated.small_pool.current"), stat(&runtime, "allocation.small_pool.current"));
    drop(buffer);
    assert_eq!(runtime.memory_allocated(()).unwrap(), 0);
    assert_eq!(runtime.max_memory_allocated(()).unwrap(), 1024);
    assert_eq!(runtime.memory_reserved(()).unwrap(), 2 * MIB);
    runtime.reset_peak_memory_stats(()).unwrap();
    assert_eq!(runtime.max_memory_allocated(()).unwrap(), 0);
    runtime.empty_cache().unwrap();
    assert_eq!((runtime.memory_reserved(()).unwrap(), runtime.max_memory_reserved(()).unwrap()), (0, 2 * MIB));
    let table = runtime.memory_summary((), false).unwrap();
    assert!(table.lines().count() > 5 && table.contains("2.00 MiB") || table.contains("2 MiB"), "{table}");
}

#[test]
fn nothing_is_no_memory_and_too_much_is_refused() {
    let (sim, runtime) = simulated(SimConfig::new());
    let nothing = runtime.alloc(0).unwrap();
    assert!(nothing.is_empty() && nothing.address() == 0 && nothing.to_vec().unwrap().is_empty());
    assert_eq!(stat(&runtime, "allocation.all.allocated"), 0);
    for bytes in [u64::MAX, u64::MAX - 511, 1 << 60, 1 << 63] {
        assert!(matches!(runtime.alloc(bytes), Err(Error::Argument { .. })), "{bytes}");
        assert!(runtime.array::<u64>(bytes).is_err());
    }
    assert!(matches!(runtime.pinned(usize::MAX), Err(Error::Argument { .. })));
    assert_eq!(stat(&runtime, "num_ooms"), 0);
    assert_eq!(sim.calls(Method::Alloc), 0);
}

#[test]
fn a_budget_holds_to_the_byte() {
    for (slack, fits) in [(-1i64, false), (0, true), (1, true)] {
        let (sim, runtime) = simulated(SimConfig::new());
        runtime.set_memory_budget(Some((20 * MIB).checked_add_signed(slack).unwrap()), ()).unwrap();
        assert!(!runtime.is_started(), "a budget starts nothing");
        let got = runtime.alloc(2 * MIB); // asks for a segment of 20 MiB
        assert_eq!(got.is_ok(), fits, "budget of 20 MiB {slack:+}");
        assert_eq!(sim.calls(Method::Alloc), u64::from(fits), "the driver is not asked beyond the budget");
        if let Err(error) = got {
            assert!(error.to_string().contains("budget"), "{error}");
        }
    }
}

#[test]
fn a_fraction_is_floored_and_one_is_no_limit() {
    let (_sim, runtime) = simulated(SimConfig::new().memories([100 * MIB + 1]));
    assert!(matches!(runtime.set_per_process_memory_fraction(1.5, ()), Err(Error::Fraction(_))));
    assert!(matches!(runtime.set_per_process_memory_fraction(f64::NAN, ()), Err(Error::Fraction(_))));
    runtime.set_per_process_memory_fraction(0.2, ()).unwrap();
    let first = runtime.alloc(2 * MIB).unwrap(); // 20 MiB = floor(0.2 x (100 MiB + 1))
    assert!(runtime.alloc(30 * MIB).is_err());
    runtime.set_per_process_memory_fraction(1.0, ()).unwrap();
    assert!(runtime.alloc(30 * MIB).is_ok());
    drop(first);
}

#[test]
fn observers_are_told_before_the_error_and_may_panic() {
    let (_sim, runtime) = simulated(SimConfig::new().memories([64 * MIB]));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    runtime.attach_out_of_memory_observer(|_, _| panic!("an observer of no use"));
    runtime.attach_out_of_memory_observer(move |device, report| {
        told.lock().unwrap().push((device, report.requested, report.total, report.free));
    });
    assert!(!runtime.is_started());
    let error = runtime.alloc(1 << 30).unwrap_err();
    assert_eq!(*seen.lock().unwrap(), [("sim:0".parse().unwrap(), 1 << 30, 64 * MIB, Some(64 * MIB))]);
    assert_eq!(error.class(), anyaccel::ErrorClass::OutOfMemory);
    assert!(runtime.alloc(MIB).is_ok());
    assert_eq!(stat(&runtime, "num_ooms"), 1);
}

/// Drivers have numbers of their own for streams.
#[test]
fn a_report_names_streams_by_their_ids() {
    let (_sim, simulated) = simulated(SimConfig::new());
    for runtime in [Runtime::builder().backend("host").build().unwrap(), simulated] {
        let backend = runtime.kind().unwrap();
        runtime.set_memory_budget(Some(64 * MIB), ()).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        runtime.attach_out_of_memory_observer(move |_, report| {
            told.lock().unwrap().push((report.stream, report.pinned_by.map(|pin| pin.stream), report.to_string()));
        });
        let options = StreamOptions { priority: 0, reserved: true };
        let streams = [
            runtime.default_stream(()).unwrap(),
            runtime.stream(()).unwrap(),
            runtime.stream_with((), options).unwrap(),
            runtime.stream_with((), options).unwrap(),
        ];
        let ids: Vec<u64> = streams.iter().map(|stream| stream.stream_id()).collect();
        assert_eq!(ids, [0, 1, 1 << 32, (1 << 32) + 1], "{backend}");
        for stream in &streams {
            let id = stream.stream_id();
            let _scope = stream.enter().unwrap();
            let _pin = runtime.alloc(30 * MIB).unwrap();
            let error = runtime.alloc(40 * MIB).unwrap_err().to_string();
            assert!(error.contains(&format!("requested on stream {id}, ")), "{error}");
            assert!(error.starts_with(&format!("{backend}:0 is out of memory: ")), "{error}");
            let (asked, pin, text) = seen.lock().unwrap().pop().unwrap();
            assert_eq!((asked, pin.flatten().is_none_or(|by| by == id)), (Some(id), true), "{backend}: {text}");
            assert!(text.contains(&format!("requested on stream {id}, ")), "{text}");
        }
        // 20 MiB of which the first 5 were of a stream that is gone by then.
        runtime.empty_cache().unwrap();
        let [.., going, _other] = streams;
        let kept = {
            let _scope = going.enter().unwrap();
            runtime.alloc(5 * MIB).unwrap()
        };
        drop(going);
        runtime.synchronize(()).unwrap();
        let error = runtime.alloc(60 * MIB).unwrap_err().to_string();
        assert!(error.contains("requested on stream 0, "), "{error}");
        assert!(error.contains(" on stream 4294967296. "), "{error}");
        drop(kept);
    }
}

/// More than any process can address.
#[test]
fn pinned_memory_that_runs_out_is_an_error_with_a_report() {
    use anyaccel::Error;
    const HUGE: u64 = 1 << 57;
    let (_sim, runtime) = simulated(SimConfig::new().memories([64 * MIB]));
    let error = runtime.pinned(HUGE as usize).unwrap_err();
    let Error::HostOutOfMemory { report: Some(report), .. } = &error else { panic!("{error:?}") };
    assert_eq!((report.requested, report.held), (HUGE, 0));
    assert_eq!(error.class(), anyaccel::ErrorClass::OutOfMemory);
    assert!(error.to_string().contains("could not be pinned"), "{error}");
}

#[test]
fn a_fitting_block_that_is_pending_is_waited_for() {
    let (sim, runtime) = simulated(SimConfig::new().memories([64 * MIB]));
    let side = runtime.stream(()).unwrap();
    drop(runtime.alloc(60 * MIB).unwrap());
    assert_eq!(runtime.memory_reserved(()).unwrap(), 60 * MIB);
    let x = runtime.alloc(40 * MIB).unwrap();
    let y = runtime.zeros(20 * MIB).unwrap();
    let address = x.address();
    let _hold = sim.hold_until_waited(side.driver_id()).unwrap();
    side.fill(&x.slice(..64).unwrap(), &[1]).unwrap();
    drop(x);
    let again = runtime.alloc(40 * MIB).unwrap();
    assert_eq!(again.address(), address);
    assert_eq!(runtime.memory_reserved(()).unwrap(), 60 * MIB);
    assert_eq!((stat(&runtime, "num_ooms"), stat(&runtime, "num_alloc_retries")), (0, 1));
    assert_eq!(y.to_vec().unwrap(), vec![0; 20 << 20]);
    assert_eq!(sim.violations(), []);
}

#[test]
fn split_limit_with_growable_segments_stays_bounded() {
    for conf in ["max_split_size_mb:128", "expandable_segments:True", "max_split_size_mb:128,expandable_segments:True"]
    {
        let (sim, runtime) = simulated(SimConfig::new().memories([16 << 30]).address_only());
        runtime.set_allocator_settings(conf).unwrap();
        let mut kept = Vec::new();
        for _ in 0..100 {
            let (a, b) = (runtime.alloc(91 * MIB).unwrap(), runtime.alloc(MIB * 91 / 2).unwrap());
            kept.push(runtime.alloc(2 * MIB).unwrap());
            drop((a, b));
        }
        assert_eq!(runtime.memory_allocated(()).unwrap(), 200 * MIB, "{conf}");
        let most = runtime.max_memory_reserved(()).unwrap();
        assert!(most <= 500 * MIB, "{conf}: {} MiB", most / MIB);
        drop(kept);
        runtime.empty_cache().unwrap();
        assert_eq!(sim.violations(), [], "{conf}");
    }
}

#[test]
fn settings_are_whole_or_not_at_all() {
    let (_sim, runtime) = simulated(SimConfig::new());
    runtime.set_allocator_settings("large_segment_size_mb:32").unwrap();
    for (text, named) in [
        ("max_split_size_mb:64,frobnicate:1", "frobnicate"),
        ("garbage_collection_threshold:2", "garbage_collection_threshold"),
        ("expandable_segments:true", "expandable_segments"),
        ("max_split_size_mb", "max_split_size_mb"),
    ] {
        let error = runtime.set_allocator_settings(text).unwrap_err();
        assert!(matches!(error, Error::Settings(_)) && error.to_string().contains(named), "{error}");
    }
    assert_eq!(runtime.allocator_settings().unwrap().large_segment_size, 32 * MIB);
    let _one = runtime.alloc(2 * MIB).unwrap();
    assert_eq!(runtime.memory_reserved(()).unwrap(), 32 * MIB);
    assert_eq!(stat(&runtime, "num_device_alloc"), 1);
}

#[test]
fn pools_take_in_what_their_scope_allocates() {
    let (_sim, runtime) = simulated(SimConfig::new());
    let (outer, inner) = (runtime.mem_pool(()).unwrap(), runtime.mem_pool(0).unwrap());
    assert_ne!(outer.id(), inner.id());
    let reserved = || runtime.memory_reserved(()).unwrap() / MIB;
    let scope = outer.enter().unwrap();
    let _a = runtime.alloc(MIB).unwrap();
    assert_eq!(reserved(), 2);
    {
        let _scope = inner.enter().unwrap();
        let _b = runtime.alloc(512).unwrap(); // the innermost wins: a segment of its own
        assert_eq!(reserved(), 4);
        assert!(matches!(inner.enter(), Err(Error::Pool(_))));
        let elsewhere = std::thread::scope(|threads| {
            threads.spawn(|| runtime.alloc(512).map(|buffer| (buffer, reserved()))).join().unwrap().unwrap().1
        });
        assert_eq!(elsewhere, 6, "another thread is in no pool");
    }
    let _c = runtime.alloc(512).unwrap();
    assert_eq!(reserved(), 6, "back in the outer pool");
    drop(scope);
    drop(inner);
    runtime.empty_cache().unwrap();
    assert_eq!(reserved(), 2, "a pool without users gives its memory back");
}

#[test]
fn pinned_memory_is_rounded_and_kept_as_documented() {
    let (sim, runtime) = simulated(SimConfig::new());
    let held = || runtime.host_memory_stats(()).unwrap().get("allocated_bytes.current").unwrap() as u64;
    let big = MIB as usize * 259 / 2; // 129.5 MiB
    let buffer = runtime.pinned(big).unwrap();
    assert_eq!((held(), buffer.capacity()), (big as u64, big as u64));
    drop(buffer);
    let small = runtime.pinned(10 << 10).unwrap();
    let again = runtime.pinned(big).unwrap();
    assert_eq!(held(), big as u64 + (16 << 10));
    drop((small, again));
    runtime.empty_host_cache().unwrap();
    assert_eq!((held(), sim.pinned_used(0)), (0, 0));
    let below = runtime.pinned(48 << 20).unwrap();
    assert_eq!((held(), below.len(), below.capacity()), (64 * MIB, 48 << 20, 64 * MIB));
}

#[test]
fn a_pinned_source_is_not_reused_while_a_copy_reads_its_inside() {
    let (sim, runtime) = simulated(SimConfig::new());
    let stream = runtime.stream(()).unwrap();
    let device = runtime.alloc(4096).unwrap();
    let mut source = runtime.pinned(4 * 4096).unwrap();
    for (number, slice) in source.as_mut_slice().unwrap().chunks_mut(4096).enumerate() {
        slice.fill(number as u8 + 1);
    }
    let first = source.as_slice().unwrap().as_ptr();
    let hold = sim.hold(stream.driver_id()).unwrap();
    stream.upload_pinned(&device.all(), &source, 2 * 4096).unwrap();
    drop(source);
    let mut other = runtime.pinned(4 * 4096).unwrap();
    other.as_mut_slice().unwrap().fill(9);
    assert_ne!(other.as_slice().unwrap().as_ptr(), first);
    hold.release();
    stream.synchronize().unwrap();
    assert_eq!(device.to_vec().unwrap(), [3; 4096]);
    assert_eq!(runtime.pinned(4 * 4096).unwrap().as_slice().unwrap().as_ptr(), first);
    assert_eq!(sim.violations(), []);
}

#[test]
fn devices_keep_their_own_caches_whatever_is_current() {
    let (sim, runtime) = simulated(SimConfig::new().memories([1 << 28, 1 << 28]));
    let (on_0, on_1) = (runtime.stream(0).unwrap(), runtime.stream(1).unwrap());
    let from = runtime.alloc_on(0, 4096).unwrap();
    on_0.fill(&from.all(), &[5]).unwrap();
    let pooled = runtime.alloc_on(0, 4096).unwrap();
    on_0.fill(&pooled.all(), &[6]).unwrap();
    runtime.set_stream(&on_0).unwrap();
    runtime.set_stream(&on_1).unwrap();
    drop(pooled);
    let to = from.to_device(1).unwrap();
    assert_eq!(to.device(), "sim:1".parse().unwrap());
    on_1.synchronize().unwrap();
    assert_eq!(runtime.current_device_index().unwrap(), 1);
    on_0.fill(&from.all(), &[7]).unwrap();
    assert_eq!(from.to_vec().unwrap(), [7; 4096]);
    assert_eq!(to.to_vec().unwrap(), [5; 4096]);
    assert!(matches!(on_1.fill(&from.all(), &[0]), Err(Error::ForeignDevice { .. })));
    let event = on_0.record_event(None).unwrap();
    assert!(matches!(event.record(Some(&on_1)), Err(Error::EventDevice { .. })));
    drop((from, to));
    runtime.empty_cache().unwrap();
    assert_eq!((sim.live(0).mems, sim.live(1).mems), (0, 0));
    assert_eq!(sim.violations(), []);
}

#[test]
fn memory_of_one_device_read_by_a_stream_of_another_is_not_reused_early() {
    let (sim, runtime) = simulated(SimConfig::new().memories([1 << 28, 1 << 28]));
    let reader = runtime.stream(1).unwrap();
    let from = runtime.alloc_on(0, 4096).unwrap();
    let to = runtime.alloc_on(1, 4096).unwrap();
    runtime.current_stream(0).unwrap().fill(&from.all(), &[1]).unwrap();
    runtime.synchronize(0).unwrap();
    let address = from.address();
    let hold = sim.hold(reader.driver_id()).unwrap();
    reader.copy(&to.all(), &from.all()).unwrap();
    drop(from);
    assert_ne!(runtime.alloc_on(0, 4096).unwrap().address(), address);
    hold.release();
    reader.synchronize().unwrap();
    assert_eq!(runtime.alloc_on(0, 4096).unwrap().address(), address);
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_host_function_may_wait_for_a_thread_that_allocates() {
    let (_sim, runtime) =
        simulated(SimConfig::new().deadlock(Deadlock::Wait).execution(anyaccel_sim::Execution::Background));
    let stream = runtime.stream(()).unwrap();
    let buffer = runtime.alloc(MIB).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    stream.fill(&buffer.all(), &[1]).unwrap();
    stream
        .host_fn(move || {
            drop(buffer);
            receiver.recv().unwrap_or(());
        })
        .unwrap();
    for bytes in [512, MIB, 3 * MIB] {
        drop(runtime.alloc(bytes).unwrap());
    }
    sender.send(()).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn every_raw_call_may_fail_once_and_nothing_leaks() {
    let mut tried = 0;
    for &method in Method::ALL.iter().filter(|method| method.can_fail()) {
        for nth in 1..=6 {
            let (sim, runtime) = simulated(SimConfig::new().memories([256 * MIB, 256 * MIB]));
            let injected = sim.inject(Injection::kind(method, anyaccel::hal::FaultKind::Driver).nth(nth));
            let failures = AtomicU32::new(0);
            let note = |result: Result<(), Error>| {
                failures.fetch_add(u32::from(result.is_err()), Ordering::Relaxed);
            };
            note((|| {
                let (a, b) = (runtime.stream(0)?, runtime.stream(1)?);
                let (x, y) = (runtime.alloc_on(0, 2 * MIB)?, runtime.alloc_on(1, 2 * MIB)?);
                let mut host = runtime.pinned(4096)?;
                a.fill(&x.all(), &[1, 2, 3, 4])?;
                a.upload(&x.slice(..8)?, &[9; 8])?;
                b.wait_stream(&a)?;
                b.copy(&y.all(), &x.all())?;
                a.download_pinned(&mut host, 0, &x.slice(..4096)?)?;
                host.as_mut_slice()?;
                a.wait_stream(&b)?;
                a.upload_pinned(&x.slice(..4096)?, &host, 0)?;
                let event = b.record_event(None)?;
                event.synchronize()?;
                b.host_fn(|| ())?;
                runtime.synchronize(0)?;
                runtime.synchronize(1)?;
                runtime.get_memory_info(0).map(|_| ())
            })());
            sim.withdraw(injected);
            tried += u64::from(failures.load(Ordering::Relaxed) > 0);
            runtime.synchronize(0).unwrap();
            runtime.synchronize(1).unwrap();
            runtime.empty_cache().unwrap();
            runtime.empty_host_cache().unwrap();
            for device in 0..2 {
                assert_eq!(runtime.memory_allocated(device).unwrap(), 0, "{method:?} {nth}");
                assert_eq!(runtime.memory_reserved(device).unwrap(), 0, "{method:?} {nth}");
                assert_eq!((sim.live(device).mems, sim.pinned_used(device)), (0, 0), "{method:?} {nth}");
            }
            assert_eq!(sim.violations(), [], "{method:?} {nth}");
        }
    }
    assert!(tried >= 20, "only {tried} runs met a failure");
}
