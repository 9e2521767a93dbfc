//! Calls that are deferred while another thread is about to finish the start.

use anyaccel::Runtime;
use anyaccel_sim::SimConfig;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

#[test]
fn calls_of_one_thread_keep_their_order_while_another_starts() {
    for round in 0..300 {
        let sim = SimConfig::new().build();
        let runtime = Runtime::builder().driver(Arc::new(sim.driver())).build().unwrap();
        let (ran, go) = (Arc::new(Mutex::new(Vec::new())), AtomicBool::new(false));
        std::thread::scope(|threads| {
            let start = threads.spawn(|| {
                while !go.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                runtime.current_stream(()).map(drop)
            });
            for call in 0..200 {
                let ran = Arc::clone(&ran);
                let note = move |_: &Runtime| {
                    ran.lock().unwrap().push(call);
                    Ok(())
                };
                runtime.lazy_call(note).unwrap();
                if call == 20 + round % 50 {
                    go.store(true, Ordering::Release);
                }
            }
            start.join().unwrap().unwrap();
        });
        assert_eq!(*ran.lock().unwrap(), (0..200).collect::<Vec<_>>(), "round {round}");
        assert_eq!(runtime.pending_calls(), 0);
    }
}
