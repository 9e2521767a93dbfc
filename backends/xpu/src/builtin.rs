//! The built-in kernels: programs of SPIR-V, built when one is first launched.
//!
//! A built-in's handle is its number: handles of loaded kernels have a generation above 0 in their upper half, so they
//! never meet.

use crate::context::Context;
use crate::device::XpuDevice;
use crate::kernel::{Module, NativeKernel, invalid};
use crate::stream::Stream;
use anyaccel_hal::{Arg, DTypeSet, Fault, FaultKind, Launch, Mem, Place};
use anyaccel_kernels::device::opencl::Features;
use anyaccel_kernels::device::{Device, Plan, Program, opencl, plan, spirv};
use anyaccel_kernels::{Builtin, KernelError};
use anyaccel_kit::Mutex;
use std::fmt;
use std::sync::Arc;

/// Groups that keep a core busy.
const GROUPS: u32 = 16;

/// Element types of the built-in conversion: all, since it is done on integers.
pub(crate) const fn dtypes() -> DTypeSet {
    DTypeSet::ALL
}

/// The kernels of a device that are part of this library. The kernel objects go before their modules.
pub(crate) struct Builtins {
    features: Features,
    /// What a launch is planned for.
    device: Device,
    kernels: Vec<Mutex<Option<NativeKernel>>>,
    modules: Mutex<Vec<(Program, Module)>>,
}

impl fmt::Debug for Builtins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builtins").field("features", &self.features).finish_non_exhaustive()
    }
}

impl Builtins {
    /// `fp32` and `fp64` are the device's floating-point flags, which are the bits of OpenCL's.
    pub(crate) fn new(fp32: u32, fp64: u32, local_memory: u32, max_threads: u32, cores: u32) -> Self {
        let features = Features {
            version: (1, 2),
            little_endian: true,
            single_fp_config: fp32.into(),
            double_fp_config: fp64.into(),
            local_memory: local_memory.into(),
        };
        let highest = Builtin::ALL.iter().map(|builtin| builtin.number()).max().unwrap_or(0);
        Self {
            features,
            device: Device {
                max_threads: max_threads.max(1),
                groups: cores.clamp(1, 1 << 16) * GROUPS,
                fp64: features.fp64(),
            },
            kernels: (0..=highest).map(|_| Mutex::new(None)).collect(),
            modules: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn get(&self, number: u32) -> Option<Builtin> {
        Builtin::from_number(number).filter(|&builtin| opencl::has(builtin, &self.features))
    }

    /// Whether it has the built-in conversion.
    pub(crate) fn converts(&self) -> bool {
        opencl::has(Builtin::Convert, &self.features)
    }

    #[cold]
    fn make(&self, context: &Arc<Context>, builtin: Builtin) -> Result<NativeKernel, Fault> {
        // A driver that can't build it has failed; the code is known to be good.
        let failed = |fault: Fault| match fault.kind {
            FaultKind::Invalid => Fault { kind: FaultKind::Driver, ..fault },
            _ => fault,
        };
        let program = Program::of(builtin);
        let mut modules = self.modules.lock();
        let at = match modules.iter().position(|(one, _)| *one == program) {
            Some(at) => at,
            None => {
                let code = spirv::Module::of(program, self.features.fp64()).code();
                modules.push((program, Module::load(context, code).map_err(failed)?));
                modules.len() - 1
            }
        };
        modules[at].1.kernel(builtin.name()).map_err(failed)
    }

    /// The shape of a launch, and its places with what it touches of them.
    fn plan<'a>(&self, builtin: Builtin, args: &[Arg<'a>]) -> Result<Planned<'a>, Fault> {
        let (given, params) = match args.split_last() {
            Some((&Arg::Bytes(params), places)) => (places, params),
            _ => (args, &[][..]),
        };
        let mut places = [(Place { mem: Mem(0), offset: 0 }, 0); 2];
        let mut fits = given.len() == builtin.places() && params.len() == builtin.params_size();
        for (place, arg) in places.iter_mut().zip(given) {
            match *arg {
                Arg::Place { place: given, len } => *place = (given, len),
                Arg::Bytes(_) | Arg::Local(_) => fits = false,
            }
        }
        if !fits {
            let (count, size) = (builtin.places(), builtin.params_size());
            return Err(invalid(format!("{builtin} takes {count} places and {size} bytes, not {args:?}")));
        }
        let plan = plan(builtin, params, self.device).map_err(|error| match error {
            // The device lacks it, whatever the arguments: somebody else can do it.
            KernelError::NoDouble { .. } => Fault::unsupported("launch").note(error.to_string()),
            _ => invalid(error.to_string()),
        })?;
        for (&(_, given), touched) in places.iter().zip(plan.touched) {
            if touched > given {
                return Err(invalid(format!("{builtin}: {given} bytes where it touches {touched}")));
            }
        }
        Ok(Planned { plan, places, params })
    }
}

/// A launch of a built-in that was found valid.
struct Planned<'a> {
    plan: Plan,
    places: [(Place, u64); 2],
    params: &'a [u8],
}

impl XpuDevice {
    /// Launches a built-in, checked before anything is enqueued (H15).
    ///
    /// # Safety
    /// H1.
    pub(crate) unsafe fn launch_builtin(
        &self,
        stream: &Stream,
        builtin: Builtin,
        launch: Launch,
        args: &[Arg<'_>],
    ) -> Result<(), Fault> {
        if launch.groups.contains(&0) || launch.threads.contains(&0) {
            return Err(invalid(format!("{:?} groups of {:?} threads", launch.groups, launch.threads)));
        }
        let planned = self.builtins.plan(builtin, args)?;
        let count = builtin.places();
        let mut addresses = [0; 2];
        for (address, &(place, len)) in addresses.iter_mut().zip(&planned.places).take(count) {
            // SAFETY: H1, as this function's caller promises.
            *address = unsafe { self.place(place, len, "launch")? };
        }
        if !addresses[0].is_multiple_of(planned.plan.alignment) {
            return Err(invalid(format!("{builtin}: a place that is not aligned to {} bytes", planned.plan.alignment)));
        }
        let mut kernel = self.builtins.kernels[builtin.number() as usize].lock();
        let kernel = match &mut *kernel {
            Some(kernel) => kernel,
            none => none.insert(self.builtins.make(&self.context, builtin)?),
        };
        kernel.set_threads([planned.plan.threads, 1, 1])?;
        for (at, &address) in (0..).zip(&addresses[..count]) {
            kernel.set_address(2 * at, address)?;
            // The offset is in the address.
            kernel.set_bytes(2 * at + 1, &0_u64.to_ne_bytes())?;
        }
        if !planned.params.is_empty() {
            kernel.set_bytes(2 * count as u32, planned.params)?;
        }
        kernel.launch(stream, [planned.plan.groups, 1, 1])
    }
}
