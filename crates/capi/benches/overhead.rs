//! What a call costs through the C API, against the same call of the face. Both in one run, in turns, on the host device.
//!
//! The library is loaded as a C program would have it, so its runtime is another one than the face's here: two of the same.
//! Each row has the functions of the face that the C function calls; where C names memory by its address the face does too.
//! Where the rules of the header let C borrow what safe Rust has to share (C2), it does, and is the faster one for it. Both are
//! called through one closure, and what C can't know while it is compiled the face does not know either. So what is
//! added is the call itself and all that a shared library pays for: looks at thread-local state are a call there, and a load in
//! this program.
//!
//! `cargo bench -p anyaccel-capi [-- WORD]`: rows whose name has the word. `ANYACCEL_LIBRARY` names another library to measure.

use face::random::{Distribution, Generator, Options, State};
use face::{BufferSlice, DType, Event, EventOptions, Runtime, Stream};
use libloading::Library;
use std::ffi::c_void;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::time::Instant;

const ROUNDS: usize = 300;
const CALLS: usize = 400;
const NOW: u64 = u64::MAX;
const HOST: i32 = -1;

macro_rules! api {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions that are measured, as anyaccel.h has them.
        struct Api {
            $($name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Api {
            fn load(path: &Path) -> Self {
                // SAFETY: the library of this package; loading it runs nothing of ours.
                let library = Box::leak(Box::new(unsafe { Library::new(path) }.expect("the library")));
                Self {
                    $(
                        // SAFETY: the types are those of anyaccel.h.
                        $name: *unsafe { library.get(concat!("anyaccel_", stringify!($name)).as_bytes()) }.expect("a function"),
                    )*
                }
            }
        }
    };
}

api! {
    init: fn() -> i32;
    is_started: fn() -> bool;
    current_device: fn(*mut i32) -> i32;
    set_device: fn(i32) -> i32;
    exchange_device: fn(i32, *mut i32) -> i32;
    stream_current: fn(i32, *mut u64) -> i32;
    stream_exchange: fn(u64, *mut u64) -> i32;
    stream_set_current: fn(u64) -> i32;
    stream_from_pool: fn(i32, i32, *mut u64) -> i32;
    stream_id: fn(u64, *mut u64, *mut i32, *mut i32) -> i32;
    stream_query: fn(u64, *mut bool) -> i32;
    stream_synchronize: fn(u64) -> i32;
    stream_is_capturing: fn(u64, *mut bool) -> i32;
    stream_wait_stream: fn(u64, u64) -> i32;
    event_create: fn(i32, u32, *mut u64) -> i32;
    event_destroy: fn(u64) -> i32;
    event_record: fn(u64, u64) -> i32;
    event_wait: fn(u64, u64) -> i32;
    event_query: fn(u64, *mut bool) -> i32;
    generator_create: fn(u64, *mut u64) -> i32;
    generator_get: fn(u64, *mut u64, *mut u64) -> i32;
    generator_set: fn(u64, u64, u64) -> i32;
    generator_take: fn(u64, u64, *mut u64, *mut u64) -> i32;
    alloc: fn(i32, u64, u64, *mut *mut c_void) -> i32;
    free: fn(*mut c_void) -> i32;
    record_stream: fn(*mut c_void, u64) -> i32;
    get_pointer_info: fn(*const c_void, *mut PointerInfo) -> i32;
    host_alloc: fn(i32, usize, *mut *mut c_void) -> i32;
    host_free: fn(*mut c_void) -> i32;
    host_record_stream: fn(*mut c_void, u64) -> i32;
    memset: fn(*mut c_void, u8, u64, u64) -> i32;
    copy: fn(*mut c_void, i32, *const c_void, i32, u64, u64, u32) -> i32;
    fill_random: fn(*mut c_void, u64, *const Random, u64, u64) -> i32;
}

#[repr(C)]
struct PointerInfo {
    struct_size: u32,
    kind: u32,
    device: i32,
    reserved: u32,
    base: *mut c_void,
    size: u64,
    capacity: u64,
}

#[repr(C)]
struct Random {
    struct_size: u32,
    distribution: u32,
    dtype: u32,
    layout: u32,
    multiprocessors: u32,
    threads_per_multiprocessor: u32,
    a: f64,
    b: f64,
    from: i64,
    count: u64,
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

/// Rows whose name has the word.
struct Rows {
    word: Option<String>,
}

impl Rows {
    /// Both in turns; `between` ends what they left, untimed.
    fn compare(&self, name: &str, mut face: impl FnMut(), mut c: impl FnMut(), mut between: impl FnMut()) {
        if self.word.as_ref().is_some_and(|word| !name.contains(word.as_str())) {
            return;
        }
        let (mut ours, mut theirs, mut added) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let mut face = || {
                let took = time(&mut face);
                between();
                took
            };
            // Each is the first of the two as often as the other.
            let (face, c) = if round % 2 == 0 {
                let face = face();
                (face, time(&mut c))
            } else {
                let c = time(&mut c);
                (face(), c)
            };
            between();
            theirs.push(face);
            ours.push(c);
            added.push(c - face);
        }
        let (face, c) = (median(theirs), median(ours));
        println!("{name:<32} face {face:>7.1} ns   C {c:>7.1} ns   added {:>6.1} ns   x{:.2}", median(added), c / face);
    }
}

/// The library: the one that was named, or this package's, built now.
fn library() -> PathBuf {
    if let Some(named) = std::env::var_os("ANYACCEL_LIBRARY") {
        return named.into();
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--quiet", "--release", "--package", "anyaccel-capi", "--lib", "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.is_ok_and(|status| status.success()), "the library is built");
    target.join("release/libanyaccel.so")
}

fn ok(code: i32) {
    assert_eq!(code, 0);
}

// SAFETY of every use: pointers to locals, handles of the library, as anyaccel.h says (C1, C2).
macro_rules! c {
    ($call:expr) => {
        // SAFETY: see above.
        ok(unsafe { $call })
    };
}

fn idle() {}

/// What a call of the face gives, made and dropped.
#[inline]
fn sink<T>(value: T) {
    drop(black_box(value));
}

fn main() {
    // SAFETY: no other thread has begun.
    unsafe { std::env::set_var("ANYACCEL_BACKEND", "host") };
    let rows = Rows { word: std::env::args().skip(1).find(|argument| !argument.starts_with('-')) };
    let api = &Api::load(&library());
    let runtime = &Runtime::global();
    runtime.ensure_started().expect("the host starts");
    c!((api.init)());

    let [stream, side] = &[(), ()].map(|()| runtime.stream(0).expect("a stream"));
    let [number, other] = [(), ()].map(|()| {
        let mut number = 0;
        c!((api.stream_from_pool)(0, 0, &raw mut number));
        number
    });
    let settle = || {
        side.synchronize().expect("ended");
        c!((api.stream_synchronize)(other));
    };
    devices(&rows, api, runtime);
    streams(&rows, api, runtime, stream, number);
    rows.compare(
        "stream waits for a stream",
        || side.wait_stream(stream).expect("enqueued"),
        || c!((api.stream_wait_stream)(other, number)),
        settle,
    );
    let (event, handle) = events(&rows, api, runtime, stream, number);
    rows.compare(
        "wait for an event of another",
        || event.wait(Some(side)).expect("enqueued"),
        || c!((api.event_wait)(handle, other)),
        settle,
    );
    generators(&rows, api, runtime);
    memory(&rows, api, runtime, stream, number);
    pinned(&rows, api, runtime, stream, number);
    work(&rows, api, runtime, stream, number);
}

fn devices(rows: &Rows, api: &Api, runtime: &Runtime) {
    rows.compare(
        "is started",
        || sink(runtime.is_started()),
        // SAFETY: no conditions.
        || sink(unsafe { (api.is_started)() }),
        idle,
    );
    let mut index = 0;
    rows.compare(
        "current device",
        || sink(runtime.current_device_index()),
        || c!((api.current_device)(&raw mut index)),
        idle,
    );
    rows.compare("set device", || sink(runtime.set_device_index(0)), || c!((api.set_device)(0)), idle);
    rows.compare(
        "exchange device",
        || sink(runtime.exchange_device_index(0)),
        || c!((api.exchange_device)(0, &raw mut index)),
        idle,
    );
}

fn streams(rows: &Rows, api: &Api, runtime: &Runtime, stream: &Stream, number: u64) {
    let (mut other, mut flag) = (0, false);
    let (mut id, mut device, mut priority) = (0, 0, 0);
    for (which, index) in [("a device", 0), ("this device", -1)] {
        rows.compare(
            &format!("current stream of {which}"),
            || sink(runtime.current_stream_id((index >= 0).then_some(index))),
            || c!((api.stream_current)(index, &raw mut other)),
            idle,
        );
    }
    rows.compare(
        "exchange stream",
        || sink(runtime.exchange_stream_id(stream)),
        || c!((api.stream_exchange)(number, &raw mut other)),
        idle,
    );
    rows.compare("set stream", || sink(runtime.set_stream(stream)), || c!((api.stream_set_current)(number)), idle);
    rows.compare(
        "current stream that was set",
        || sink(runtime.current_stream_id(0)),
        || c!((api.stream_current)(0, &raw mut other)),
        idle,
    );
    rows.compare(
        "parts of a stream",
        || sink((stream.stream_id(), stream.device_index(), stream.priority())),
        || c!((api.stream_id)(number, &raw mut id, &raw mut device, &raw mut priority)),
        idle,
    );
    rows.compare(
        "is capturing",
        || sink(stream.is_capturing()),
        || c!((api.stream_is_capturing)(number, &raw mut flag)),
        idle,
    );
    rows.compare(
        "query an idle stream",
        || sink(stream.query()),
        || c!((api.stream_query)(number, &raw mut flag)),
        idle,
    );
    rows.compare(
        "synchronize an idle stream",
        || stream.synchronize().expect("idle"),
        || c!((api.stream_synchronize)(number)),
        idle,
    );
}

/// The event that it recorded, of either.
fn events(rows: &Rows, api: &Api, runtime: &Runtime, stream: &Stream, number: u64) -> (Event, u64) {
    let (mut event, mut made, mut flag) = (0, 0, false);
    rows.compare(
        "make and drop an event",
        || sink(runtime.event(EventOptions::default())),
        || {
            c!((api.event_create)(-1, 0, &raw mut made));
            c!((api.event_destroy)(made));
        },
        idle,
    );
    let face = runtime.event(EventOptions::default()).expect("an event");
    c!((api.event_create)(-1, 0, &raw mut event));
    rows.compare(
        "record an event",
        || face.record(Some(stream)).expect("recorded"),
        || c!((api.event_record)(event, number)),
        idle,
    );
    // Where the row above was left out.
    face.record(Some(stream)).expect("recorded");
    c!((api.event_record)(event, number));
    rows.compare("query an event", || sink(face.query()), || c!((api.event_query)(event, &raw mut flag)), idle);
    rows.compare(
        "wait for an event of the stream",
        || face.wait(Some(stream)).expect("enqueued"),
        || c!((api.event_wait)(event, number)),
        idle,
    );
    (face, event)
}

fn generators(rows: &Rows, api: &Api, runtime: &Runtime) {
    const DEFAULT: u64 = 1 << 63;
    let own = &Generator::seeded(1).expect("a generator");
    let (mut number, mut seed, mut offset) = (0, 0, 0);
    c!((api.generator_create)(1, &raw mut number));
    rows.compare(
        "get a generator",
        || sink(own.state()),
        || c!((api.generator_get)(number, &raw mut seed, &raw mut offset)),
        idle,
    );
    rows.compare(
        "get a default generator",
        || sink(runtime.get_rng_state(0)),
        || c!((api.generator_get)(DEFAULT, &raw mut seed, &raw mut offset)),
        idle,
    );
    rows.compare(
        "set a generator",
        || own.set_state(State::new(1, 0).expect("a state")),
        || c!((api.generator_set)(number, 1, 0)),
        idle,
    );
    rows.compare(
        "set a default generator",
        || runtime.set_rng_state(State::new(1, 0).expect("a state"), 0).expect("set"),
        || c!((api.generator_set)(DEFAULT, 1, 0)),
        idle,
    );
    rows.compare(
        "take from a default generator",
        || sink(runtime.take_random(4, 0)),
        || c!((api.generator_take)(DEFAULT, 4, &raw mut seed, &raw mut offset)),
        idle,
    );
}

fn memory(rows: &Rows, api: &Api, runtime: &Runtime, stream: &Stream, number: u64) {
    let mut memory = ptr::null_mut();
    rows.compare(
        "alloc and free by handle",
        || sink(stream.alloc(1024)),
        || {
            c!((api.alloc)(0, 1024, number, &raw mut memory));
            c!((api.free)(memory));
        },
        idle,
    );
    for live in [0, 10_000] {
        let mut kept = vec![ptr::null_mut(); live];
        for place in &mut kept {
            c!((api.alloc)(0, 512, NOW, ptr::from_mut(place)));
        }
        let buffer = || stream.alloc(512).and_then(face::Buffer::into_address).expect("memory");
        let addresses: Vec<u64> = (0..live).map(|_| buffer()).collect();
        rows.compare(
            &format!("alloc and free, {live} live"),
            || {
                let addr = stream.alloc(1024).and_then(face::Buffer::into_address).expect("memory");
                sink(runtime.take_buffer(addr));
            },
            || {
                c!((api.alloc)(0, 1024, number, &raw mut memory));
                c!((api.free)(memory));
            },
            idle,
        );
        rows.compare(
            &format!("the same on current, {live} live"),
            || {
                let stream = runtime.current_stream(0).expect("a stream");
                let addr = stream.alloc(1024).and_then(face::Buffer::into_address).expect("memory");
                sink(runtime.take_buffer(addr));
            },
            || {
                c!((api.alloc)(0, 1024, NOW, &raw mut memory));
                c!((api.free)(memory));
            },
            idle,
        );
        for addr in addresses {
            drop(runtime.take_buffer(addr));
        }
        for memory in kept {
            c!((api.free)(memory));
        }
    }
    let addr = stream.alloc(1024).and_then(face::Buffer::into_address).expect("memory");
    c!((api.alloc)(0, 1024, number, &raw mut memory));
    rows.compare(
        "record stream",
        || runtime.buffer_at(addr).and_then(|(buffer, _)| buffer.record_stream(stream)).expect("recorded"),
        || c!((api.record_stream)(memory, number)),
        idle,
    );
    let mut info = PointerInfo {
        struct_size: size_of::<PointerInfo>() as u32,
        kind: 0,
        device: 0,
        reserved: 0,
        base: ptr::null_mut(),
        size: 0,
        capacity: 0,
    };
    rows.compare(
        "what lies at an address",
        || {
            let (buffer, _) = runtime.buffer_at(addr + 8).expect("memory");
            black_box((buffer.device(), buffer.address(), buffer.len(), buffer.capacity()));
        },
        || c!((api.get_pointer_info)(memory.wrapping_byte_add(8), &raw mut info)),
        idle,
    );
    c!((api.get_pointer_info)(memory, &raw mut info));
    assert_eq!((info.kind, info.device, info.reserved, info.base, info.size), (1, 0, 0, memory, 1024));
    assert!(info.capacity >= 1024);
}

fn pinned(rows: &Rows, api: &Api, runtime: &Runtime, stream: &Stream, number: u64) {
    let mut memory = ptr::null_mut();
    rows.compare(
        "alloc and free pinned memory",
        || {
            let addr = runtime.alloc_pinned(0, 1024).expect("memory");
            runtime.free_pinned(addr).expect("freed");
        },
        || {
            c!((api.host_alloc)(0, 1024, &raw mut memory));
            c!((api.host_free)(memory));
        },
        idle,
    );
    let addr = runtime.alloc_pinned(0, 1024).expect("memory");
    c!((api.host_alloc)(0, 1024, &raw mut memory));
    rows.compare(
        "record pinned memory",
        || runtime.record_pinned(addr, stream).expect("recorded"),
        || c!((api.host_record_stream)(memory, number)),
        idle,
    );
}

fn work(rows: &Rows, api: &Api, runtime: &Runtime, stream: &Stream, number: u64) {
    const SIZE: u64 = 64;
    let buffer = || stream.alloc(SIZE).and_then(face::Buffer::into_address).expect("memory");
    let (a, b) = (buffer(), buffer());
    let (mut to, mut from, mut host) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    c!((api.alloc)(0, SIZE, number, &raw mut to));
    c!((api.alloc)(0, SIZE, number, &raw mut from));
    c!((api.host_alloc)(0, SIZE as usize, &raw mut host));
    let pinned = std::ptr::with_exposed_provenance(runtime.alloc_pinned(0, SIZE as usize).expect("memory") as usize);
    let at = |addr| runtime.buffer_at(addr).expect("memory");
    fn part((buffer, at): &(face::Buffer, u64)) -> BufferSlice<'_> {
        buffer.slice(*at..at + black_box(SIZE)).expect("a part of it")
    }
    let settle = || {
        stream.synchronize().expect("ended");
        c!((api.stream_synchronize)(number));
    };
    rows.compare(
        "fill 64 bytes",
        || stream.fill(&part(&at(a)), black_box(&[1][..])).expect("filled"),
        || c!((api.memset)(to, 1, SIZE, number)),
        settle,
    );
    rows.compare(
        "copy 64 bytes",
        || stream.copy(&part(&at(a)), &part(&at(b))).expect("copied"),
        || c!((api.copy)(to, 0, from, 0, SIZE, number, 1)),
        settle,
    );
    rows.compare(
        "copy 64 bytes of pinned memory",
        // SAFETY: pinned memory of that size, which nobody writes.
        || unsafe { stream.upload_from(&part(&at(a)), pinned).expect("copied") },
        || c!((api.copy)(to, 0, host, HOST, SIZE, number, 1)),
        settle,
    );
    let random = Random {
        struct_size: size_of::<Random>() as u32,
        distribution: 1,
        dtype: 6,
        layout: 0,
        multiprocessors: 0,
        threads_per_multiprocessor: 0,
        a: 0.0,
        b: 1.0,
        from: 0,
        count: 0,
    };
    rows.compare(
        "random fill of 16 floats",
        || {
            let uniform = black_box(Distribution::Uniform { from: 0.0, to: 1.0 });
            stream.random(&part(&at(a)), DType::F32, uniform, &Options::default()).expect("filled");
        },
        || c!((api.fill_random)(to, SIZE / 4, &raw const random, 0, number)),
        settle,
    );
}
