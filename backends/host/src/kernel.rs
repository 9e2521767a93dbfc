//! Kernels: the built-in ones, by their numbers, and functions of this process.
//!
//! A built-in's handle is its number: handles of loaded kernels have a generation above 0 in their upper half, so they
//! never meet. Everything is checked when a launch is enqueued (H15); built-ins become operations like any other.

use crate::crew::Crew;
use crate::device::HostDevice;
use crate::op::{Op, RandomFill};
use anyaccel_hal::{
    Arg, Fault, Format, HostKernel, Kernel, KernelArg, KernelSource, Kernels, KernelsLimits, Launch, WorkGroup,
};
use anyaccel_kernels::{Arguments, Builtin, KernelError, convert, fill_pattern, histogram, noop, random};
use std::ptr;
use std::sync::Arc;

/// The most threads of a group. They are a loop of the kernel, so this is only what counts stay sane with.
const MAX_THREADS: u32 = 1 << 16;
/// The most group-local memory: it should stay in the first caches.
const MAX_SHARED: u32 = 256 << 10;
/// Group-local memory and values are aligned to this.
const ALIGN: usize = size_of::<Line>();

/// Memory aligned as any value of a kernel needs.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "it is room")] [u8; 64]);

fn room(bytes: usize) -> Vec<Line> {
    vec![Line([0; 64]); bytes.div_ceil(ALIGN)]
}

/// An enqueued launch of a function of this process.
pub(crate) struct UserLaunch {
    kernel: Arc<HostKernel>,
    launch: Launch,
    groups: usize,
    args: Vec<KernelArg>,
    /// Where the values of the arguments are.
    _values: Vec<Line>,
    /// Which arguments are group-local memory.
    locals: Vec<usize>,
}

// SAFETY: the pointers are device memory (H4) and values of its own, used at its turn only.
unsafe impl Send for UserLaunch {}
// SAFETY: as above.
unsafe impl Sync for UserLaunch {}

impl UserLaunch {
    /// Runs all groups, several at a time.
    ///
    /// # Safety
    /// It is the launch's turn.
    pub(crate) unsafe fn run(&self, crew: &Arc<Crew>) {
        let chunk = (self.groups / (8 * crew.workers())).clamp(1, 4096);
        crew.share(self.groups, chunk, &|at, count| {
            let mut args = self.args.clone();
            let sizes = self.locals.iter().map(|&local| (args[local].len as usize).next_multiple_of(ALIGN));
            let mut locals = room(sizes.sum());
            let mut next = locals.as_mut_ptr().cast::<u8>();
            for &local in &self.locals {
                args[local].ptr = next;
                next = next.wrapping_add((args[local].len as usize).next_multiple_of(ALIGN));
            }
            for group in at..at + count {
                let [x, y, _] = self.launch.groups.map(|groups| groups as usize);
                let index = [group % x, group / x % y, group / x / y].map(|index| index as u32);
                let group = WorkGroup {
                    index,
                    groups: self.launch.groups,
                    threads: self.launch.threads,
                    shared: self.launch.shared,
                };
                // SAFETY: H15, as the launch's caller promised; it is its turn.
                unsafe { self.kernel.run(&group, &args) };
            }
        });
    }
}

impl HostDevice {
    /// The operation that a launch is.
    ///
    /// # Safety
    /// H1.
    pub(crate) unsafe fn resolve(&self, kernel: Kernel, launch: Launch, args: &[Arg<'_>]) -> Result<Op, Fault> {
        let groups = launch.groups.iter().try_fold(1_usize, |all, &groups| all.checked_mul(groups as usize));
        let threads = launch.threads.iter().try_fold(1_u32, |all, &threads| all.checked_mul(threads));
        let Some(groups) = groups.filter(|&groups| groups > 0) else {
            return Err(invalid(format!("{:?} groups", launch.groups)));
        };
        if threads.is_none_or(|threads| threads == 0 || threads > MAX_THREADS) {
            return Err(invalid(format!("{:?} threads, at most {MAX_THREADS} in all", launch.threads)));
        }
        // SAFETY: H1, as this function's caller promises.
        unsafe {
            match u32::try_from(kernel.0).ok().and_then(Builtin::from_number) {
                Some(builtin) => self.resolve_builtin(builtin, groups, args),
                None => self.resolve_user(kernel, launch, groups, args),
            }
        }
    }

    /// # Safety
    /// H1.
    unsafe fn resolve_builtin(&self, builtin: Builtin, groups: usize, args: &[Arg<'_>]) -> Result<Op, Fault> {
        let wrong = |error: KernelError| error.fault("launch");
        let Arguments { places, params } = builtin.arguments(args).map_err(wrong)?;
        let at = |place: usize, len: u64| {
            let (place, given) = places[place];
            if len > given {
                return Err(wrong(KernelError::PlaceLength { kernel: builtin, given, touched: len }));
            }
            // SAFETY: H1, as this function's caller promises.
            unsafe { self.place(place, given, "launch") }
        };
        let (op, split) = match builtin {
            Builtin::Noop => (Op::Noop, noop::split()),
            Builtin::FillPattern => {
                let fill_pattern::Params { pattern, len } = fill_pattern::Params::from_bytes(params).map_err(wrong)?;
                (Op::Fill { dst: at(0, len)?, pattern, len: len as usize }, fill_pattern::split(len))
            }
            Builtin::Convert => {
                let params = convert::Params::from_bytes(params).map_err(wrong)?;
                let (to, from) = (params.dst_dtype().map_err(wrong)?, params.src_dtype().map_err(wrong)?);
                let bytes = |size: usize| params.count.saturating_mul(size as u64);
                let (dst, src) = (at(0, bytes(to.size()))?, at(1, bytes(from.size()))?);
                (Op::Convert { dst, to, src, from, count: params.count as usize }, convert::split(params.count))
            }
            Builtin::Histogram => {
                let histogram::Params { len } = histogram::Params::from_bytes(params).map_err(wrong)?;
                let counts = at(0, 2048)?.cast::<u64>();
                if !counts.is_aligned() {
                    return Err(invalid("histogram: the counts are not aligned to 8 bytes"));
                }
                (Op::Histogram { counts, src: at(1, len)?, len: len as usize }, histogram::split(len))
            }
            Builtin::RandomBits
            | Builtin::RandomUniform
            | Builtin::RandomNormal
            | Builtin::RandomLogNormal
            | Builtin::RandomExponential
            | Builtin::RandomGeometric
            | Builtin::RandomBernoulli
            | Builtin::RandomIntegers
            | Builtin::RandomPermutation => {
                let fill = random::Fill::from_bytes(builtin, params).map_err(wrong)?;
                let dst = at(0, fill.destination_len())?;
                let cell = if fill.cell_len() == 0 { ptr::null() } else { at(1, fill.cell_len())?.cast_const() };
                let split = fill.split();
                (Op::Random(Box::new(RandomFill { fill, dst, cell })), split)
            }
        };
        if groups < split.chunks() as usize {
            return Err(invalid(format!("{builtin}: {groups} groups for {} chunks", split.chunks())));
        }
        Ok(op)
    }

    /// # Safety
    /// H1.
    unsafe fn resolve_user(
        &self,
        kernel: Kernel,
        launch: Launch,
        groups: usize,
        args: &[Arg<'_>],
    ) -> Result<Op, Fault> {
        // SAFETY: H1, as this function's caller promises.
        let kernel = unsafe { self.machine().kernels.get(kernel.0) };
        let kernel = Arc::clone(kernel.ok_or_else(|| invalid("an unknown kernel"))?);
        let shared = args.iter().fold(launch.shared as usize, |all, arg| match arg {
            Arg::Local(len) => all.saturating_add(*len),
            _ => all,
        });
        if shared > MAX_SHARED as usize {
            return Err(invalid(format!("{shared} bytes of group-local memory, at most {MAX_SHARED}")));
        }
        let value_len = |arg: &Arg<'_>| match arg {
            Arg::Bytes(bytes) => bytes.len().next_multiple_of(ALIGN),
            _ => 0,
        };
        let mut values = room(args.iter().map(value_len).sum());
        let mut next = values.as_mut_ptr().cast::<u8>();
        let mut locals = Vec::new();
        let mut resolved = Vec::with_capacity(args.len());
        for (at, arg) in args.iter().enumerate() {
            resolved.push(match *arg {
                Arg::Place { place, len } => {
                    // SAFETY: H1, as this function's caller promises.
                    KernelArg { ptr: unsafe { self.place(place, len, "launch")? }, len }
                }
                Arg::Bytes(bytes) => {
                    let ptr = next;
                    // SAFETY: `values` has room for every value in turn, rounded up as here.
                    unsafe {
                        ptr.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                        next = next.add(bytes.len().next_multiple_of(ALIGN));
                    }
                    KernelArg { ptr, len: bytes.len() as u64 }
                }
                Arg::Local(len) => {
                    locals.push(at);
                    KernelArg { ptr: ptr::null_mut(), len: len as u64 }
                }
            });
        }
        Ok(Op::Launch(Box::new(UserLaunch { kernel, launch, groups, args: resolved, _values: values, locals })))
    }
}

fn invalid(note: impl Into<Box<str>>) -> Fault {
    Fault::invalid("launch", note)
}

impl Kernels for HostDevice {
    fn limits(&self) -> KernelsLimits {
        KernelsLimits { max_threads: MAX_THREADS, max_groups: [u32::MAX; 3], max_shared: MAX_SHARED }
    }

    fn formats(&self) -> &[Format] {
        &[Format::HostFn]
    }

    unsafe fn load(&self, source: KernelSource<'_>) -> Result<Kernel, Fault> {
        match source {
            KernelSource::Host(kernel) => Ok(Kernel(self.machine().kernels.insert(Arc::new(kernel)))),
            KernelSource::Code { format, .. } => Err(Fault::unsupported("load").note(format!("{format:?}"))),
        }
    }

    unsafe fn unload(&self, kernel: Kernel) {
        drop(self.machine().kernels.remove(kernel.0));
    }
}
