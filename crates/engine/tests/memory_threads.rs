//! The device cache under several threads.

mod device;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use anyaccel_engine::alloc::{AllocError, Allocation, Departures, DeviceCache, FreeError, Settings};
use device::{MIB, TestDevice};

/// No call to the device is made under the lock: while one thread is stuck in each of them, another one can use the cache.
#[test]
fn a_thread_stuck_in_the_device_blocks_nobody() {
    use anyaccel_engine::alloc::{DeviceMemory, Marks, PortError, Ports, RawSegment, Segments};
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::time::Duration;

    /// Announces each call, then waits to be let go.
    struct Stuck {
        inner: Arc<TestDevice>,
        armed: AtomicU32,
        at: SyncSender<&'static str>,
        go: Mutex<Receiver<()>>,
    }

    impl Stuck {
        fn stop(&self, name: &'static str) {
            if self.armed.load(Ordering::SeqCst) > 0 {
                self.armed.fetch_sub(1, Ordering::SeqCst);
                self.at.send(name).unwrap();
                self.go.lock().unwrap().recv_timeout(Duration::from_secs(20)).unwrap();
            }
        }
    }

    impl Segments for Stuck {
        fn alloc(&self, len: u64, stream: u64) -> Result<RawSegment, PortError> {
            self.stop("alloc");
            self.inner.alloc(len, stream)
        }
        fn free(&self, segment: RawSegment, stream: u64) -> Result<(), PortError> {
            self.stop("free");
            self.inner.free(segment, stream)
        }
        fn memory(&self) -> DeviceMemory {
            self.inner.memory()
        }
    }

    impl Marks for Stuck {
        fn mark(&self, stream: u64) -> Result<u64, PortError> {
            self.stop("mark");
            self.inner.mark(stream)
        }
        fn completed(&self, stream: u64) -> Result<u64, PortError> {
            self.stop("completed");
            self.inner.completed(stream)
        }
        fn wait(&self, stream: u64, mark: u64) -> Result<(), PortError> {
            self.stop("wait");
            self.inner.wait(stream, mark)
        }
    }

    let (at_send, at) = sync_channel(0);
    let (go, go_receive) = sync_channel(0);
    let inner = TestDevice::new(1 << 30);
    let stuck =
        Arc::new(Stuck { inner: inner.clone(), armed: AtomicU32::new(0), at: at_send, go: Mutex::new(go_receive) });
    let ports = Ports { segments: stuck.clone(), growable: Some(inner.clone()), marks: stuck.clone() };
    let cache = DeviceCache::new(0, ports, Settings::default(), Departures::ALL);
    let warm = cache.alloc(1000, 0).unwrap().unwrap();
    let recorded = cache.alloc(1000, 0).unwrap().unwrap();
    let polled = cache.alloc(1000, 0).unwrap().unwrap();
    cache.record(recorded.handle, 1).unwrap();
    cache.record(polled.handle, 1).unwrap();
    type Job<'a> = Box<dyn Fn() + Send + Sync + 'a>;
    // The last one waits for what the third one left pending.
    let jobs: [(&str, u32, Job); 5] = [
        ("alloc", 1, Box::new(|| assert!(cache.alloc(64 * MIB, 5).is_ok()))),
        ("mark", 1, Box::new(|| cache.free(recorded.handle).unwrap())),
        ("completed", 1, Box::new(|| assert!(cache.alloc(1000, 0).is_ok()))),
        ("wait", 1, Box::new(|| cache.empty_cache().unwrap())),
        ("free", 1, Box::new(|| cache.empty_cache().unwrap())),
    ];
    for (name, stops, job) in &jobs {
        match *name {
            "completed" => {
                inner.hold(true);
                cache.free(polled.handle).unwrap();
            }
            "free" => {
                let big = cache.alloc(20 * MIB, 0).unwrap().unwrap();
                cache.free(big.handle).unwrap();
            }
            _ => {}
        }
        stuck.armed.store(*stops, Ordering::SeqCst);
        std::thread::scope(|s| {
            let worker = s.spawn(job);
            assert_eq!(at.recv_timeout(Duration::from_secs(20)), Ok(*name));
            // In here somebody waits for the device. Everything but that wait goes on.
            let (sent, done) = sync_channel(1);
            let cache = &cache;
            s.spawn(move || {
                let block = cache.alloc(512, 3).unwrap().unwrap();
                cache.record(block.handle, 2).unwrap();
                cache.stats();
                cache.free(block.handle).unwrap();
                sent.send(()).unwrap();
            });
            assert_eq!(done.recv_timeout(Duration::from_secs(20)), Ok(()), "stuck in {name}");
            go.send(()).unwrap();
            worker.join().unwrap();
        });
        if *name != "completed" {
            inner.hold(false);
        }
        cache.audit().unwrap();
    }
    cache.free(warm.handle).unwrap();
}

#[test]
fn many_threads_leave_a_sound_heap() {
    for settings in ["", "expandable_segments:True", "max_split_size_mb:20,garbage_collection_threshold:0.5"] {
        let device = TestDevice::new(300 * MIB);
        let cache = device.cache(settings);
        cache.set_budget(Some(256 * MIB));
        std::thread::scope(|s| {
            for thread in 0..4u64 {
                let cache = &cache;
                s.spawn(move || {
                    let mut seed = thread + 1;
                    let mut rand = move || {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        seed >> 33
                    };
                    let mut live: Vec<Allocation> = Vec::new();
                    for _ in 0..3000 {
                        match rand() % 10 {
                            0..=4 => {
                                let size = 1 << (rand() % 26);
                                match cache.alloc(size + rand() % size, rand() % 3) {
                                    Ok(Some(block)) => live.push(block),
                                    Err(AllocError::OutOfMemory(report)) => assert!(report.reserved <= 300 * MIB),
                                    other => panic!("{other:?}"),
                                }
                            }
                            5 if !live.is_empty() => {
                                let at = rand() as usize % live.len();
                                cache.record(live[at].handle, rand() % 3).unwrap();
                            }
                            6 if rand() % 20 == 0 => cache.empty_cache().unwrap(),
                            _ if !live.is_empty() => {
                                let at = rand() as usize % live.len();
                                cache.free(live.swap_remove(at).handle).unwrap();
                            }
                            _ => {}
                        }
                    }
                    live.into_iter().for_each(|block| cache.free(block.handle).unwrap());
                });
            }
        });
        cache.empty_cache().unwrap();
        cache.audit().unwrap();
        let stats = cache.stats();
        assert_eq!(stats.active.all.current, 0);
        assert_eq!(stats.reserved_bytes.all.current, 0, "{settings}");
        assert!(stats.reserved_bytes.all.peak <= 256 * MIB, "{settings}: {}", stats.reserved_bytes.all.peak);
        // Address space may stay reserved until the end.
        let (leaks, outcome) = cache.close();
        assert_eq!((leaks.len(), outcome), (0, Ok(())));
        device.assert_clean();
    }
}

#[test]
fn closing_while_others_work_leaves_nothing() {
    for round in 0..40 {
        let settings = if round % 2 == 0 { "" } else { "expandable_segments:True" };
        let device = TestDevice::new(2 << 30);
        let cache = device.cache(settings);
        std::thread::scope(|s| {
            for thread in 0..3u64 {
                let cache = &cache;
                s.spawn(move || {
                    for i in 0.. {
                        let size = if i % 7 == 0 { 30 * MIB } else { 1000 + i };
                        match cache.alloc(size, thread) {
                            Ok(Some(block)) => {
                                // Closing may have made the handle stale meanwhile; nothing else can be wrong.
                                let stale = |result: Result<(), FreeError>| match result {
                                    Ok(()) | Err(FreeError::Stale(_)) => {}
                                    Err(other) => panic!("{other}"),
                                };
                                stale(cache.record(block.handle, (thread + 1) % 3));
                                stale(cache.free(block.handle));
                                if i % 50 == 0 {
                                    cache.empty_cache().unwrap();
                                }
                            }
                            Err(AllocError::Closed { .. }) => return,
                            other => panic!("{other:?}"),
                        }
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_micros(300 * round));
            cache.close().1.unwrap();
        });
        cache.audit().unwrap();
        let stats = cache.stats();
        assert_eq!((stats.active.all.current, stats.reserved_bytes.all.current), (0, 0));
        device.assert_clean();
    }
}
