//! What a call costs through the ABI, against the same call of the same backend, linked. Both in one run, in turns.
//!
//! The host device is exported and taken back in: each call goes through two conversions, a function pointer and a guard
//! against unwinding, as one of a plugin in Rust does; a plugin in C has half of that. `cargo bench -p anyaccel-abi`.

use anyaccel_abi::Plugin;
use anyaccel_hal::{
    Arg, Device, Driver, End, HostFn, HostKernel, HostPtr, Kernel, KernelSource, Launch, Pattern, Place, Stamp,
    StreamId, Until, WaitMode, Waited,
};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

anyaccel_abi::export!(anyaccel_host::driver);

const ROUNDS: usize = 1600;
const CALLS: usize = 500;
const DEVICES: usize = 8;

/// The number of the built-in kernel that does nothing.
const NOOP: u32 = 1;

/// A device with a stream, a gate that can hold it up, and memory.
struct Bench {
    device: Arc<dyn Device>,
    stream: StreamId,
    place: Place,
    stamps: [Stamp; 2],
    noop: Kernel,
    kernel: Kernel,
    host: Vec<u8>,
}

impl Bench {
    fn new(driver: &dyn Driver) -> Self {
        driver.start().expect("the host starts");
        let device = driver.open(0).expect("the host has a device");
        let stream = device.create_stream(0).expect("a stream");
        let mem = device.alloc(4096).expect("memory").mem;
        // SAFETY: H1: the stream was made just now.
        let stamps = unsafe { [device.stamp(stream).expect("a stamp"), device.stamp(stream).expect("a stamp")] };
        let noop = device.builtin(NOOP).expect("the built-in that does nothing");
        let kernels = device.kernels().expect("the host loads kernels");
        // SAFETY: it touches nothing, whatever it is launched with.
        let kernel = unsafe { kernels.load(KernelSource::Host(HostKernel::new(|_, _| ()))) }.expect("a kernel");
        let bench = Self { device, stream, place: Place { mem, offset: 0 }, stamps, noop, kernel, host: vec![1; 64] };
        bench.drain();
        bench
    }

    fn drain(&self) {
        // SAFETY: H1.
        let waited = unsafe { self.device.wait_host(self.stream, Until::Now, None, WaitMode::Auto) };
        assert_eq!(waited, Ok(Waited::Ended));
    }

    /// Nanoseconds a call, of one batch. With `held` the stream is held up meanwhile, so that nothing but the call is timed.
    fn time(&self, held: bool, call: impl Fn(&Self)) -> f64 {
        let gates = self.device.gates().expect("the host has gates");
        let gate = held.then(|| {
            let gate = gates.create().expect("a gate");
            // SAFETY: H1.
            unsafe { gates.wait(self.stream, gate).expect("the stream is held up") };
            gate
        });
        let begin = Instant::now();
        for _ in 0..CALLS {
            call(self);
        }
        let nanoseconds = begin.elapsed().as_nanos() as f64 / CALLS as f64;
        if let Some(gate) = gate {
            // SAFETY: H1.
            unsafe { gates.open(gate).expect("the gate opens") };
            self.drain();
            // SAFETY: H1: open, and the stream is past it.
            unsafe { gates.destroy(gate) };
        }
        nanoseconds
    }
}

/// Times a call on both, in turns, and prints the difference of the best rounds: what is slower than those is the machine's
/// other work. In turns also on several devices: where the memory of one happens to lie can make 3 ns of difference.
fn compare(name: &str, linked: &[Bench], plugin: &[Bench], held: bool, call: impl Fn(&Bench)) {
    let mut filters = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).peekable();
    if filters.peek().is_some() && !filters.any(|filter| name.contains(&filter)) {
        return;
    }
    let (mut direct, mut through) = (f64::INFINITY, f64::INFINITY);
    for (linked, plugin) in linked.iter().zip(plugin).cycle().take(ROUNDS) {
        direct = direct.min(linked.time(held, &call));
        through = through.min(plugin.time(held, &call));
    }
    println!("{name:<24} {direct:>8.1} {through:>8.1} {:>8.1}", through - direct);
}

fn main() {
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    // SAFETY: the entry exported above, which takes any host; its functions are the exporter's own.
    let plugin = unsafe { Plugin::linked(anyaccel_plugin_entry(std::ptr::null())) }.expect("a plugin");
    let both = || (Bench::new(&*anyaccel_host::driver()), Bench::new(&*plugin.driver()));
    let (linked, plugin): (Vec<Bench>, Vec<Bench>) = (0..DEVICES).map(|_| both()).unzip();
    println!("{:<24} {:>8} {:>8} {:>8}   ns a call, the best of {ROUNDS} rounds", "", "linked", "ABI", "added");
    compare("completed", &linked, &plugin, false, |b| {
        // SAFETY: H1.
        black_box(unsafe { b.device.completed(b.stream) }.is_ok());
    });
    compare("elapsed_ns", &linked, &plugin, false, |b| {
        // SAFETY: H1.
        black_box(unsafe { b.device.elapsed_ns(b.stamps[0], b.stamps[1]) }.is_ok());
    });
    compare("builtin", &linked, &plugin, false, |b| {
        black_box(b.device.builtin(NOOP));
    });
    compare("memory_info", &linked, &plugin, false, |b| {
        black_box(b.device.memory_info().map_or(0, |info| info.free.unwrap_or(0) ^ info.total));
    });
    compare("wait_host, ended", &linked, &plugin, false, |b| {
        // SAFETY: H1.
        black_box(unsafe { b.device.wait_host(b.stream, Until::Now, None, WaitMode::Auto) }.is_ok());
    });
    compare("mark", &linked, &plugin, true, |b| {
        // SAFETY: H1.
        black_box(unsafe { b.device.mark(b.stream) }.is_ok());
    });
    compare("write of 16 bytes", &linked, &plugin, true, |b| {
        // SAFETY: H1, H4.
        black_box(unsafe { b.device.write(b.stream, b.place, &b.host[..16]) }.is_ok());
    });
    compare("fill of 64 bytes", &linked, &plugin, true, |b| {
        // SAFETY: H1, H4, H14.
        black_box(unsafe { b.device.fill(b.stream, b.place, Pattern::byte(1), 64) }.is_ok());
    });
    compare("copy of 64 bytes", &linked, &plugin, true, |b| {
        let host = End::Host(HostPtr(b.host.as_ptr().cast_mut()));
        // SAFETY: H1, H4, H5: the vector is only read, and lives to the end.
        black_box(unsafe { b.device.copy(b.stream, End::Device(b.place), host, 64) }.is_ok());
    });
    compare("launch, no argument", &linked, &plugin, true, |b| {
        // SAFETY: H1, H15: the kernel takes none.
        black_box(unsafe { b.device.launch(b.stream, b.noop, Launch::linear(1, 1), &[]) }.is_ok());
    });
    compare("launch, 4 arguments", &linked, &plugin, true, |b| {
        let args = [Arg::Place { place: b.place, len: 64 }; 4];
        // SAFETY: H1, H4, H15: the kernel takes any, and touches none.
        black_box(unsafe { b.device.launch(b.stream, b.kernel, Launch::linear(1, 1), &args) }.is_ok());
    });
    compare("host_call", &linked, &plugin, true, |b| {
        // SAFETY: H1, H13: it does nothing.
        black_box(unsafe { b.device.host_call(b.stream, HostFn::new(|_| ())) }.is_ok());
    });
}
