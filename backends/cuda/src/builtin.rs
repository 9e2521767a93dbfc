//! The built-in kernels: programs of PTX.
//!
//! All are loaded when the device is first opened in a process. Loading code may wait for the device, as a driver's documentation
//! of lazy loading says, and a launch must not (H5): the device could be waiting for what the launching thread does next. For
//! the same reason drivers of one process share what is loaded: opening the device once more waits for nothing. The price is
//! paid once a machine, for the vendor's driver keeps what it compiled.
//!
//! A built-in's handle is its number: handles of loaded kernels have a generation above 0 in their upper half, so they
//! never meet.

use crate::context::Context;
use crate::kernel::Module;
use anyaccel_hal::{Arg, DTypeSet, Fault};
use anyaccel_kernels::Builtin;
use anyaccel_kernels::device::{Device, Planned, Program, cuda, planned};
use anyaccel_kit::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use crate::sys::CUfunction;

/// The kernel of this backend that stores a few bytes.
const WRITE: &str = include_str!("write.ptx");
/// The most threads of a group of a built-in, on every card.
const MAX_THREADS: u32 = 1024;

/// Element types of the built-in conversion: all, since it is done on integers.
pub(crate) const fn dtypes() -> DTypeSet {
    DTypeSet::ALL
}

/// The code of this library in one primary context, whoever retains that: loaded once, unloaded with the last device over it.
#[derive(Debug)]
struct Programs {
    /// Of the driver that loaded them.
    context: Arc<Context>,
    modules: Mutex<Vec<Module>>,
    /// By number; `write` at 0. 0: not loaded.
    functions: Vec<AtomicUsize>,
}

/// What is loaded in this process.
static LOADED: std::sync::Mutex<Vec<Weak<Programs>>> = std::sync::Mutex::new(Vec::new());

fn loaded() -> std::sync::MutexGuard<'static, Vec<Weak<Programs>>> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Programs {
    /// Those of a context, which are loaded unless another driver did it. The context is current.
    fn of(context: &Arc<Context>, able: bool) -> Arc<Self> {
        // The last of some may be dropped here, without the lock.
        let known: Vec<Arc<Self>> = loaded().iter().filter_map(Weak::upgrade).collect();
        if let Some(known) = known.into_iter().find(|known| known.serves(context)) {
            return known;
        }
        let highest = Builtin::ALL.iter().map(|builtin| builtin.number()).max().unwrap_or(0);
        let functions = (0..=highest).map(|_| AtomicUsize::new(0)).collect();
        let programs = Arc::new(Self { context: Arc::clone(context), modules: Mutex::new(Vec::new()), functions });
        // What does not load is tried again, and says why, when it is launched.
        let _write = programs.write();
        if able {
            for builtin in Program::ALL.iter().filter_map(|program| program.builtins().next()) {
                let _function = programs.function(builtin);
            }
        }
        let mut all = loaded();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&programs));
        drop(all);
        programs
    }

    fn serves(&self, context: &Context) -> bool {
        self.context.raw == context.raw && !self.context.is_lost()
    }

    /// The context is current.
    #[inline]
    fn function(&self, builtin: Builtin) -> Result<CUfunction, Fault> {
        match self.functions[builtin.number() as usize].load(Ordering::Acquire) {
            0 => {
                let program = Program::of(builtin);
                let names: Vec<(u32, &str)> = program.builtins().map(|one| (one.number(), one.name())).collect();
                self.load(cuda::ptx(program), &names)?;
                Ok(CUfunction(self.functions[builtin.number() as usize].load(Ordering::Acquire)))
            }
            function => Ok(CUfunction(function)),
        }
    }

    /// The context is current.
    #[inline]
    fn write(&self) -> Result<CUfunction, Fault> {
        if self.functions[0].load(Ordering::Acquire) == 0 {
            self.load(WRITE, &[(0, "anyaccel_write")])?;
        }
        Ok(CUfunction(self.functions[0].load(Ordering::Acquire)))
    }

    #[cold]
    fn load(&self, ptx: &str, names: &[(u32, &str)]) -> Result<(), Fault> {
        let mut modules = self.modules.lock();
        if names.iter().all(|&(number, _)| self.functions[number as usize].load(Ordering::Acquire) != 0) {
            return Ok(());
        }
        let module = Module::load(&self.context, ptx.as_bytes())?;
        for &(number, name) in names {
            self.functions[number as usize].store(module.function(name)?.0, Ordering::Release);
        }
        modules.push(module);
        Ok(())
    }
}

/// The functions of a device that are part of this library.
#[derive(Debug)]
pub(crate) struct Builtins {
    /// Whether the device reads their code.
    able: bool,
    /// What a launch is planned for.
    device: Device,
    programs: Arc<Programs>,
}

impl Builtins {
    /// The context is current.
    pub(crate) fn new(context: &Arc<Context>, able: bool, multiprocessors: u32) -> Self {
        Self {
            able,
            device: Device { max_threads: MAX_THREADS, groups: multiprocessors.max(1) * 16, fp64: true },
            programs: Programs::of(context, able),
        }
    }

    pub(crate) fn get(&self, number: u32) -> Option<Builtin> {
        Builtin::from_number(number).filter(|_| self.able)
    }

    /// The native function of a built-in. The context is current.
    #[inline]
    pub(crate) fn function(&self, builtin: Builtin) -> Result<CUfunction, Fault> {
        self.programs.function(builtin)
    }

    /// The function that stores up to 64 bytes. The context is current.
    #[inline]
    pub(crate) fn write(&self) -> Result<CUfunction, Fault> {
        self.programs.write()
    }

    /// The shape of a launch, and its places with what it touches of them.
    pub(crate) fn plan<'a>(&self, builtin: Builtin, args: &[Arg<'a>]) -> Result<Planned<'a>, Fault> {
        planned(builtin, args, self.device).map_err(|error| error.fault("launch"))
    }
}
