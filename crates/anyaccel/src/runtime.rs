//! The runtime: a kind of device and everything that this process has of it.

use crate::deferred::{DeferKey, Deferred};
use crate::device::{Device, DeviceArg};
use crate::error::{Error, Result};
use crate::fork::{self, Fenced};
use crate::graph::Captures;
use crate::guard::DeviceIndexGuard;
use crate::lifecycle::{Live, Phase, Source};
use crate::linked;
use crate::local;
use crate::memory::MemoryRules;
use crate::plugins;
use crate::random::Seeds;
use crate::raw::Addresses;
use anyaccel_hal::{Driver, Kind};
use std::fmt;
use std::ops::Deref;
use std::panic::Location;
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};

/// What a [`Runtime`] handle points to.
pub(crate) struct Core {
    /// 0 for the process-wide runtime of every generation.
    pub(crate) id: u64,
    pub(crate) epoch: u64,
    pub(crate) global: bool,
    pub(crate) source: Source,
    pub(crate) live: AtomicPtr<Live>,
    pub(crate) early: AtomicPtr<Live>,
    pub(crate) phase: Mutex<Phase>,
    pub(crate) changed: Condvar,
    pub(crate) deferred: Fenced<Deferred>,
    pub(crate) memory: Fenced<Arc<MemoryRules>>,
    pub(crate) captures: Captures,
    pub(crate) seeds: Seeds,
    /// Memory that was given out by address.
    pub(crate) addresses: Fenced<Addresses>,
}

impl Core {
    fn new(id: u64, source: Source) -> Self {
        Self {
            id,
            epoch: fork::birth(),
            global: id == 0,
            source,
            live: AtomicPtr::default(),
            early: AtomicPtr::default(),
            phase: Mutex::new(Phase::Fresh),
            changed: Condvar::new(),
            deferred: Fenced::new(Deferred::default()),
            memory: Fenced::new(Arc::default()),
            captures: Captures::default(),
            seeds: if id == 0 { Seeds::inherit() } else { Seeds::default() },
            addresses: Fenced::new(Addresses::default()),
        }
    }
}

/// The process-wide core is never freed, so references to it cost nothing; others are counted.
#[derive(Clone)]
pub(crate) enum CoreRef {
    Global(&'static Core),
    Own(Arc<Core>),
}

impl Deref for CoreRef {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        match self {
            Self::Global(core) => core,
            Self::Own(core) => core,
        }
    }
}

/// A runtime: one kind of device, its streams, events and memory. A cheap handle; clones name the same runtime.
///
/// The free functions of this crate act on [`Runtime::global`]. [`Runtime::builder`] makes independent ones, which share
/// nothing: handles of one are refused by another. A runtime starts when first needed; see each method.
///
/// ```
/// use anyaccel::Runtime;
/// let runtime = Runtime::builder().backend("host").build()?;
/// assert!(runtime.device_count() >= 1 && !runtime.is_started());
/// let stream = runtime.current_stream(())?; // starts it
/// assert!(runtime.is_started() && stream.query()?);
/// # Ok::<(), anyaccel::Error>(())
/// ```
#[derive(Clone)]
pub struct Runtime {
    pub(crate) core: CoreRef,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("id", &self.core.id)
            .field("kind", &self.core.started().map(|live| live.kind))
            .finish_non_exhaustive()
    }
}

impl PartialEq for Runtime {
    fn eq(&self, other: &Self) -> bool {
        self.same(other)
    }
}

impl Eq for Runtime {}

/// Makes an independent [`Runtime`].
#[derive(Default)]
pub struct RuntimeBuilder {
    backend: Option<String>,
    plugin: Option<PathBuf>,
    driver: Option<Arc<dyn Driver>>,
}

impl fmt::Debug for RuntimeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeBuilder")
            .field("backend", &self.backend)
            .field("plugin", &self.plugin)
            .finish_non_exhaustive()
    }
}

impl RuntimeBuilder {
    /// Uses the backend of that name, `host` say.
    #[must_use]
    pub fn backend(mut self, name: impl Into<String>) -> Self {
        self.backend = Some(name.into());
        self
    }

    /// Uses the vendor's plugin at that absolute path, instead of a backend by its name. The process-wide runtime does not
    /// choose from it: for that see [`load_plugin`](crate::load_plugin).
    #[must_use]
    pub fn plugin(mut self, path: impl Into<PathBuf>) -> Self {
        self.plugin = Some(path.into());
        self
    }

    /// Uses this driver, whatever its kind, whose name can be parsed from then on.
    #[must_use]
    pub fn driver(mut self, driver: Arc<dyn Driver>) -> Self {
        self.driver = Some(driver);
        self
    }

    /// The runtime. Starts nothing. Without a backend or a driver it chooses as the process-wide one does.
    ///
    /// # Errors
    /// [`Error::UnknownBackend`], listing those that exist; [`Error::Plugin`].
    pub fn build(self) -> Result<Runtime> {
        fork::install();
        fork::notice();
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let source = match (self.driver, self.plugin, self.backend) {
            (Some(driver), ..) => {
                linked::name(driver.kind());
                Source::Fixed(Fenced::new(driver))
            }
            (None, Some(path), _) => Source::Fixed(Fenced::new(plugins::used_by_builder(&path)?.driver())),
            (None, None, Some(name)) => match linked::all().into_iter().find(|linked| linked.kind.name() == name) {
                Some(linked) => Source::Fixed(Fenced::new(linked.driver_by_name())),
                None => {
                    let (known, refused) = (linked::kinds(), plugins::refused());
                    return Err(Error::UnknownBackend { name, variable: None, known, refused });
                }
            },
            (None, None, None) => search(),
        };
        let core = Core::new(NEXT.fetch_add(1, Ordering::Relaxed), source);
        Ok(Runtime { core: CoreRef::Own(Arc::new(core)) })
    }
}

fn search() -> Source {
    Source::Search(linked::all().into_iter().map(|linked| (linked.kind, Fenced::new(linked.driver()))).collect())
}

impl Runtime {
    /// The process-wide runtime. In a forked child, a new one.
    #[inline]
    pub fn global() -> Runtime {
        // SAFETY: ROOT is null or a leaked core of this generation; a fork clears it.
        match unsafe { fork::ROOT.load(Ordering::Acquire).as_ref() } {
            Some(core) => Runtime { core: CoreRef::Global(core) },
            None => Self::make_global(),
        }
    }

    #[cold]
    fn make_global() -> Runtime {
        fork::install();
        fork::notice();
        let made = Box::into_raw(Box::new(Core::new(0, search())));
        let root = match fork::ROOT.compare_exchange(std::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: made above and not published.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        };
        // SAFETY: published cores are never freed.
        Runtime { core: CoreRef::Global(unsafe { &*root }) }
    }

    /// Makes an independent runtime.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    pub(crate) fn same(&self, other: &Runtime) -> bool {
        std::ptr::eq(&raw const *self.core, &raw const *other.core)
    }

    pub(crate) fn weak(&self) -> Weak<Core> {
        match &self.core {
            CoreRef::Global(_) => Weak::new(),
            CoreRef::Own(core) => Arc::downgrade(core),
        }
    }

    /// The kind that is in use, or would be used if the runtime started now. Starts nothing, unless the backend's probe
    /// has to.
    pub fn kind(&self) -> Option<Kind> {
        match self.core.started() {
            Some(live) => Some(live.kind),
            None if !self.core.current() => None,
            None => self.core.choose("current_accelerator").ok().flatten().map(|chosen| chosen.driver.kind()),
        }
    }

    /// Whether the runtime has started. Starts nothing.
    pub fn is_started(&self) -> bool {
        self.core.started().is_some()
    }

    /// Whether the current kind has at least one visible device. Never fails, and starts nothing unless the backend's
    /// probe has to. [`torch.accelerator.is_available`](https://pytorch.org/docs/stable/accelerator.html)
    pub fn is_available(&self) -> bool {
        self.count("is_available").is_ok_and(|count| count > 0)
    }

    /// How many devices of the current kind are visible, masks applied; 0 if none. Never fails, and starts nothing
    /// unless the backend's probe has to. Masks are read anew until the runtime starts.
    /// [`torch.accelerator.device_count`](https://pytorch.org/docs/stable/accelerator.html)
    pub fn device_count(&self) -> u32 {
        self.count("device_count").unwrap_or(0)
    }

    fn count(&self, call: &'static str) -> Result<u32> {
        if let Some(live) = self.core.started() {
            return Ok(live.count());
        }
        fork::notice();
        if !self.core.current() {
            return Ok(0);
        }
        Ok(self.core.probed(call)?.map_or(0, |(_, probe)| probe.visible))
    }

    /// The device, without index, of the kind in use. When no kind has a device: of the first kind built in; `None` if
    /// none is. With `check_available`, `None` unless [`Runtime::is_available`]. Starts nothing (with `check_available`,
    /// as `is_available`). `host` and `sim` count only when named.
    /// [`torch.accelerator.current_accelerator`](https://pytorch.org/docs/stable/accelerator.html)
    pub fn current_accelerator(&self, check_available: bool) -> Option<Device> {
        if check_available && !self.is_available() {
            return None;
        }
        self.kind().map(|kind| Device::new(kind, None))
    }

    /// This thread's current device; 0 if it never chose one. Starts nothing.
    /// [`torch.accelerator.current_device_index`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// [`Error::NoAccelerator`] if there is none.
    #[inline]
    pub fn current_device_index(&self) -> Result<u32> {
        if self.core.started().is_none() {
            self.require_device("current_device_index")?;
        }
        Ok(local::device(self.core.key()))
    }

    /// Fails unless there is a device, or was one before a fork.
    #[cold]
    fn require_device(&self, call: &'static str) -> Result<()> {
        let inherited = || self.kind().is_some_and(|kind| fork::inherited(kind).is_some());
        if self.count(call)? > 0 || inherited() { Ok(()) } else { Err(Error::NoAccelerator) }
    }

    /// Makes a device current on this thread. Any negative index changes nothing and starts nothing; else starts.
    /// [`torch.accelerator.set_device_index`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// ```
    /// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
    /// runtime.set_device_index(0)?;
    /// runtime.set_device_index("host:0")?;
    /// assert!(runtime.set_device_index("host").is_err(), "an index is needed");
    /// assert!(runtime.set_device_index(99).is_err());
    /// # Ok::<(), anyaccel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ExpectedIndex`] for an argument without index; [`Error::IndexOutOfRange`], [`Error::WrongKind`]; what
    /// starting reports.
    #[inline]
    pub fn set_device_index<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<()> {
        let device = device.into();
        let named = match device {
            DeviceArg::Index(index) if index < 0 => return Ok(()),
            DeviceArg::Index(_) => true,
            DeviceArg::Current => false,
            DeviceArg::Device(device) => device.index().is_some() || self.kind() != Some(device.kind()),
            DeviceArg::Text(text) => {
                let device: Device = text.parse()?;
                device.index().is_some() || self.kind() != Some(device.kind())
            }
        };
        if !named {
            return Err(Error::ExpectedIndex { got: device.to_string() });
        }
        let call = "set_device_index";
        let ordinal = self.resolve(call, device)?;
        local::exchange_device(self.core.key(), || self.weak(), ordinal);
        Ok(())
    }

    /// Makes a device current until the guard is dropped; `None` changes nothing and starts nothing.
    /// [`torch.accelerator.device_index`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`], also for a negative index; what starting reports.
    #[inline]
    pub fn device_index(&self, index: impl Into<Option<i64>>) -> Result<DeviceIndexGuard> {
        match index.into() {
            None => Ok(DeviceIndexGuard::idle()),
            Some(index) => {
                let ordinal = self.resolve("device_index", DeviceArg::Index(index))?;
                Ok(DeviceIndexGuard::enter(self, ordinal))
            }
        }
    }

    /// Makes a device current on this thread, and returns the one that was. Any negative index changes nothing and starts
    /// nothing; else starts.
    ///
    /// # Errors
    /// As [`Runtime::set_device_index`].
    #[inline]
    pub fn exchange_device_index(&self, index: i64) -> Result<u32> {
        if index < 0 {
            return self.current_device_index();
        }
        let ordinal = self.resolve("exchange_device_index", DeviceArg::Index(index))?;
        Ok(local::exchange_device(self.core.key(), || self.weak(), ordinal))
    }

    /// Starts the runtime unless it has started. Never needed: what touches a device starts it.
    ///
    /// # Errors
    /// [`Error::NoAccelerator`], [`Error::UnknownBackend`], [`Error::Settings`], [`Error::StartFailed`],
    /// [`Error::ForkedChild`].
    pub fn ensure_started(&self) -> Result<()> {
        self.live("ensure_started").map(|_live| ())
    }

    /// The old name of [`Runtime::set_device_index`].
    ///
    /// # Errors
    /// As there.
    #[deprecated(note = "Use `set_device_index` instead.")]
    pub fn set_device_idx<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<()> {
        self.set_device_index(device)
    }

    /// The old name of [`Runtime::current_device_index`].
    ///
    /// # Errors
    /// As there.
    #[deprecated(note = "Use `current_device_index` instead.")]
    pub fn current_device_idx(&self) -> Result<u32> {
        self.current_device_index()
    }

    /// Resolves a device argument and starts the runtime.
    #[inline]
    pub(crate) fn resolve(&self, call: &'static str, device: DeviceArg<'_>) -> Result<u32> {
        match self.resolve_named(call, device)? {
            Some(ordinal) => Ok(ordinal),
            None => Ok(local::device(self.core.key())),
        }
    }

    /// The same for those who look at this thread's state anyway: `None` for its current device.
    #[inline]
    pub(crate) fn resolve_named(&self, call: &'static str, device: DeviceArg<'_>) -> Result<Option<u32>> {
        match (device, self.core.started()) {
            (DeviceArg::Current, Some(_)) => Ok(None),
            (DeviceArg::Index(index), Some(live)) if index >= 0 && index < i64::from(live.count()) => {
                Ok(Some(index as u32))
            }
            _ => self.resolve_slowly(call, device).map(Some),
        }
    }

    #[cold]
    fn resolve_slowly(&self, call: &'static str, device: DeviceArg<'_>) -> Result<u32> {
        let checked = match self.check(call, device) {
            // A range error of a kind without devices: starting tells better why there are none.
            Err(Error::IndexOutOfRange { index, count: Some(0) }) if index >= 0 => Ok(None),
            checked => checked,
        }?;
        let count = self.live(call)?.count();
        let ordinal = match (checked, device) {
            (Some(ordinal), _) => i64::from(ordinal),
            (None, DeviceArg::Index(index)) => index,
            (None, _) => i64::from(local::device(self.core.key())),
        };
        if ordinal < i64::from(count) {
            Ok(ordinal as u32)
        } else {
            Err(Error::IndexOutOfRange { index: ordinal, count: Some(count) })
        }
    }

    /// Checks a device argument as far as that is possible without starting, and returns its index if it names one.
    pub(crate) fn check(&self, call: &'static str, device: DeviceArg<'_>) -> Result<Option<u32>> {
        if self.core.started().is_none() {
            self.check_generation(call, "runtime")?;
        }
        let index = match device {
            DeviceArg::Current => return Ok(None),
            DeviceArg::Index(index) => index,
            DeviceArg::Text(text) => return self.check(call, DeviceArg::Device(text.parse()?)),
            DeviceArg::Device(device) => {
                let current = match self.core.started() {
                    Some(live) => live.kind,
                    None => self.core.choose(call)?.map(|chosen| chosen.driver.kind()).ok_or(Error::NoAccelerator)?,
                };
                if device.kind() != current {
                    return Err(Error::WrongKind { given: device, current });
                }
                match device.index() {
                    None => return Ok(None),
                    Some(index) => i64::from(index),
                }
            }
        };
        let count = match self.core.started() {
            Some(live) => Some(live.count()),
            None => match self.core.choose(call)? {
                None => Some(0),
                Some(chosen) if chosen.driver.fork_safe_probe() => {
                    Some(chosen.probe.unwrap_or_else(|| chosen.driver.probe()).visible)
                }
                Some(_) => None,
            },
        };
        match u32::try_from(index) {
            Ok(ordinal) if count.is_none_or(|count| ordinal < count) => Ok(Some(ordinal)),
            _ => Err(Error::IndexOutOfRange { index, count }),
        }
    }

    /// Runs `call` now if the runtime has started, else once it starts: in program order, exactly once, without locks
    /// held. Without an accelerator the call is dropped. Starts nothing. A deferred call's error is returned, once, by
    /// the call that starts the runtime, as [`Error::Deferred`].
    ///
    /// ```
    /// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
    /// runtime.lazy_call(|runtime| runtime.set_device_index(0))?;
    /// assert_eq!(runtime.pending_calls(), 1);
    /// runtime.current_stream(())?;
    /// assert_eq!(runtime.pending_calls(), 0);
    /// # Ok::<(), anyaccel::Error>(())
    /// ```
    ///
    /// # Errors
    /// The call's own, if it runs now; [`Error::DeferredFull`] beyond [`DEFERRED_LIMIT`](crate::DEFERRED_LIMIT).
    #[track_caller]
    pub fn lazy_call(&self, call: impl FnOnce(&Runtime) -> Result<()> + Send + 'static) -> Result<()> {
        self.defer(None, Location::caller(), call)
    }

    /// The same for a call that overwrites earlier waiting ones with the same key: of those, queued one after another
    /// without a [`Runtime::lazy_call`] between, only the last runs, at its own place.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn lazy_call_keyed(
        &self,
        key: DeferKey,
        call: impl FnOnce(&Runtime) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.defer(Some(key), Location::caller(), call)
    }

    fn defer(
        &self,
        key: Option<DeferKey>,
        at: &'static Location<'static>,
        call: impl FnOnce(&Runtime) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        if self.core.started().is_some() {
            return call(self);
        }
        fork::notice();
        if !self.core.current() {
            return Ok(());
        }
        let Ok(Some(chosen)) = self.core.choose("lazy_call") else { return Ok(()) };
        if fork::refused(&**chosen.driver) || chosen.driver.fork_safe_probe() && chosen.driver.probe().visible == 0 {
            return Ok(());
        }
        match self.core.deferred.push(key, at, Box::new(call))? {
            // The runtime has started meanwhile.
            Some(call) => call(self),
            None => Ok(()),
        }
    }

    /// How many calls wait for the runtime to start.
    pub fn pending_calls(&self) -> usize {
        if self.core.current() { self.core.deferred.len() } else { 0 }
    }
}
