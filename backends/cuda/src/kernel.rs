//! Kernels: loading them, and what the driver is given for a launch.
//!
//! Everything that can be checked is checked before the driver is asked (H15): the number and sizes of arguments where the
//! driver tells them or the PTX does, and the limits of the device and of the function.

use crate::compiler::{compile_for, compiler_version};
use crate::context::Context;
use crate::conv::Failed;
use crate::device::CudaDevice;
use crate::params;
use crate::sys::*;
use anyaccel_hal::{Arg, Fault, Format, Kernel, KernelSource, Kernels, KernelsLimits, Launch};
use anyaccel_kernels::Builtin;
use std::borrow::Cow;
use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Room for the assembler's log.
const LOG: usize = 8 << 10;
/// Up to so many arguments are kept on the stack.
const FEW: usize = 16;

pub(crate) fn invalid(note: impl Into<Box<str>>) -> Fault {
    Fault::invalid("launch", note)
}

/// Loaded code.
#[derive(Debug)]
pub(crate) struct Module {
    context: Arc<Context>,
    raw: CUmodule,
}

impl Module {
    /// Loads PTX or a binary. The context is current.
    pub(crate) fn load(context: &Arc<Context>, code: &[u8]) -> Result<Self, Fault> {
        // Text ends with a zero; a binary does not mind one more byte.
        let mut image = Vec::with_capacity(code.len() + 1);
        image.extend_from_slice(code);
        image.push(0);
        let mut log = vec![0_u8; LOG];
        let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(LOG - 1)];
        let mut raw = CUmodule::NULL;
        let _relaxed = context.relaxed();
        // SAFETY: a valid place for the answer, an image that says where it ends, two options with their values.
        let loaded = unsafe {
            let image = image.as_ptr().cast();
            context.cuda.cuModuleLoadDataEx(&raw mut raw, image, 2, options.as_mut_ptr(), values.as_mut_ptr())
        };
        match loaded {
            Ok(()) => Ok(Self { context: Arc::clone(context), raw }),
            Err(failed) => Err(told(context.fault(failed), &log)),
        }
    }

    /// A function of it, ready to be launched: a driver that loads lazily may wait for the device when it loads a function,
    /// and a launch must not (H5). The context is current.
    pub(crate) fn function(&self, name: &str) -> Result<CUfunction, Fault> {
        let missing = || Fault::invalid("cuModuleGetFunction", format!("the code has no function {name:?}"));
        let entry = CString::new(name).map_err(|_| missing())?;
        let mut function = CUfunction::NULL;
        let _relaxed = self.context.relaxed();
        // SAFETY: a valid place for the answer, a C string; the module lives.
        match unsafe { self.context.cuda.cuModuleGetFunction(&raw mut function, self.raw, entry.as_ptr()) } {
            Ok(()) => {}
            Err(Failed { code: CUDA_ERROR_NOT_FOUND, .. }) => {
                return Err(missing().code(CUDA_ERROR_NOT_FOUND.into()));
            }
            Err(failed) => return Err(self.context.fault(failed)),
        }
        // SAFETY: the function's module lives.
        match unsafe { self.context.cuda.cuFuncLoad(function) } {
            // Without that call it is loaded by the one above.
            Ok(()) | Err(Failed { code: ABSENT, .. }) => Ok(function),
            Err(failed) => Err(self.context.fault(failed)),
        }
    }
}

/// The same fault with a tool's log, which ends with a zero.
pub(crate) fn told(fault: Fault, log: &[u8]) -> Fault {
    let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    match text.trim() {
        "" => fault,
        text => fault.note(text),
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let module = self.raw;
        // SAFETY: loaded by `load`; its launches have ended (H4), or come before this in `returns` (H25).
        self.context.returns.hand(move |cuda| unsafe { cuda.cuModuleUnload(module) });
    }
}

/// A kernel of the user.
#[derive(Debug)]
pub(crate) struct Loaded {
    _module: Module,
    function: CUfunction,
    /// Sizes of its parameters, where they are known.
    params: Option<Vec<usize>>,
    max_threads: u32,
    /// Group-local memory that it has anyhow.
    shared: u32,
    /// Dynamic group-local memory that the driver lets it have so far.
    allowed: AtomicU32,
}

fn attribute(context: &Context, function: CUfunction, attribute: i32) -> Result<u32, Fault> {
    let mut value = 0;
    // SAFETY: a valid place for the answer; the function's module lives.
    context.check(unsafe { context.cuda.cuFuncGetAttribute(&raw mut value, attribute, function) })?;
    Ok(value.max(0) as u32)
}

/// Sizes of the parameters, as the driver tells them.
fn told_params(context: &Context, function: CUfunction) -> Option<Vec<usize>> {
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: valid places for the answers; the function's module lives.
        match unsafe { context.cuda.cuFuncGetParamInfo(function, sizes.len(), &raw mut offset, &raw mut size) } {
            Ok(()) => sizes.push(size),
            // Behind the last one.
            Err(Failed { code: CUDA_ERROR_INVALID_VALUE, .. }) => return Some(sizes),
            Err(_) => return None,
        }
    }
}

/// A launch as the driver takes it, for the time of a call.
pub(crate) struct Native<'a> {
    pub(crate) function: CUfunction,
    pub(crate) groups: [u32; 3],
    pub(crate) threads: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) params: &'a mut [*mut c_void],
}

impl CudaDevice {
    /// Resolves a launch and hands it to `act`. The context is current.
    ///
    /// # Safety
    /// H1.
    #[inline]
    pub(crate) unsafe fn resolve<R>(
        &self,
        kernel: Kernel,
        launch: Launch,
        args: &[Arg<'_>],
        act: impl FnOnce(Native<'_>) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        // SAFETY: H1, as this function's caller promises.
        unsafe {
            match u32::try_from(kernel.0) {
                Ok(number) => match self.builtins.get(number) {
                    Some(builtin) => self.resolve_builtin(builtin, launch, args, act),
                    None => Err(invalid("an unknown kernel")),
                },
                Err(_) => self.resolve_loaded(kernel, launch, args, act),
            }
        }
    }

    /// # Safety
    /// H1.
    unsafe fn resolve_builtin<R>(
        &self,
        builtin: Builtin,
        launch: Launch,
        args: &[Arg<'_>],
        act: impl FnOnce(Native<'_>) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        if launch.groups.contains(&0) || launch.threads.contains(&0) {
            return Err(invalid(format!("{:?} groups of {:?} threads", launch.groups, launch.threads)));
        }
        let planned = self.builtins.plan(builtin, args)?;
        let mut words = [0_u64; 4];
        for (at, &(place, len)) in planned.places.iter().enumerate().take(builtin.places()) {
            // SAFETY: H1, as this function's caller promises.
            words[2 * at] = unsafe { self.place(place, len, "launch")? };
        }
        if !words[0].is_multiple_of(planned.plan.alignment) {
            return Err(invalid(format!("{builtin}: a place that is not aligned to {} bytes", planned.plan.alignment)));
        }
        let function = self.builtins.function(builtin)?;
        let mut params: [*mut c_void; 5] = [std::ptr::null_mut(); 5];
        let count = 2 * builtin.places();
        for (param, word) in params.iter_mut().zip(&mut words[..count]) {
            *param = std::ptr::from_mut(word).cast();
        }
        // The driver only reads it.
        params[count] = planned.params.as_ptr().cast_mut().cast();
        let used = if planned.params.is_empty() { count } else { count + 1 };
        let groups = [planned.plan.groups, 1, 1];
        let threads = [planned.plan.threads, 1, 1];
        act(Native { function, groups, threads, shared: 0, params: &mut params[..used] })
    }

    /// # Safety
    /// H1.
    unsafe fn resolve_loaded<R>(
        &self,
        kernel: Kernel,
        launch: Launch,
        args: &[Arg<'_>],
        act: impl FnOnce(Native<'_>) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        // SAFETY: H1, as this function's caller promises.
        let kernel = unsafe { self.machine.kernels.get(kernel.0) }.ok_or_else(|| invalid("an unknown kernel"))?;
        self.check_shape(kernel, launch)?;
        if let Some(params) = &kernel.params
            && params.len() != args.len()
        {
            return Err(invalid(format!("{} arguments for a kernel of {}", args.len(), params.len())));
        }
        let mut few = ([0_u64; FEW], [std::ptr::null_mut::<c_void>(); FEW]);
        let mut many = (Vec::new(), Vec::new());
        let (words, params) = if args.len() <= FEW {
            (&mut few.0[..args.len()], &mut few.1[..args.len()])
        } else {
            many.0.resize(args.len(), 0_u64);
            many.1.resize(args.len(), std::ptr::null_mut());
            (&mut many.0[..], &mut many.1[..])
        };
        for (at, arg) in args.iter().enumerate() {
            let size = match *arg {
                Arg::Place { place, len } => {
                    // SAFETY: H1, as this function's caller promises.
                    words[at] = unsafe { self.place(place, len, "launch")? };
                    params[at] = std::ptr::from_mut(&mut words[at]).cast();
                    size_of::<CUdeviceptr>()
                }
                Arg::Bytes(bytes) => {
                    // The driver only reads it.
                    params[at] = bytes.as_ptr().cast_mut().cast();
                    bytes.len()
                }
                Arg::Local(_) => {
                    return Err(invalid(format!("argument {at} is group-local memory: use Launch::shared")));
                }
            };
            if let Some(params) = &kernel.params
                && params[at] != size
            {
                return Err(invalid(format!("argument {at} has {size} bytes, the kernel's has {}", params[at])));
            }
        }
        let Launch { groups, threads, shared } = launch;
        act(Native { function: kernel.function, groups, threads, shared, params })
    }

    fn capability(&self) -> (u32, u32) {
        let get = |which| crate::device::attribute(self.context.cuda, self.context.device, which).unwrap_or(0);
        (get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))
    }

    fn check_shape(&self, kernel: &Loaded, launch: Launch) -> Result<(), Fault> {
        let Launch { groups, threads, shared } = launch;
        let count = threads.iter().try_fold(1_u32, |all, &threads| all.checked_mul(threads));
        if groups.contains(&0) || groups.iter().zip(self.limits.max_groups).any(|(&groups, most)| groups > most) {
            return Err(invalid(format!("{groups:?} groups, at most {:?}", self.limits.max_groups)));
        }
        if count.is_none_or(|count| count == 0 || count > kernel.max_threads) {
            return Err(invalid(format!("{threads:?} threads, at most {} in all", kernel.max_threads)));
        }
        let most = self.limits.max_shared.saturating_sub(kernel.shared);
        if shared > most {
            return Err(invalid(format!("{shared} bytes of group-local memory, at most {most}")));
        }
        if shared > kernel.allowed.load(Ordering::Relaxed) {
            let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function's module lives.
            let set = unsafe { self.context.cuda.cuFuncSetAttribute(kernel.function, attribute, shared as i32) };
            self.context.check(set)?;
            kernel.allowed.fetch_max(shared, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Kernels for CudaDevice {
    fn limits(&self) -> KernelsLimits {
        let limits = &self.limits;
        KernelsLimits { max_threads: limits.max_threads, max_groups: limits.max_groups, max_shared: limits.max_shared }
    }

    fn formats(&self) -> &[Format] {
        if *self.compiles.get_or_init(|| compiler_version().is_ok()) {
            &[Format::Cubin, Format::Ptx, Format::CudaC]
        } else {
            &[Format::Cubin, Format::Ptx]
        }
    }

    unsafe fn load(&self, source: KernelSource<'_>) -> Result<Kernel, Fault> {
        let (format, code, entry) = match source {
            KernelSource::Code { format: Format::CudaC, code, entry } => {
                let source = std::str::from_utf8(code).map_err(|error| {
                    Fault::invalid("nvrtcCreateProgram", format!("source that is no text: {error}"))
                })?;
                (Format::Ptx, Cow::Owned(compile_for(self.capability(), source)?), entry)
            }
            KernelSource::Code { format: format @ (Format::Cubin | Format::Ptx), code, entry } => {
                (format, Cow::Borrowed(code), entry)
            }
            KernelSource::Code { format, .. } => return Err(Fault::unsupported("load").note(format!("{format:?}"))),
            KernelSource::Host(_) => return Err(Fault::unsupported("load").note("a function of the host")),
        };
        if format == Format::Cubin && !code.starts_with(b"\x7fELF") {
            return Err(Fault::invalid("cuModuleLoadDataEx", "a binary that is no ELF"));
        }
        let _current = self.context.enter()?;
        let module = Module::load(&self.context, &code)?;
        let function = module.function(entry)?;
        let told = told_params(&self.context, function);
        let written = || match format {
            Format::Ptx => params::of_entry(&String::from_utf8_lossy(&code), entry),
            _ => None,
        };
        let get = |which| attribute(&self.context, function, which);
        let loaded = Loaded {
            function,
            params: told.or_else(written),
            max_threads: get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?.min(self.limits.max_threads),
            shared: get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            allowed: AtomicU32::new(get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?),
            _module: module,
        };
        Ok(Kernel(self.machine.kernels.insert(Arc::new(loaded))))
    }

    unsafe fn unload(&self, kernel: Kernel) {
        drop(self.machine.kernels.remove(kernel.0));
    }
}
