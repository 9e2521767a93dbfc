//! What a call costs through the C API, against the same call of the face. Both in one run, in turns, on the host device.
//!
//! The library is loaded as a C program would have it, so its runtime is another one than the face's here: two of the same.
//! `cargo bench -p anyaccel-capi`.

use face::{EventOptions, Runtime, Stream};
use libloading::Library;
use std::ffi::c_void;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::time::Instant;

const ROUNDS: usize = 300;
const CALLS: usize = 400;
const NOW: u64 = u64::MAX;

/// The functions that are measured, as anyaccel.h has them.
struct Api {
    init: unsafe extern "C" fn() -> i32,
    current_device: unsafe extern "C" fn(*mut i32) -> i32,
    exchange_device: unsafe extern "C" fn(i32, *mut i32) -> i32,
    stream_current: unsafe extern "C" fn(i32, *mut u64) -> i32,
    stream_exchange: unsafe extern "C" fn(u64, *mut u64) -> i32,
    stream_from_pool: unsafe extern "C" fn(i32, i32, *mut u64) -> i32,
    stream_query: unsafe extern "C" fn(u64, *mut bool) -> i32,
    stream_synchronize: unsafe extern "C" fn(u64) -> i32,
    stream_is_capturing: unsafe extern "C" fn(u64, *mut bool) -> i32,
    event_create: unsafe extern "C" fn(i32, u32, *mut u64) -> i32,
    event_record: unsafe extern "C" fn(u64, u64) -> i32,
    event_query: unsafe extern "C" fn(u64, *mut bool) -> i32,
    alloc: unsafe extern "C" fn(i32, u64, u64, *mut *mut c_void) -> i32,
    free: unsafe extern "C" fn(*mut c_void) -> i32,
    memset: unsafe extern "C" fn(*mut c_void, u8, u64, u64) -> i32,
    copy: unsafe extern "C" fn(*mut c_void, i32, *const c_void, i32, u64, u64, u32) -> i32,
}

impl Api {
    fn load(path: &Path) -> Self {
        // SAFETY: the library of this package; loading it runs nothing of ours.
        let library = Box::leak(Box::new(unsafe { Library::new(path) }.expect("the library")));
        macro_rules! api {
            ($($name:ident),* $(,)?) => {
                Self {
                    $(
                        // SAFETY: the types are those of anyaccel.h.
                        $name: *unsafe { library.get(concat!("anyaccel_", stringify!($name)).as_bytes()) }.expect("a function"),
                    )*
                }
            };
        }
        api!(
            init,
            current_device,
            exchange_device,
            stream_current,
            stream_exchange,
            stream_from_pool,
            stream_query,
            stream_synchronize,
            stream_is_capturing,
            event_create,
            event_record,
            event_query,
            alloc,
            free,
            memset,
            copy,
        )
    }
}

fn time(call: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..CALLS {
        call();
    }
    start.elapsed().as_secs_f64() * 1e9 / CALLS as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Both in turns; `between` ends what they left, untimed.
fn compare(name: &str, mut face: impl FnMut(), mut c: impl FnMut(), mut between: impl FnMut()) {
    let (mut ours, mut theirs, mut added) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let face = time(&mut face);
        between();
        let c = time(&mut c);
        between();
        theirs.push(face);
        ours.push(c);
        added.push(c - face);
    }
    let (face, c) = (median(theirs), median(ours));
    println!("{name:<28} face {face:>7.1} ns   C {c:>7.1} ns   added {:>6.1} ns   x{:.2}", median(added), c / face);
}

fn main() {
    // SAFETY: no other thread has begun.
    unsafe { std::env::set_var("ANYACCEL_BACKEND", "host") };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--quiet", "--release", "--package", "anyaccel-capi", "--lib", "--target-dir"])
        .arg(target)
        .current_dir(root)
        .status();
    assert!(built.is_ok_and(|status| status.success()), "the library is built");
    let api = &Api::load(&target.join("release/libanyaccel.so"));

    let runtime = &Runtime::global();
    runtime.ensure_started().expect("the host starts");
    let ok = |code: i32| assert_eq!(code, 0);
    // SAFETY of every call below: pointers to locals, handles of the library, as anyaccel.h says (C1, C2).
    macro_rules! c {
        ($call:expr) => {
            // SAFETY: see above.
            ok(unsafe { $call })
        };
    }
    c!((api.init)());

    let stream: &Stream = &runtime.stream(0).expect("a stream");
    let mut number = 0;
    c!((api.stream_from_pool)(0, 0, &raw mut number));
    let (mut index, mut other, mut flag, mut event) = (0, 0, false, 0);
    let idle = || ();

    compare(
        "current device",
        || drop(black_box(runtime.current_device_index())),
        || c!((api.current_device)(&raw mut index)),
        idle,
    );
    let mut before = 0;
    compare(
        "exchange device",
        || drop(black_box(runtime.exchange_device_index(0))),
        || c!((api.exchange_device)(0, &raw mut before)),
        idle,
    );
    compare(
        "current stream",
        || drop(black_box(runtime.current_stream(0))),
        || c!((api.stream_current)(0, &raw mut other)),
        idle,
    );
    let mut was = 0;
    compare(
        "exchange stream",
        || drop(black_box(runtime.exchange_stream(stream))),
        || c!((api.stream_exchange)(number, &raw mut was)),
        idle,
    );
    compare(
        "is capturing",
        || drop(black_box(stream.is_capturing())),
        || c!((api.stream_is_capturing)(number, &raw mut flag)),
        idle,
    );
    compare(
        "query an idle stream",
        || drop(black_box(stream.query())),
        || c!((api.stream_query)(number, &raw mut flag)),
        idle,
    );
    compare(
        "synchronize an idle stream",
        || stream.synchronize().expect("idle"),
        || c!((api.stream_synchronize)(number)),
        idle,
    );

    let face_event = runtime.event(EventOptions::default()).expect("an event");
    c!((api.event_create)(-1, 0, &raw mut event));
    compare(
        "record an event",
        || face_event.record(Some(stream)).expect("recorded"),
        || c!((api.event_record)(event, number)),
        idle,
    );
    compare(
        "query an event",
        || drop(black_box(face_event.query())),
        || c!((api.event_query)(event, &raw mut flag)),
        idle,
    );

    for live in [0, 10_000] {
        let mut kept = vec![ptr::null_mut(); live];
        for place in &mut kept {
            c!((api.alloc)(0, 512, NOW, ptr::from_mut(place)));
        }
        let mut memory = ptr::null_mut();
        compare(
            &format!("alloc and free, {live} live"),
            || drop(black_box(runtime.alloc(1024))),
            || {
                c!((api.alloc)(0, 1024, NOW, &raw mut memory));
                c!((api.free)(memory));
            },
            idle,
        );
        for memory in kept {
            c!((api.free)(memory));
        }
    }

    let (a, b) = (runtime.alloc(64).expect("memory"), runtime.alloc(64).expect("memory"));
    let (mut to, mut from) = (ptr::null_mut(), ptr::null_mut());
    c!((api.alloc)(0, 64, NOW, &raw mut to));
    c!((api.alloc)(0, 64, NOW, &raw mut from));
    let settle = || {
        stream.synchronize().expect("ended");
        c!((api.stream_synchronize)(number));
    };
    compare(
        "fill 64 bytes (enqueue)",
        || stream.fill(&a.all(), &[1]).expect("filled"),
        || c!((api.memset)(to, 1, 64, number)),
        settle,
    );
    compare(
        "copy 64 bytes (enqueue)",
        || stream.copy(&a.all(), &b.all()).expect("copied"),
        || c!((api.copy)(to, 0, from, 0, 64, number, 1)),
        settle,
    );
}
