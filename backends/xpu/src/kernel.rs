//! Kernels: loading them, and setting what a launch is given.
//!
//! Arguments belong to the kernel object until a launch takes them, so a kernel's lock is held from the first argument to the
//! launch (H12). A stream's lock is taken inside it, never the other way round. Everything that can be checked is checked before
//! the launch is appended (H15).

use crate::context::Context;
use crate::conv::Failed;
use crate::device::XpuDevice;
use crate::discovery;
use crate::memory::pointer;
use crate::stream::Stream;
use crate::sys::*;
use anyaccel_hal::{Arg, Fault, Format, Kernel, KernelSource, Kernels, KernelsLimits, Launch};
use anyaccel_kit::Mutex;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

/// The first word of SPIR-V.
const MAGIC: u32 = 0x0723_0203;

pub(crate) fn invalid(note: impl Into<Box<str>>) -> Fault {
    Fault::invalid("launch", note)
}

/// Loaded code.
#[derive(Debug)]
pub(crate) struct Module {
    context: Arc<Context>,
    raw: ZeModule,
    /// What the compiler said though it has not failed: a driver may put the work, and its failure, off until a kernel is made.
    said: String,
}

impl Module {
    /// Builds SPIR-V.
    pub(crate) fn load(context: &Arc<Context>, code: &[u8]) -> Result<Self, Fault> {
        let (words, rest) = code.as_chunks::<4>();
        if !rest.is_empty() || words.first().is_none_or(|&first| u32::from_le_bytes(first) != MAGIC) {
            return Err(Fault::invalid("zeModuleCreate", format!("{} bytes that are no SPIR-V", code.len())));
        }
        let mut desc = ZeModuleDesc::new();
        desc.format = ZE_MODULE_FORMAT_IL_SPIRV;
        desc.input_size = code.len();
        desc.input = code.as_ptr();
        let (mut raw, mut log) = (ZeModule::NULL, ZeModuleBuildLog::NULL);
        let (ze, native) = (context.ze, context.platform.context);
        // SAFETY: valid places for the answers, code of that size.
        let made = unsafe { ze.zeModuleCreate(native, context.device, &raw const desc, &raw mut raw, &raw mut log) };
        let written = if made.is_err() && unreadable(ze) {
            "what the compiler said can't be had from this loader, which has several drivers".to_owned()
        } else {
            read_log(ze, log)
        };
        match made {
            Ok(()) => Ok(Self { context: Arc::clone(context), raw, said: written }),
            Err(failed) => {
                let fault = context.fault(failed);
                Err(if written.is_empty() { fault } else { fault.note(written) })
            }
        }
    }

    /// A kernel of it.
    pub(crate) fn kernel(&self, name: &str) -> Result<NativeKernel, Fault> {
        let missing = || Fault::invalid("zeKernelCreate", self.with_log(format!("the code has no kernel {name:?}")));
        let entry = CString::new(name).map_err(|_| missing())?;
        let mut desc = ZeKernelDesc::new();
        desc.name = entry.as_ptr();
        let mut raw = ZeKernel::NULL;
        // SAFETY: a valid place for the answer, a C string; the module lives.
        match unsafe { self.context.ze.zeKernelCreate(self.raw, &raw const desc, &raw mut raw) } {
            Ok(()) => Ok(NativeKernel { context: Arc::clone(&self.context), raw, threads: [0; 3] }),
            Err(Failed { code: code @ ZE_RESULT_ERROR_INVALID_KERNEL_NAME, .. }) => Err(missing().code(code.into())),
            Err(failed) => {
                let fault = self.context.fault(failed);
                let note = match &fault.note {
                    Some(note) => format!("kernel {name:?}: {note}"),
                    None => format!("kernel {name:?}"),
                };
                Err(fault.note(self.with_log(note)))
            }
        }
    }

    /// A note with what the compiler said.
    fn with_log(&self, note: String) -> String {
        if self.said.is_empty() { note } else { format!("{note}; its compiler said: {}", self.said) }
    }
}

/// Whether the log of a module that failed is not to be touched: with several drivers, loaders before `zeInitDrivers` (1.8.12)
/// hand out handles of their own for all but that one, and then take the driver's for their own.
fn unreadable(ze: &Ze) -> bool {
    !ze.has("zeInitDrivers") && discovery::drivers(ze).map_or(true, |drivers| drivers.len() > 1)
}

/// What the compiler said; the log is given back.
fn read_log(ze: &Ze, log: ZeModuleBuildLog) -> String {
    if log == ZeModuleBuildLog::NULL {
        return String::new();
    }
    let mut size = 0;
    // SAFETY: the log lives; the second call has room for what the first asked for.
    let text = unsafe {
        let mut text = Vec::new();
        if ze.zeModuleBuildLogGetString(log, &raw mut size, ptr::null_mut()).is_ok() && size > 0 {
            text.resize(size, 0_u8);
            if ze.zeModuleBuildLogGetString(log, &raw mut size, text.as_mut_ptr().cast()).is_err() {
                text.clear();
            }
        }
        let _destroyed = ze.zeModuleBuildLogDestroy(log);
        text
    };
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).trim().to_owned()
}

impl Drop for Module {
    fn drop(&mut self) {
        if !self.context.is_lost() && !self.context.platform.is_busy() {
            // SAFETY: made by `load`; its kernels are gone and their launches have ended (H4).
            let _destroyed = unsafe { self.context.ze.zeModuleDestroy(self.raw) };
        }
    }
}

/// A kernel object. `&mut` says that nobody else sets its arguments.
#[derive(Debug)]
pub(crate) struct NativeKernel {
    context: Arc<Context>,
    raw: ZeKernel,
    /// The size of its groups, as set last.
    threads: [u32; 3],
}

impl NativeKernel {
    /// What the driver tells of it, and the most threads of its groups where that is known.
    pub(crate) fn properties(&self) -> Result<(ZeKernelProperties, Option<u32>), Fault> {
        let mut most = ZeKernelMaxGroupSizePropertiesExt::new();
        let mut properties = ZeKernelProperties::new();
        // A driver that knows no such extension leaves it as it is.
        properties.next = (&raw mut most).cast();
        // SAFETY: a valid place for the answer, and for that of the extension; the kernel lives.
        self.context.check(unsafe { self.context.ze.zeKernelGetProperties(self.raw, &raw mut properties) })?;
        properties.next = ptr::null_mut();
        Ok((properties, Some(most.max_group_size).filter(|&most| most > 0)))
    }

    #[inline]
    pub(crate) fn set_threads(&mut self, threads @ [x, y, z]: [u32; 3]) -> Result<(), Fault> {
        if self.threads == threads {
            return Ok(());
        }
        // SAFETY: the kernel lives, and `&mut` keeps others out.
        self.context.check(unsafe { self.context.ze.zeKernelSetGroupSize(self.raw, x, y, z) })?;
        self.threads = threads;
        Ok(())
    }

    #[inline]
    fn set(&mut self, at: u32, size: usize, value: *const c_void) -> Result<(), Fault> {
        // SAFETY: the kernel lives, `&mut` keeps others out; a value of that size, or null for group-local memory.
        match unsafe { self.context.ze.zeKernelSetArgumentValue(self.raw, at, size, value) } {
            Ok(()) => Ok(()),
            Err(failed) => {
                let fault = self.context.fault(failed);
                let note = fault.note.clone().unwrap_or_default();
                Err(fault.note(format!("argument {at}, {size} bytes: {note}")))
            }
        }
    }

    #[inline]
    pub(crate) fn set_bytes(&mut self, at: u32, bytes: &[u8]) -> Result<(), Fault> {
        self.set(at, bytes.len(), bytes.as_ptr().cast())
    }

    /// Sets an address. Always anew: what an address means to the driver changes with the memory behind it.
    #[inline]
    pub(crate) fn set_address(&mut self, at: u32, address: u64) -> Result<(), Fault> {
        let address = pointer(address);
        self.set(at, size_of::<*mut c_void>(), (&raw const address).cast())
    }

    pub(crate) fn set_local(&mut self, at: u32, len: usize) -> Result<(), Fault> {
        self.set(at, len, ptr::null())
    }

    /// Appends a launch, which takes the arguments.
    #[inline]
    pub(crate) fn launch(&mut self, stream: &Stream, groups: [u32; 3]) -> Result<(), Fault> {
        let (kernel, groups) = (self.raw, ZeGroupCount(groups));
        // SAFETY: list and kernel live (H1), this thread has both locks. Arguments by H15.
        stream.list()?.append(|ze, list| unsafe {
            ze.zeCommandListAppendLaunchKernel(list, kernel, &raw const groups, ZeEvent::NULL, 0, ptr::null_mut())
        })
    }
}

impl Drop for NativeKernel {
    fn drop(&mut self) {
        if !self.context.is_lost() && !self.context.platform.is_busy() {
            // SAFETY: made by `Module::kernel`; its launches have ended (H4).
            let _destroyed = unsafe { self.context.ze.zeKernelDestroy(self.raw) };
        }
    }
}

/// A kernel of the user. The kernel object goes before its module.
#[derive(Debug)]
pub(crate) struct Loaded {
    kernel: Mutex<NativeKernel>,
    _module: Module,
    args: u32,
    max_threads: u32,
    /// The group that it was compiled for; all 0 if any will do.
    required: [u32; 3],
    /// Group-local memory that it has anyhow.
    local: u32,
}

impl XpuDevice {
    /// # Safety
    /// H1.
    pub(crate) unsafe fn launch_loaded(
        &self,
        stream: &Stream,
        kernel: Kernel,
        launch: Launch,
        args: &[Arg<'_>],
    ) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let loaded = unsafe { self.machine.kernels.get(kernel.0) }.ok_or_else(|| invalid("an unknown kernel"))?;
        self.check_launch(loaded, launch, args)?;
        let mut kernel = loaded.kernel.lock();
        kernel.set_threads(launch.threads)?;
        for (at, arg) in (0..).zip(args) {
            match *arg {
                // SAFETY: H1, as this function's caller promises.
                Arg::Place { place, len } => kernel.set_address(at, unsafe { self.place(place, len, "launch")? })?,
                Arg::Bytes(bytes) => kernel.set_bytes(at, bytes)?,
                Arg::Local(len) => kernel.set_local(at, len)?,
            }
        }
        kernel.launch(stream, launch.groups)
    }

    fn check_launch(&self, kernel: &Loaded, launch: Launch, args: &[Arg<'_>]) -> Result<(), Fault> {
        let Launch { groups, threads, shared } = launch;
        let limits = &self.limits;
        let count = threads.iter().try_fold(1_u32, |all, &threads| all.checked_mul(threads));
        if groups.contains(&0) || groups.iter().zip(limits.max_groups).any(|(&groups, most)| groups > most) {
            return Err(invalid(format!("{groups:?} groups, at most {:?}", limits.max_groups)));
        }
        if count.is_none_or(|count| count == 0 || count > kernel.max_threads) {
            return Err(invalid(format!("{threads:?} threads, at most {} in all", kernel.max_threads)));
        }
        if threads.iter().zip(limits.max_threads_by_axis).any(|(&threads, most)| threads > most) {
            return Err(invalid(format!(
                "{threads:?} threads, at most {:?} along x, y, z",
                limits.max_threads_by_axis
            )));
        }
        if kernel.required != [0; 3] && threads != kernel.required {
            return Err(invalid(format!("{threads:?} threads for a kernel compiled for {:?}", kernel.required)));
        }
        if shared != 0 {
            return Err(invalid(format!("{shared} bytes of shared memory, which comes as an argument here")));
        }
        let local = args.iter().fold(u64::from(kernel.local), |all, arg| match arg {
            Arg::Local(len) => all.saturating_add(*len as u64),
            _ => all,
        });
        if local > limits.max_shared.into() {
            return Err(invalid(format!("{local} bytes of group-local memory, at most {}", limits.max_shared)));
        }
        if args.len() != kernel.args as usize {
            return Err(invalid(format!("{} arguments for a kernel of {}", args.len(), kernel.args)));
        }
        Ok(())
    }
}

impl Kernels for XpuDevice {
    fn limits(&self) -> KernelsLimits {
        let limits = &self.limits;
        KernelsLimits { max_threads: limits.max_threads, max_groups: limits.max_groups, max_shared: limits.max_shared }
    }

    fn formats(&self) -> &[Format] {
        &[Format::SpirV]
    }

    unsafe fn load(&self, source: KernelSource<'_>) -> Result<Kernel, Fault> {
        let (code, entry) = match source {
            KernelSource::Code { format: Format::SpirV, code, entry } => (code, entry),
            KernelSource::Code { format, .. } => return Err(Fault::unsupported("load").note(format!("{format:?}"))),
            KernelSource::Host(_) => return Err(Fault::unsupported("load").note("a function of the host")),
        };
        self.context.alive()?;
        let module = Module::load(&self.context, code).map_err(|fault| match &fault.note {
            Some(said) => {
                let note = format!("kernel {entry:?}: {said}");
                fault.note(note)
            }
            None => fault.note(format!("kernel {entry:?}")),
        })?;
        let kernel = module.kernel(entry)?;
        let (properties, most) = kernel.properties()?;
        let loaded = Loaded {
            kernel: Mutex::new(kernel),
            _module: module,
            args: properties.num_args,
            max_threads: most.unwrap_or(u32::MAX).min(self.limits.max_threads),
            required: properties.required_group_size,
            local: properties.local_mem_size,
        };
        Ok(Kernel(self.machine.kernels.insert(Arc::new(loaded))))
    }

    unsafe fn unload(&self, kernel: Kernel) {
        drop(self.machine.kernels.remove(kernel.0));
    }
}
