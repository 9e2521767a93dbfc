//! What the whole path from the face to the loader costs beside the bare calls: `cargo bench -p anyaccel-xpu`.
//!
//! On the fake driver through the real loader by default, whose calls only put something on a queue: so the difference of a row
//! is what the face, the engine and this backend add. The stream is held up meanwhile, so that nothing is run. Without a real
//! loader the fake is the loader too; with `ANYACCEL_ZE_LIBRARY` set, whatever that names is measured.

use anyaccel::{EventOptions, LaunchArg, Runtime, Stream};
use anyaccel_fake_level_zero::{Loader, install};
use anyaccel_hal::{Format, Launch};
use anyaccel_kernels::device::{Program, spirv};
use anyaccel_xpu::sys::{self, *};
use std::env;
use std::ffi::c_void;
use std::path::Path;
use std::ptr;
use std::sync::mpsc;
use std::time::Instant;

const ROUNDS: usize = 100;
const CALLS: usize = 250;
/// What the path may add, in nanoseconds.
const GOAL: f64 = 200.0;

/// The best and the median of several rounds, in nanoseconds a call; `rest` empties the queue after each.
fn measure(mut call: impl FnMut(), mut rest: impl FnMut(bool)) -> (f64, f64) {
    call();
    rest(false);
    let mut figures: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            rest(true);
            let begin = Instant::now();
            for _ in 0..CALLS {
                call();
            }
            let spent = begin.elapsed().as_nanos() as f64 / CALLS as f64;
            rest(false);
            spent
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    (figures[0], figures[ROUNDS / 2])
}

fn row(what: &str, path: (f64, f64), bare: (f64, f64)) {
    let (best, median) = (path.0 - bare.0, path.1 - bare.1);
    let verdict = if best <= GOAL { "ok" } else { "over" };
    let ratio = path.0 / bare.0;
    println!(
        "{what:<10} {:>9.1} {:>9.1} {best:>9.1} {median:>9.1}   <= {GOAL} {verdict}   {ratio:.2}x",
        path.0, bare.0
    );
}

/// The loader's own objects.
struct Bare {
    ze: &'static Ze,
    list: ZeCommandList,
    hold: ZeEvent,
    mark: ZeEvent,
    kernel: ZeKernel,
    src: *mut c_void,
    dst: *mut c_void,
}

impl Bare {
    fn new() -> Self {
        let ze = &sys::loader().expect("a loader").ze;
        let (mut driver, mut device, mut context) = (ZeDriver::NULL, ZeDevice::NULL, ZeContext::NULL);
        let (mut list, mut pool) = (ZeCommandList::NULL, ZeEventPool::NULL);
        let (mut hold, mut mark) = (ZeEvent::NULL, ZeEvent::NULL);
        let (mut module, mut log, mut kernel) = (ZeModule::NULL, ZeModuleBuildLog::NULL, ZeKernel::NULL);
        let (mut src, mut dst) = (ptr::null_mut(), ptr::null_mut());
        let context_desc = ZeContextDesc::new();
        let queue_desc = ZeCommandQueueDesc {
            flags: ZE_COMMAND_QUEUE_FLAG_IN_ORDER,
            mode: ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
            ..ZeCommandQueueDesc::new()
        };
        let pool_desc = ZeEventPoolDesc { flags: ZE_EVENT_POOL_FLAG_HOST_VISIBLE, count: 2, ..ZeEventPoolDesc::new() };
        let event_desc = |index| ZeEventDesc {
            index,
            signal: ZE_EVENT_SCOPE_FLAG_HOST,
            wait: ZE_EVENT_SCOPE_FLAG_HOST,
            ..ZeEventDesc::new()
        };
        let code = spirv::Module::of(Program::Noop, false).code();
        let module_desc = ZeModuleDesc { input_size: code.len(), input: code.as_ptr(), ..ZeModuleDesc::new() };
        let kernel_desc = ZeKernelDesc { name: c"noop".as_ptr(), ..ZeKernelDesc::new() };
        let memory_desc = ZeDeviceMemAllocDesc::new();
        let (mut one, mut another) = (1, 1);
        // SAFETY: valid places for the answers; the objects live until the process ends.
        unsafe {
            ze.zeInit(0).expect("a start");
            ze.zeDriverGet(&raw mut one, &raw mut driver).expect("a driver");
            ze.zeDeviceGet(driver, &raw mut another, &raw mut device).expect("a device");
            ze.zeContextCreate(driver, &raw const context_desc, &raw mut context).expect("a context");
            ze.zeCommandListCreateImmediate(context, device, &raw const queue_desc, &raw mut list).expect("a list");
            ze.zeEventPoolCreate(context, &raw const pool_desc, 0, ptr::null_mut(), &raw mut pool).expect("a pool");
            for (index, event) in [&mut hold, &mut mark].into_iter().enumerate() {
                let desc = event_desc(index as u32);
                ze.zeEventCreate(pool, &raw const desc, ptr::from_mut(event)).expect("an event");
            }
            ze.zeModuleCreate(context, device, &raw const module_desc, &raw mut module, &raw mut log).expect("code");
            ze.zeKernelCreate(module, &raw const kernel_desc, &raw mut kernel).expect("a kernel");
            ze.zeKernelSetGroupSize(kernel, 32, 1, 1).expect("groups");
            for memory in [&mut src, &mut dst] {
                ze.zeMemAllocDevice(context, &raw const memory_desc, 4096, 64, device, ptr::from_mut(memory))
                    .expect("memory");
            }
        }
        Self { ze, list, hold, mark, kernel, src, dst }
    }

    /// Holds the list up, or lets it go and waits for it.
    fn hold(&self, begins: bool) {
        let mut hold = self.hold;
        // SAFETY: live objects; the event is reset when nothing waits for it any more.
        unsafe {
            if begins {
                self.ze.zeEventHostReset(hold).expect("a reset");
                self.ze.zeCommandListAppendWaitOnEvents(self.list, 1, &raw mut hold).expect("a wait");
            } else {
                self.ze.zeEventHostSignal(hold).expect("a signal");
                self.ze.zeEventHostReset(self.mark).expect("a reset");
                self.ze.zeCommandListAppendSignalEvent(self.list, self.mark).expect("a mark");
                self.ze.zeEventHostSynchronize(self.mark, u64::MAX).expect("an end");
            }
        }
    }
}

fn prepare() {
    if env::var_os(LOADER.variable()).is_some() || env::var_os("ZE_ENABLE_ALT_DRIVERS").is_some() {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake-bench");
    let mut folders = ["/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/local/lib"].iter();
    let real = folders.any(|folder| Path::new(folder).join(LOADER.names()[0]).exists());
    let installed = install(&folder, if real { Loader::Real } else { Loader::Own(1, 13) }).expect("a fake");
    // SAFETY: the process has one thread, and nobody has read its environment.
    unsafe {
        match installed.loader {
            Some(loader) => env::set_var(LOADER.variable(), loader),
            None => env::set_var("ZE_ENABLE_ALT_DRIVERS", installed.driver),
        }
    }
}

fn main() {
    prepare();
    let bare = Bare::new();
    let ze = bare.ze;
    let runtime = Runtime::builder().backend("xpu").build().expect("a runtime");
    let stream: Stream = runtime.stream(()).expect("a stream");
    println!(
        "{:<10} {:>9} {:>9} {:>9} {:>9}   ns a call; the goal is for what the path adds",
        "call", "path", "bare", "adds", "(median)"
    );
    let a = runtime.zeros(4096).expect("memory");
    let b = runtime.zeros(4096).expect("memory");
    runtime.synchronize(()).expect("an end");
    let (to, from) = (a.all(), b.all());
    stream.copy(&to, &from).expect("a copy");
    stream.synchronize().expect("an end");
    // A stream whose native name is known marks by a command, whatever was before it.
    stream.native_handle().expect("a native stream");
    let held: std::cell::RefCell<Option<mpsc::Sender<()>>> = std::cell::RefCell::new(None);
    let hold = |begins: bool| {
        if begins {
            let (release, released) = mpsc::channel::<()>();
            let (begun, begins) = mpsc::channel();
            stream
                .host_fn(move || {
                    begun.send(()).expect("somebody waits");
                    // An error, once the other end is gone.
                    let _released = released.recv();
                })
                .expect("a function");
            begins.recv().expect("its turn");
            *held.borrow_mut() = Some(release);
        } else {
            drop(held.borrow_mut().take());
            stream.synchronize().expect("an end");
        }
    };
    let copy = measure(|| stream.copy(&to, &from).expect("a copy"), &hold);
    let code = spirv::Module::of(Program::Noop, false).code();
    // SAFETY: the code touches nothing.
    let kernel = unsafe { runtime.load_kernel((), Format::SpirV, code, "noop") }.expect("a kernel");
    let args: [LaunchArg<'_>; 0] = [];
    let launch = measure(
        || {
            // SAFETY: the kernel touches nothing.
            unsafe { stream.launch(&kernel, Launch::linear(1, 32), &args) }.expect("a launch");
        },
        &hold,
    );
    let event = runtime.event(EventOptions::default()).expect("an event");
    let record = measure(|| event.record(Some(&stream)).expect("a record"), &hold);
    let held = |begins| bare.hold(begins);
    let none = ptr::null_mut();
    let bare_copy = || {
        // SAFETY: live objects, here and below.
        unsafe { ze.zeCommandListAppendMemoryCopy(bare.list, bare.dst, bare.src, 4096, ZeEvent::NULL, 0, none) }
            .expect("a copy");
    };
    let groups = ZeGroupCount([1, 1, 1]);
    let bare_launch = measure(
        || {
            // SAFETY: as above.
            unsafe {
                ze.zeCommandListAppendLaunchKernel(bare.list, bare.kernel, &raw const groups, ZeEvent::NULL, 0, none)
            }
            .expect("a launch");
        },
        held,
    );
    // SAFETY: as above.
    let mark = || unsafe { ze.zeCommandListAppendSignalEvent(bare.list, bare.mark) }.expect("a mark");
    row("copy", copy, measure(bare_copy, held));
    row("launch", launch, bare_launch);
    row("mark", record, measure(mark, held));
}
