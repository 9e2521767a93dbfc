//! The default generators of a runtime's devices.

use super::entropy;
use super::generator::Generator;
use super::seed::Seed;
use super::shared::Snapshot;
use crate::deferred::DeferKey;
use crate::device::DeviceArg;
use crate::error::{Error, Result};
use crate::fork;
use crate::local;
use crate::runtime::Runtime;
use anyaccel_engine::random::{self as engine, RandomError, State};
use anyaccel_hal::Absence;
use std::fmt;
use std::marker::PhantomData;

/// Keys of deferred calls; those of the memory functions are at 0x100. Seeds and states replace a generator whole, so they
/// share a key; an offset needs the seed that was set before it.
const GENERATOR: u32 = 0x200;
const OFFSET: u32 = 0x201;

impl Runtime {
    /// The default generator of a device.
    #[inline]
    pub(super) fn generator(&self, call: &'static str, device: DeviceArg<'_>) -> Result<&Generator> {
        let ordinal = self.resolve(call, device)?;
        let generators = &self.live(call)?.generators;
        let out_of_range = || Error::IndexOutOfRange { index: ordinal.into(), count: Some(generators.len() as u32) };
        generators.get(ordinal as usize).ok_or_else(out_of_range)
    }

    /// Takes the next so many words of the sequence of a device's default generator, for numbers that are drawn elsewhere, and
    /// returns where they begin. May start the runtime.
    ///
    /// # Errors
    /// Those of the device argument and of starting; [`Error::Generator`] if the sequence ends before.
    pub fn take_random<'a>(&self, words: u64, device: impl Into<DeviceArg<'a>>) -> Result<State> {
        self.generator("take_random", device.into())?.take(words)
    }

    /// The default generators of all devices; none where there is no accelerator.
    fn generators(&self, call: &'static str) -> Result<&[Generator]> {
        if self.core.started().is_none() && self.core.current() {
            match self.core.probed(call)? {
                None => return Ok(&[]),
                Some((driver, probe)) if probe.visible == 0 && !fork::refused(&**driver) => {
                    return match probe.absence {
                        Some(Absence::BadVariable { name, value, expected }) => {
                            Err(Error::BadVariable { name, value, expected })
                        }
                        _ => Ok(&[]),
                    };
                }
                Some(_) => {}
            }
        }
        Ok(&self.live(call)?.generators)
    }

    /// The seed of a device's default generator. May start the runtime.
    /// [`torch.accelerator.random.initial_seed`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// Those of the device argument and of starting.
    pub fn initial_seed<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<u64> {
        Ok(self.generator("initial_seed", device.into())?.initial_seed())
    }

    /// The state of a device's default generator. May start the runtime.
    /// [`torch.accelerator.random.get_rng_state`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// Those of the device argument and of starting.
    pub fn get_rng_state<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<State> {
        Ok(self.generator("get_rng_state", device.into())?.state())
    }

    /// The states of all devices' default generators. May start the runtime; with no device it is empty, and starts nothing.
    /// [`torch.accelerator.random.get_rng_state_all`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// What starting reports.
    pub fn get_rng_state_all(&self) -> Result<Vec<State>> {
        Ok(self.generators("get_rng_state_all")?.iter().map(Generator::state).collect())
    }

    /// The offset of a device's default generator, a multiple of 4. May start the runtime.
    ///
    /// # Errors
    /// Those of the device argument and of starting.
    pub fn get_rng_state_offset<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<u64> {
        Ok(self.generator("get_rng_state_offset", device.into())?.offset())
    }

    /// Seeds the default generator of the device that is current on this thread now. Starts nothing: waits for the start,
    /// and is ignored where there is no accelerator.
    /// [`torch.cuda.manual_seed`](https://pytorch.org/docs/stable/generated/torch.cuda.manual_seed.html)
    ///
    /// # Errors
    /// [`Error::Generator`] for a seed that 64 bits can't hold; nothing has changed then. [`Error::DeferredFull`].
    #[track_caller]
    pub fn manual_seed(&self, seed: impl Into<Seed>) -> Result<()> {
        let seed = seed.into().check()?;
        self.replace_generator(Some(local::device(self.core.key())), seeded(seed))
    }

    /// Seeds the default generators of all devices alike. Starts nothing, as [`Runtime::manual_seed`].
    /// [`torch.cuda.manual_seed_all`](https://pytorch.org/docs/stable/generated/torch.cuda.manual_seed_all.html)
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn manual_seed_all(&self, seed: impl Into<Seed>) -> Result<()> {
        let seed = seed.into().check()?;
        self.replace_generator(None, seeded(seed))
    }

    /// Draws a random seed, for the default generator of the device that is current on this thread now, and returns it.
    /// Starts nothing, as [`Runtime::manual_seed`].
    /// [`torch.cuda.seed`](https://pytorch.org/docs/stable/generated/torch.cuda.seed.html)
    ///
    /// # Errors
    /// [`Error::DeferredFull`].
    #[track_caller]
    pub fn seed(&self) -> Result<u64> {
        let drawn = engine::Generator::from_entropy(entropy::bits());
        self.replace_generator(Some(local::device(self.core.key())), Snapshot::of(&drawn))?;
        Ok(drawn.initial_seed())
    }

    /// Draws one random seed for the default generators of all devices, and returns it. Starts nothing, as
    /// [`Runtime::manual_seed`].
    /// [`torch.cuda.seed_all`](https://pytorch.org/docs/stable/generated/torch.cuda.seed_all.html)
    ///
    /// # Errors
    /// [`Error::DeferredFull`].
    #[track_caller]
    pub fn seed_all(&self) -> Result<u64> {
        let drawn = engine::Generator::from_entropy(entropy::bits());
        self.replace_generator(None, Snapshot::of(&drawn))?;
        Ok(drawn.initial_seed())
    }

    /// Sets the state of a device's default generator. Starts nothing, as [`Runtime::manual_seed`].
    /// [`torch.cuda.set_rng_state`](https://pytorch.org/docs/stable/generated/torch.cuda.set_rng_state.html)
    ///
    /// # Errors
    /// Those of the device argument.
    #[track_caller]
    pub fn set_rng_state<'a>(&self, state: State, device: impl Into<DeviceArg<'a>>) -> Result<()> {
        let Some(ordinal) = self.named("set_rng_state", device.into())? else { return Ok(()) };
        self.replace_generator(Some(ordinal), restored(state))
    }

    /// Sets the states of all devices' default generators. Starts nothing, as [`Runtime::manual_seed`].
    /// [`torch.cuda.set_rng_state_all`](https://pytorch.org/docs/stable/generated/torch.cuda.set_rng_state_all.html)
    ///
    /// # Errors
    /// [`Error::Generator`] unless there are as many states as devices; where only starting counts the devices, the call
    /// that starts the runtime reports it.
    #[track_caller]
    pub fn set_rng_state_all(&self, states: &[State]) -> Result<()> {
        match self.known_count("set_rng_state_all") {
            Some(0) => return Ok(()),
            Some(devices) => same_count(states.len(), devices as usize)?,
            None => {}
        }
        let states: Vec<Snapshot> = states.iter().copied().map(restored).collect();
        for (device, &state) in (0..).zip(&states) {
            self.note_waiting(Some(device), state);
        }
        self.lazy_call_keyed(DeferKey { slot: GENERATOR, device: None }, move |runtime| {
            let generators = &runtime.live("set_rng_state_all")?.generators;
            same_count(states.len(), generators.len())?;
            generators.iter().zip(states).for_each(|(generator, state)| generator.restore(state));
            Ok(())
        })
    }

    /// Sets the offset of a device's default generator and leaves its seed. Starts nothing, as [`Runtime::manual_seed`].
    ///
    /// # Errors
    /// [`Error::Generator`] unless it is a multiple of 4 from 0 to 2^63 - 4; those of the device argument.
    #[track_caller]
    pub fn set_rng_state_offset<'a>(&self, offset: impl Into<i128>, device: impl Into<DeviceArg<'a>>) -> Result<()> {
        let (call, offset) = ("set_rng_state_offset", offset.into());
        engine::Generator::new().set_offset(offset)?;
        let Some(ordinal) = self.named(call, device.into())? else { return Ok(()) };
        self.lazy_call_keyed(DeferKey { slot: OFFSET, device: Some(ordinal) }, move |runtime| {
            runtime.generator(call, ordinal.into())?.set_offset(offset)
        })
    }

    /// Restores the states of default generators when the guard that it returns is dropped: those of some devices, or of
    /// all if none are named. May start the runtime; with no device it does nothing.
    /// [`torch.random.fork_rng`](https://pytorch.org/docs/stable/random.html#torch.random.fork_rng)
    ///
    /// ```
    /// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
    /// runtime.manual_seed(1)?;
    /// {
    ///     let _restore = runtime.fork_rng(None)?;
    ///     runtime.manual_seed(2)?;
    /// }
    /// assert_eq!(runtime.initial_seed(())?, 1);
    /// # Ok::<(), anyaccel::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of the device arguments and of starting.
    pub fn fork_rng(&self, devices: Option<&[DeviceArg<'_>]>) -> Result<RngGuard> {
        let call = "fork_rng";
        let generators: Vec<&Generator> = match devices {
            None => self.generators(call)?.iter().collect(),
            Some(devices) => devices.iter().map(|&device| self.generator(call, device)).collect::<Result<_>>()?,
        };
        let before = generators.into_iter().map(|generator| (generator.clone(), generator.snapshot())).collect();
        Ok(RngGuard { before, _not_send: PhantomData })
    }

    /// Replaces the default generator of a device, or of all, now or once the runtime has started.
    #[track_caller]
    fn replace_generator(&self, device: Option<u32>, state: Snapshot) -> Result<()> {
        let call = "manual_seed";
        self.note_waiting(device, state);
        self.lazy_call_keyed(DeferKey { slot: GENERATOR, device }, move |runtime| {
            match device {
                Some(ordinal) => runtime.generator(call, ordinal.into())?.restore(state),
                None => runtime.live(call)?.generators.iter().for_each(|generator| generator.restore(state)),
            }
            Ok(())
        })
    }

    /// Tells children that are forked before the start.
    fn note_waiting(&self, device: Option<u32>, state: Snapshot) {
        if self.core.global && self.core.started().is_none() && self.core.current() {
            self.core.seeds.note(device, state);
        }
    }

    /// The device that the argument of a setter means; `None` if there is nothing to set.
    fn named(&self, call: &'static str, device: DeviceArg<'_>) -> Result<Option<u32>> {
        if self.core.started().is_none() && !self.core.current() {
            return Ok(None);
        }
        match self.check(call, device) {
            Ok(Some(ordinal)) => Ok(Some(ordinal)),
            Ok(None) => Ok(Some(local::device(self.core.key()))),
            // No accelerator, or none that a bad environment lets us find: the first call that starts tells.
            Err(Error::NoAccelerator | Error::UnknownBackend { .. }) => Ok(None),
            Err(Error::IndexOutOfRange { index, count: Some(0) }) if index >= 0 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How many devices there are, if that is known without starting.
    fn known_count(&self, call: &'static str) -> Option<u32> {
        match self.core.started() {
            Some(live) => Some(live.count()),
            None if !self.core.current() => Some(0),
            None => match self.core.choose(call) {
                Err(_) | Ok(None) => Some(0),
                Ok(Some(chosen)) if chosen.driver.fork_safe_probe() => {
                    Some(chosen.probe.unwrap_or_else(|| chosen.driver.probe()).visible)
                }
                Ok(Some(_)) => None,
            },
        }
    }
}

fn seeded(seed: engine::Seed) -> Snapshot {
    let mut generator = engine::Generator::new();
    generator.manual_seed(seed);
    Snapshot::of(&generator)
}

fn restored(state: State) -> Snapshot {
    let mut generator = engine::Generator::new();
    generator.set_state(state);
    Snapshot::of(&generator)
}

fn same_count(given: usize, expected: usize) -> Result<()> {
    if given == expected { Ok(()) } else { Err(RandomError::StateCount { given, expected }.into()) }
}

/// Restores the states of default generators when dropped. From [`Runtime::fork_rng`].
#[must_use = "the states are restored when the guard is dropped"]
pub struct RngGuard {
    before: Vec<(Generator, Snapshot)>,
    _not_send: PhantomData<*const ()>,
}

impl fmt::Debug for RngGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RngGuard").field("devices", &self.before.len()).finish_non_exhaustive()
    }
}

impl Drop for RngGuard {
    fn drop(&mut self) {
        for (generator, state) in &self.before {
            generator.restore(*state);
        }
    }
}
