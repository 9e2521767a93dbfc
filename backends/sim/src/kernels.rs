//! Kernels: functions of this process, and the built-in ones.

use crate::counters::{Call, Method};
use crate::device::SimDevice;
use crate::state::{Debris, KernelState, State};
use crate::stream::{Code, Item, Work};
use anyaccel_hal::{Arg, Fault, Format, HostKernel, Kernel, KernelSource, Kernels, KernelsLimits, Launch};
use std::sync::Arc;

/// The limits of a launch.
const LIMITS: KernelsLimits =
    KernelsLimits { max_threads: 1024, max_groups: [i32::MAX as u32, 65535, 65535], max_shared: 48 << 10 };

impl State {
    /// What a live kernel of that device runs.
    pub(crate) fn code(&mut self, method: Method, kernel: Kernel, ordinal: u32) -> Result<Code, Fault> {
        match self.kernels.get(&kernel) {
            Some(state) if state.ordinal == ordinal => Ok(state.code.clone()),
            _ => Err(self.unknown(method, "kernel", kernel.0, ordinal)),
        }
    }

    /// Launches of a kernel that have not ended.
    fn launches_of(&self, kernel: &Arc<HostKernel>) -> usize {
        let is_its = |item: &&Item| match &item.work {
            Work::Launch { code: Code::Host(code), .. } => Arc::ptr_eq(code, kernel),
            _ => false,
        };
        self.streams.values().flat_map(|stream| stream.queue.iter()).filter(is_its).count()
    }

    fn add_kernel(&mut self, ordinal: u32, code: Code) -> Kernel {
        let kernel = Kernel(self.handles.give(ordinal));
        self.kernels.insert(kernel, KernelState { ordinal, code });
        kernel
    }

    /// The handle of a built-in: the same for the device's whole life (H16).
    pub(crate) fn builtin(&mut self, ordinal: u32, number: u32) -> Option<Kernel> {
        if !self.device(ordinal).config.capabilities.builtins || !crate::builtins::exists(number) {
            return None;
        }
        if let Some(kernel) = self.device(ordinal).builtins.get(&number) {
            return Some(*kernel);
        }
        let kernel = self.add_kernel(ordinal, Code::Builtin(number));
        self.device(ordinal).builtins.insert(number, kernel);
        Some(kernel)
    }
}

/// H15: what can be checked of a launch.
pub(crate) fn check(launch: &Launch, args: &[Arg<'_>]) -> Result<(), Fault> {
    let refuse = |note: String| Err(Fault::invalid(Method::Launch.name(), note));
    let product = |sizes: [u32; 3]| sizes.iter().map(|&size| u64::from(size)).try_fold(1u64, u64::checked_mul);
    let [groups, threads] = [launch.groups, launch.threads];
    if groups.iter().zip(LIMITS.max_groups).any(|(&count, most)| count == 0 || count > most) {
        return refuse(format!("{groups:?} groups: at least 1 and at most {:?}", LIMITS.max_groups));
    }
    match product(threads) {
        Some(count) if (1..=u64::from(LIMITS.max_threads)).contains(&count) => {}
        _ => {
            return refuse(format!(
                "{threads:?} threads a group: at least 1 and at most {} in all",
                LIMITS.max_threads
            ));
        }
    }
    let local = args.iter().map(|arg| if let Arg::Local(len) = arg { *len as u64 } else { 0 });
    let shared = local.fold(u64::from(launch.shared), u64::saturating_add);
    if shared > u64::from(LIMITS.max_shared) {
        return refuse(format!("{shared} bytes of group-local memory, at most {}", LIMITS.max_shared));
    }
    Ok(())
}

impl Kernels for SimDevice {
    fn limits(&self) -> KernelsLimits {
        LIMITS
    }

    fn formats(&self) -> &[Format] {
        &[Format::HostFn]
    }

    unsafe fn load(&self, source: KernelSource<'_>) -> Result<Kernel, Fault> {
        // Outside of the closure: a kernel that is refused is dropped without the lock.
        let mut source = Some(source);
        self.call(Call::new(Method::Load), |state, ordinal| match source.take() {
            Some(KernelSource::Host(kernel)) => Ok(state.add_kernel(ordinal, Code::Host(Arc::new(kernel)))),
            other => {
                source = other;
                Err(Fault::unsupported(Method::Load.name()))
            }
        })
    }

    unsafe fn unload(&self, kernel: Kernel) {
        self.call_infallible(Call::new(Method::Unload).amount(kernel.0), |state, ordinal| {
            match state.code(Method::Unload, kernel, ordinal) {
                Ok(Code::Host(code)) => {
                    let pending = state.launches_of(&code);
                    if pending > 0 {
                        let note = format!("kernel {} unloaded under {pending} launches", state.named(kernel.0));
                        state.violations.note("H4", Method::Unload.name(), note);
                    }
                    state.kernels.remove(&kernel);
                    state.debris.push(Debris::Kernel(code));
                }
                Ok(Code::Builtin(_)) => {
                    let note = format!("built-in kernel {} unloaded", state.named(kernel.0));
                    state.violations.note("H1", Method::Unload.name(), note);
                }
                Err(_) => {}
            }
        });
    }
}
