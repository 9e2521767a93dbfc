//! The built-in kernels, from their source in OpenCL C. A program is built when one of its kernels is first launched.
//!
//! A built-in's handle is its number: handles of loaded kernels have a generation above 0 in their upper half, so they
//! never meet.

use crate::device::OpenClDevice;
use crate::kernel::{Arguments, enqueue, invalid, work_group_size};
use crate::object::{KernelObject, Program};
use crate::part::Part;
use crate::query::DeviceId;
use crate::sys::{self, Raw};
use anyaccel_hal::{Arg, DTypeSet, Fault, FaultKind, Kernel, Launch, Place, StreamId};
use anyaccel_kernels::device::{self, Plan, opencl};
use anyaccel_kernels::{Builtin, KernelError};
use anyaccel_kit::Mutex;
use std::ffi::CString;
use std::sync::OnceLock;

/// Groups that keep a compute unit busy.
const GROUPS_OF_CPU_CORE: u32 = 4;
const GROUPS_OF_GPU_CORE: u32 = 16;

/// A built-in that is ready to be launched.
struct Ready {
    object: Mutex<KernelObject>,
    /// The most threads of a group, of this kernel.
    max_threads: u32,
}

/// A device's built-ins, as far as they were needed.
pub(crate) struct Builtins {
    features: opencl::Features,
    /// As many groups as keep the device busy.
    groups: u32,
    programs: [OnceLock<Result<Program, Fault>>; device::Program::ALL.len()],
    kernels: [OnceLock<Result<Ready, Fault>>; Builtin::ALL.len()],
}

impl Builtins {
    pub(crate) fn new(id: DeviceId, version: (u32, u32)) -> Self {
        let number = |name| id.number(name).unwrap_or(0);
        let cpu = number(sys::DEVICE_TYPE) & sys::DEVICE_TYPE_CPU != 0;
        let a_core = if cpu { GROUPS_OF_CPU_CORE } else { GROUPS_OF_GPU_CORE };
        let cores = number(sys::DEVICE_MAX_COMPUTE_UNITS).clamp(1, 1 << 16) as u32;
        Self {
            features: opencl::Features {
                version,
                little_endian: number(sys::DEVICE_ENDIAN_LITTLE) != 0,
                single_fp_config: number(sys::DEVICE_SINGLE_FP_CONFIG),
                double_fp_config: number(sys::DEVICE_DOUBLE_FP_CONFIG),
                local_memory: number(sys::DEVICE_LOCAL_MEM_SIZE),
            },
            groups: cores * a_core,
            programs: Default::default(),
            kernels: Default::default(),
        }
    }

    /// Whether the device gives a built-in's defined results.
    fn has(&self, builtin: Builtin) -> bool {
        opencl::has(builtin, &self.features)
    }

    /// The types that its conversion knows: all, as it computes on integers alone.
    pub(crate) fn dtypes(&self) -> DTypeSet {
        if self.has(Builtin::Convert) { DTypeSet::ALL } else { DTypeSet::EMPTY }
    }

    fn ready(&self, part: &Part, builtin: Builtin) -> Result<&Ready, Fault> {
        let at = Builtin::ALL.iter().position(|&one| one == builtin).unwrap_or(0);
        let ready = self.kernels[at].get_or_init(|| {
            let object = self.program(part, device::Program::of(builtin))?.kernel(builtin.name())?;
            let max_threads = u32::try_from(work_group_size(part, &object)?).unwrap_or(u32::MAX);
            Ok(Ready { object: Mutex::new(object), max_threads })
        });
        ready.as_ref().map_err(Clone::clone)
    }

    fn program(&self, part: &Part, which: device::Program) -> Result<&Program, Fault> {
        let at = device::Program::ALL.iter().position(|&one| one == which).unwrap_or(0);
        let program = self.programs[at].get_or_init(|| {
            let source: Vec<&[u8]> = opencl::source(which).iter().map(|text| text.as_bytes()).collect();
            let program = Program::from_source(&part.context, &source)?;
            let options = CString::new(opencl::options(&self.features)).unwrap_or_default();
            // A driver that can't build it has failed; the source is known to be good.
            program.build(part.facts.id.raw, &options).map_err(|fault| Fault { kind: FaultKind::Driver, ..fault })?;
            Ok(program)
        });
        program.as_ref().map_err(Clone::clone)
    }
}

/// The arguments of a built-in: its places, each with what may be touched from there on, and its parameters.
type Taken<'a> = ([Option<(Place, u64)>; 2], &'a [u8]);

/// The arguments, if they are as many as it takes and of the right form.
fn split<'a>(builtin: Builtin, args: &[Arg<'a>]) -> Result<Taken<'a>, Fault> {
    let (given, params) = match args.split_last() {
        Some((&Arg::Bytes(params), places)) => (places, params),
        _ => (args, &[][..]),
    };
    let mut places = [None; 2];
    let mut right = given.len() == builtin.places() && params.len() == builtin.params_size();
    for (place, arg) in places.iter_mut().zip(given) {
        match *arg {
            Arg::Place { place: given, len } => *place = Some((given, len)),
            Arg::Bytes(_) | Arg::Local(_) => right = false,
        }
    }
    if right {
        return Ok((places, params));
    }
    let (count, size) = (builtin.places(), builtin.params_size());
    Err(invalid(format!("{builtin} takes {count} places and {size} bytes, not {args:?}")))
}

impl OpenClDevice {
    /// The handle of the built-in of that number, if the device has it.
    pub(crate) fn find_builtin(&self, number: u32) -> Option<Kernel> {
        let builtin = Builtin::from_number(number)?;
        self.part.builtins.has(builtin).then(|| Kernel(number.into()))
    }

    /// The built-in that a handle names.
    pub(crate) fn as_builtin(kernel: Kernel) -> Option<Builtin> {
        u32::try_from(kernel.0).ok().and_then(Builtin::from_number)
    }

    /// Launches a built-in, checked before anything is enqueued (H15).
    ///
    /// # Safety
    /// As for `Device::launch`.
    pub(crate) unsafe fn launch_builtin(
        &self,
        stream: StreamId,
        builtin: Builtin,
        launch: Launch,
        args: &[Arg<'_>],
    ) -> Result<(), Fault> {
        // SAFETY: H1.
        let stream = unsafe { self.stream(stream) }?;
        let ready = self.part.builtins.ready(&self.part, builtin)?;
        let object = ready.object.lock();
        // SAFETY: as this function's caller promises; the kernel's lock is held.
        let plan = unsafe { self.set_builtin(object.raw(), ready, builtin, launch, args) }?;
        let _order = stream.enqueue();
        enqueue(stream, object.raw(), [plan.groups, 1, 1], [plan.threads, 1, 1])
    }

    /// A kernel object of a built-in for one launch that is kept, its arguments set.
    ///
    /// # Safety
    /// As for `Device::launch`.
    pub(crate) unsafe fn own_builtin(
        &self,
        builtin: Builtin,
        launch: Launch,
        args: &[Arg<'_>],
    ) -> Result<(KernelObject, Plan), Fault> {
        let builtins = &self.part.builtins;
        let ready = builtins.ready(&self.part, builtin)?;
        let own = builtins.program(&self.part, device::Program::of(builtin))?.kernel(builtin.name())?;
        // SAFETY: as this function's caller promises; nobody else has the kernel.
        let plan = unsafe { self.set_builtin(own.raw(), ready, builtin, launch, args) }?;
        Ok((own, plan))
    }

    /// Checks the arguments of a built-in and sets them.
    ///
    /// # Safety
    /// H1; nobody else sets arguments of the kernel (C3).
    unsafe fn set_builtin(
        &self,
        kernel: Raw,
        ready: &Ready,
        builtin: Builtin,
        launch: Launch,
        args: &[Arg<'_>],
    ) -> Result<Plan, Fault> {
        let (places, params) = split(builtin, args)?;
        if launch.groups.contains(&0) || launch.threads.contains(&0) {
            return Err(invalid(format!("{:?} groups of {:?} threads", launch.groups, launch.threads)));
        }
        let builtins = &self.part.builtins;
        let (max_threads, groups) = (ready.max_threads.min(self.part.facts.max_threads), builtins.groups);
        let device = device::Device { max_threads, groups, fp64: builtins.features.fp64() };
        let plan = device::plan(builtin, params, device).map_err(|error| match error {
            // The device lacks it, whatever the arguments: somebody else can do it.
            KernelError::NoDouble { .. } => Fault::unsupported("launch").note(error.to_string()),
            _ => invalid(error.to_string()),
        })?;
        let mut arguments = Arguments::new(&self.part, kernel);
        for (at, place) in places.into_iter().flatten().enumerate() {
            // SAFETY: H1.
            unsafe { self.set_place(&mut arguments, builtin, &plan, at, place) }?;
        }
        if !params.is_empty() {
            arguments.value(params)?;
        }
        Ok(plan)
    }

    /// A place is two arguments: the memory from its start, and an offset.
    ///
    /// # Safety
    /// H1.
    unsafe fn set_place(
        &self,
        arguments: &mut Arguments<'_>,
        builtin: Builtin,
        plan: &Plan,
        at: usize,
        (place, len): (Place, u64),
    ) -> Result<(), Fault> {
        let touched = plan.touched[at];
        if len < touched {
            return Err(invalid(format!("{builtin}: {len} bytes where it touches {touched}")));
        }
        // SAFETY: H1.
        let block = unsafe { self.block(place.mem) }?;
        if at == 0 && !(block.addr + place.offset).is_multiple_of(plan.alignment) {
            return Err(invalid(format!("{builtin}: a place that is not aligned to {} bytes", plan.alignment)));
        }
        arguments.block(block)?;
        arguments.value(&place.offset.to_ne_bytes())
    }
}
