//! Kernels that are loaded: built, their arguments set and checked, launched.
//!
//! Arguments belong to the kernel object until the launch takes them, so a kernel's lock is held from the first argument to
//! the launch (C3, H12). A stream's `order` is taken inside it, never the other way round.

use crate::config::Addressing;
use crate::conv::{check, fault};
use crate::device::OpenClDevice;
use crate::memory::{Block, Spot};
use crate::object::{Buffer, KernelObject, Program};
use crate::part::Part;
use crate::stream::Stream;
use crate::sys::{self, Raw};
use anyaccel_hal::{Arg, Fault, FaultKind, Format, Kernel, KernelSource, Kernels, KernelsLimits, Launch, StreamId};
use anyaccel_kit::Mutex;
use std::ptr;

/// What an argument of a kernel is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Memory,
    Local,
    Value,
    /// The program does not tell.
    Unknown,
}

/// A kernel that is ready to be launched on one device.
pub(crate) struct Loaded {
    object: Mutex<KernelObject>,
    forms: Vec<Form>,
    max_threads: u64,
    /// The device that it was built for.
    device: usize,
    program: Program,
    entry: String,
}

impl Loaded {
    pub(crate) fn new(part: &Part, device: usize, program: Program, entry: &str) -> Result<Self, Fault> {
        let object = program.kernel(entry)?;
        let (api, raw) = (part.api(), object.raw());
        let mut count = 0_u32;
        // SAFETY: C1, C2: the answer is one 32-bit number.
        let status =
            unsafe { (api.clGetKernelInfo)(raw, sys::KERNEL_NUM_ARGS, 4, (&raw mut count).cast(), ptr::null_mut()) };
        check("clGetKernelInfo", status)?;
        let forms = (0..count).map(|at| form(part, raw, at)).collect();
        let max_threads = work_group_size(part, &object)?;
        Ok(Self { object: Mutex::new(object), forms, max_threads, device, program, entry: entry.to_owned() })
    }
}

/// The most threads of a group that a kernel may have.
pub(crate) fn work_group_size(part: &Part, kernel: &KernelObject) -> Result<u64, Fault> {
    let mut most = 0_usize;
    // SAFETY: C1, C2: the answer is one size.
    let status = unsafe {
        let (device, size, value) = (part.facts.id.raw, size_of::<usize>(), (&raw mut most).cast());
        let ask = part.api().clGetKernelWorkGroupInfo;
        ask(kernel.raw(), device, sys::KERNEL_WORK_GROUP_SIZE, size, value, ptr::null_mut())
    };
    check("clGetKernelWorkGroupInfo", status).map(|()| most as u64)
}

/// What the program tells of an argument.
fn form(part: &Part, kernel: Raw, at: u32) -> Form {
    let mut qualifier = 0_u32;
    // SAFETY: C1, C2: the answer is one 32-bit number.
    let status = unsafe {
        let (name, value) = (sys::KERNEL_ARG_ADDRESS_QUALIFIER, (&raw mut qualifier).cast());
        (part.api().clGetKernelArgInfo)(kernel, at, name, 4, value, ptr::null_mut())
    };
    match qualifier {
        _ if status != sys::SUCCESS => Form::Unknown,
        sys::KERNEL_ARG_ADDRESS_GLOBAL | sys::KERNEL_ARG_ADDRESS_CONSTANT => Form::Memory,
        sys::KERNEL_ARG_ADDRESS_LOCAL => Form::Local,
        sys::KERNEL_ARG_ADDRESS_PRIVATE => Form::Value,
        _ => Form::Unknown,
    }
}

/// A kernel whose arguments are being set.
pub(crate) struct Arguments<'a> {
    part: &'a Part,
    kernel: Raw,
    next: u32,
    /// Parts of buffers, which the launch keeps.
    parts: Vec<Buffer>,
}

impl<'a> Arguments<'a> {
    pub(crate) const fn new(part: &'a Part, kernel: Raw) -> Self {
        Self { part, kernel, next: 0, parts: Vec::new() }
    }

    fn at(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    fn checked(&self, api: &'static str, at: u32, status: i32) -> Result<(), Fault> {
        if status == sys::SUCCESS {
            return Ok(());
        }
        let fault = fault(api, status);
        let name = fault.note.clone().unwrap_or_default();
        Err(fault.note(format!("argument {at}: {name}")))
    }

    pub(crate) fn value(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let at = self.at();
        // SAFETY: C1, C2; C3 by the kernel's lock.
        let status = unsafe { (self.part.api().clSetKernelArg)(self.kernel, at, bytes.len(), bytes.as_ptr().cast()) };
        self.checked("clSetKernelArg", at, status)
    }

    pub(crate) fn local(&mut self, len: usize) -> Result<(), Fault> {
        let at = self.at();
        // SAFETY: C1; no value is given for local memory. C3 by the kernel's lock.
        let status = unsafe { (self.part.api().clSetKernelArg)(self.kernel, at, len, ptr::null()) };
        self.checked("clSetKernelArg", at, status)
    }

    /// A block from its start.
    pub(crate) fn block(&mut self, block: &Block) -> Result<(), Fault> {
        self.memory(block, 0, block.len)
    }

    /// `len` bytes of a block.
    pub(crate) fn memory(&mut self, block: &Block, offset: u64, len: u64) -> Result<(), Fault> {
        let (facts, api) = (&self.part.facts, self.part.api());
        match (block.spot(offset), block.object()) {
            (Spot::Object(..), Some(buffer)) if facts.addressing == Addressing::Buffer => {
                let part = if offset == 0 { None } else { Some(buffer.part(offset as usize, len as usize)?) };
                let object = part.as_ref().unwrap_or(buffer).raw();
                let at = self.at();
                // SAFETY: C1, C2: the value is one handle. C3 by the kernel's lock.
                let status =
                    unsafe { (api.clSetKernelArg)(self.kernel, at, size_of::<Raw>(), (&raw const object).cast()) };
                self.parts.extend(part);
                self.checked("clSetKernelArg", at, status)
            }
            (Spot::Object(..), _) => {
                let at = self.at();
                let table = facts.device_address.as_ref().ok_or(Fault::unsupported("launch"))?;
                // SAFETY: C1; C3 by the kernel's lock.
                let status = unsafe { (table.clSetKernelArgDevicePointerEXT)(self.kernel, at, block.addr + offset) };
                self.checked("clSetKernelArgDevicePointerEXT", at, status)
            }
            (Spot::Address(address), _) => self.address(address),
        }
    }

    fn address(&mut self, address: *mut u8) -> Result<(), Fault> {
        let at = self.at();
        match (&self.part.facts.usm, self.part.facts.addressing, self.part.api().clSetKernelArgSVMPointer) {
            (Some(usm), Addressing::Usm, _) => {
                // SAFETY: C1; C3 by the kernel's lock.
                let status = unsafe { (usm.clSetKernelArgMemPointerINTEL)(self.kernel, at, address.cast()) };
                self.checked("clSetKernelArgMemPointerINTEL", at, status)
            }
            (_, Addressing::Svm, Some(set)) => {
                // SAFETY: C1; C3 by the kernel's lock.
                let status = unsafe { set(self.kernel, at, address.cast()) };
                self.checked("clSetKernelArgSVMPointer", at, status)
            }
            // Host memory that is no argument by `PinnedLimits::direct`.
            _ => Err(Fault::invalid("launch", format!("argument {at}: memory that kernels can't use"))),
        }
    }
}

/// Enqueues a kernel whose arguments are set.
pub(crate) fn enqueue(stream: &Stream, kernel: Raw, groups: [u32; 3], threads: [u32; 3]) -> Result<(), Fault> {
    let local = threads.map(|threads| threads as usize);
    let global = std::array::from_fn::<usize, 3, _>(|axis| groups[axis] as usize * local[axis]);
    let dimensions =
        if groups[2] == 1 && threads[2] == 1 { if groups[1] == 1 && threads[1] == 1 { 1 } else { 2 } } else { 3 };
    // SAFETY: C1, C2: three sizes each, of which the first `dimensions` are read. Arguments by H15.
    let status = unsafe {
        (stream.part.api().clEnqueueNDRangeKernel)(
            stream.queue.raw(),
            kernel,
            dimensions,
            ptr::null(),
            global.as_ptr(),
            local.as_ptr(),
            0,
            ptr::null(),
            ptr::null_mut(),
        )
    };
    check("clEnqueueNDRangeKernel", status)
}

pub(crate) fn invalid(note: String) -> Fault {
    Fault::invalid("launch", note)
}

impl OpenClDevice {
    /// Launches a loaded kernel, checked before anything is enqueued (H15).
    ///
    /// # Safety
    /// As for `Device::launch`.
    pub(crate) unsafe fn launch_loaded(
        &self,
        stream: StreamId,
        kernel: Kernel,
        launch: Launch,
        args: &[Arg<'_>],
    ) -> Result<(), Fault> {
        // SAFETY: H1.
        let (stream, loaded) = unsafe { (self.stream(stream)?, self.loaded(kernel)?) };
        self.check_launch(loaded, launch, args)?;
        let object = loaded.object.lock();
        // SAFETY: H1.
        let _parts = unsafe { self.set_arguments(object.raw(), args) }?;
        let _order = stream.enqueue();
        enqueue(stream, object.raw(), launch.groups, launch.threads)
    }

    /// # Safety
    /// H1; nobody else sets arguments of the kernel (C3).
    unsafe fn set_arguments(&self, kernel: Raw, args: &[Arg<'_>]) -> Result<Vec<Buffer>, Fault> {
        let mut arguments = Arguments::new(&self.part, kernel);
        for arg in args {
            match *arg {
                // SAFETY: H1.
                Arg::Place { place, len } => arguments.memory(unsafe { self.block(place.mem) }?, place.offset, len)?,
                Arg::Bytes(bytes) => arguments.value(bytes)?,
                Arg::Local(len) => arguments.local(len)?,
            }
        }
        Ok(arguments.parts)
    }

    /// A kernel object for one launch that is kept, its arguments set, and the parts of buffers that they name.
    ///
    /// # Safety
    /// As for `Device::launch`.
    pub(crate) unsafe fn own_loaded(
        &self,
        kernel: Kernel,
        launch: Launch,
        args: &[Arg<'_>],
    ) -> Result<(KernelObject, Vec<Buffer>), Fault> {
        // SAFETY: H1.
        let loaded = unsafe { self.loaded(kernel) }?;
        self.check_launch(loaded, launch, args)?;
        let own = loaded.program.kernel(&loaded.entry)?;
        // SAFETY: H1; nobody else has the kernel.
        let parts = unsafe { self.set_arguments(own.raw(), args) }?;
        Ok((own, parts))
    }

    /// # Safety
    /// H1.
    unsafe fn loaded(&self, kernel: Kernel) -> Result<&Loaded, Fault> {
        // SAFETY: H1: not removed while this call runs.
        let loaded = unsafe { self.machine.kernels.get(kernel.0) };
        loaded.filter(|loaded| loaded.device == self.ordinal).ok_or_else(|| invalid("an unknown kernel".to_owned()))
    }

    fn check_launch(&self, loaded: &Loaded, launch: Launch, args: &[Arg<'_>]) -> Result<(), Fault> {
        let facts = &self.part.facts;
        if launch.groups.contains(&0) {
            return Err(invalid(format!("{:?} groups", launch.groups)));
        }
        let threads = launch.threads.iter().try_fold(1_u64, |all, &threads| all.checked_mul(threads.into()));
        let most = loaded.max_threads.min(facts.max_threads.into());
        let by_axis = launch.threads.iter().zip(facts.max_threads_by_axis);
        if threads.is_none_or(|threads| threads == 0 || threads > most) {
            return Err(invalid(format!("{:?} threads, at most {most} of this kernel in all", launch.threads)));
        }
        if by_axis.clone().any(|(&threads, most)| u64::from(threads) > most) {
            let most = facts.max_threads_by_axis;
            return Err(invalid(format!("{:?} threads, at most {most:?} along x, y, z", launch.threads)));
        }
        let global =
            launch.groups.iter().zip(launch.threads).map(|(&groups, threads)| u64::from(groups) * u64::from(threads));
        if global.into_iter().any(|global| usize::try_from(global).is_err()) {
            return Err(invalid(format!("{:?} groups of {:?} threads", launch.groups, launch.threads)));
        }
        if launch.shared != 0 {
            return Err(invalid(format!("{} bytes of shared memory, which comes as an argument here", launch.shared)));
        }
        let local = args.iter().fold(0_u64, |all, arg| match arg {
            Arg::Local(len) => all.saturating_add(*len as u64),
            _ => all,
        });
        if local > facts.max_local {
            return Err(invalid(format!("{local} bytes of local memory, at most {}", facts.max_local)));
        }
        if args.len() != loaded.forms.len() {
            return Err(invalid(format!("{} arguments, the kernel takes {}", args.len(), loaded.forms.len())));
        }
        for (at, (arg, form)) in args.iter().zip(&loaded.forms).enumerate() {
            let fits = match (arg, form) {
                (_, Form::Unknown) => true,
                (Arg::Place { .. }, form) => *form == Form::Memory,
                (Arg::Bytes(_), form) => *form == Form::Value,
                (Arg::Local(_), form) => *form == Form::Local,
            };
            if !fits {
                return Err(invalid(format!("argument {at}: {arg:?} where the kernel takes {form:?}")));
            }
        }
        Ok(())
    }
}

impl Kernels for OpenClDevice {
    fn limits(&self) -> KernelsLimits {
        let facts = &self.part.facts;
        KernelsLimits {
            max_threads: facts.max_threads,
            max_groups: [u32::MAX; 3],
            max_shared: u32::try_from(facts.max_local).unwrap_or(u32::MAX),
        }
    }

    fn formats(&self) -> &[Format] {
        if self.part.facts.spirv { &[Format::SpirV, Format::OpenClC] } else { &[Format::OpenClC] }
    }

    unsafe fn load(&self, source: KernelSource<'_>) -> Result<Kernel, Fault> {
        let KernelSource::Code { format, code, entry } = source else {
            return Err(Fault::unsupported("load").note("functions of this process"));
        };
        if !self.formats().contains(&format) {
            return Err(Fault::unsupported("load").note(format!("{format:?}")));
        }
        if code.is_empty() {
            return Err(Fault::new(FaultKind::Invalid, "load").note("no code"));
        }
        let (program, options) = match format {
            Format::SpirV => (Program::from_il(&self.part.context, code)?, c"-cl-kernel-arg-info"),
            _ => (Program::from_source(&self.part.context, &[code])?, c"-cl-kernel-arg-info"),
        };
        program.build(self.part.facts.id.raw, options)?;
        let loaded = Loaded::new(&self.part, self.ordinal, program, entry)?;
        Ok(Kernel(self.machine.kernels.insert(loaded)))
    }

    unsafe fn unload(&self, kernel: Kernel) {
        drop(self.machine.kernels.remove(kernel.0));
    }
}
