//! Device memory as the runtime sees it: settings, budgets, statistics, pools, observers.

use crate::buffer::Buffer;
use crate::deferred::DeferKey;
use crate::device::{Device, DeviceArg};
use crate::env;
use crate::error::{Error, Result};
use crate::history::History;
use crate::local;
use crate::port::Port;
use crate::runtime::Runtime;
use anyaccel_engine::alloc::{FractionError, OutOfMemory, PoolId, Scope, Settings, Stats};
use anyaccel_engine::pinned::HostStats;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Keys of deferred calls: those of the other modules begin elsewhere.
const FRACTION: u32 = 0x100;
const BUDGET: u32 = 0x101;

type Observer = dyn Fn(Device, &OutOfMemory) + Send + Sync;

/// What holds for all devices of a runtime, before and after they are opened.
#[derive(Default)]
pub(crate) struct MemoryRules {
    settings: Mutex<Option<Settings>>,
    observers: Mutex<Vec<Arc<Observer>>>,
    pub(crate) history: History,
}

impl MemoryRules {
    /// Takes the settings of the environment, unless some were set already.
    pub(crate) fn read_environment(&self) -> Result<()> {
        let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        if settings.is_none() {
            *settings = Some(Settings::from_env(env::read).map_err(Error::Settings)?);
        }
        Ok(())
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
    }

    /// Prepares a device that was opened just now.
    pub(crate) fn greet(self: &Arc<Self>, port: &Arc<Port>) {
        let (rules, device, fraction) = (Arc::clone(self), port.device, self.settings().per_process_memory_fraction);
        // The device has the cache that has this.
        let owner = Arc::downgrade(port);
        port.cache.observe_out_of_memory(move |report| {
            let Some(port) = owner.upgrade() else { return };
            let report = &port.in_public_names(report.clone());
            let observers = rules.observers.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for observer in observers {
                let told = std::panic::AssertUnwindSafe(|| observer(device, report));
                // One that panics takes neither the others nor the allocation's own error with it.
                let _contained = std::panic::catch_unwind(told);
            }
        });
        // Checked when the settings were parsed.
        let _in_range = port.cache.set_fraction(fraction);
    }
}

/// The statistics of a device's memory: empty while the runtime has not started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats(Option<Box<Stats>>);

impl MemoryStats {
    /// Whether there is nothing to tell, since the runtime has not started.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The counters by name of field.
    pub fn counters(&self) -> Option<&Stats> {
        self.0.as_deref()
    }

    /// The value of a flat key, `allocated_bytes.all.current` say.
    pub fn get(&self, key: &str) -> Option<i64> {
        self.0.as_ref()?.flat().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// All flat keys with their values, sorted by key.
    pub fn flat(&self) -> Vec<(&'static str, i64)> {
        self.0.as_ref().map_or(Vec::new(), |stats| stats.flat().collect())
    }
}

/// The statistics of a device's pinned memory: empty while the runtime has not started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostMemoryStats(Option<Box<HostStats>>);

impl HostMemoryStats {
    /// Whether there is nothing to tell, since the runtime has not started.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The counters by name of field.
    pub fn counters(&self) -> Option<&HostStats> {
        self.0.as_deref()
    }

    /// The value of a flat key, `allocated_bytes.current` say.
    pub fn get(&self, key: &str) -> Option<i64> {
        self.flat().into_iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// All flat keys with their values, sorted by key; times in microseconds.
    pub fn flat(&self) -> Vec<(&'static str, i64)> {
        self.0.as_ref().map_or(Vec::new(), |stats| stats.flat().to_vec())
    }
}

impl Runtime {
    /// The open device that an argument names, for functions that never start anything.
    fn open_port(&self, call: &'static str, device: DeviceArg<'_>) -> Result<Option<&Arc<Port>>> {
        let Some(live) = self.core.running() else {
            if self.core.current() {
                self.check(call, device)?;
            }
            return Ok(None);
        };
        let ordinal = self.resolve(call, device)?;
        Ok(live.open_port(ordinal))
    }

    /// The counters of a device's memory. Starts nothing: empty while the runtime has not started.
    /// [`torch.accelerator.memory_stats`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// Those of the device argument.
    pub fn memory_stats<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<MemoryStats> {
        let port = self.open_port("memory_stats", device.into())?;
        Ok(match port {
            Some(port) => MemoryStats(Some(Box::new(port.cache.stats()))),
            None if self.core.running().is_some() => {
                MemoryStats(Some(Box::new(Stats { max_split_size: -1, ..Stats::default() })))
            }
            None => MemoryStats(None),
        })
    }

    fn statistic(&self, call: &'static str, device: DeviceArg<'_>, of: impl FnOnce(&Port) -> u64) -> Result<u64> {
        Ok(self.open_port(call, device)?.map_or(0, |port| of(port)))
    }

    /// Bytes in the hands of users now. Starts nothing; 0 while the runtime has not started.
    /// [`torch.accelerator.memory_allocated`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// Those of the device argument.
    pub fn memory_allocated<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<u64> {
        self.statistic("memory_allocated", device.into(), |port| port.cache.allocated())
    }

    /// The most bytes that were in the hands of users since the start or the last reset. Starts nothing; 0 while the
    /// runtime has not started.
    /// [`torch.accelerator.max_memory_allocated`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// Those of the device argument.
    pub fn max_memory_allocated<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<u64> {
        self.statistic("max_memory_allocated", device.into(), |port| peak(&port.cache.stats().allocated_bytes))
    }

    /// Bytes taken from the device now, used or kept for reuse. Starts nothing; 0 while the runtime has not started.
    /// [`torch.accelerator.memory_reserved`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// Those of the device argument.
    pub fn memory_reserved<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<u64> {
        self.statistic("memory_reserved", device.into(), |port| port.cache.reserved())
    }

    /// The most bytes that were taken from the device since the start or the last reset. Starts nothing; 0 while the
    /// runtime has not started.
    /// [`torch.accelerator.max_memory_reserved`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// Those of the device argument.
    pub fn max_memory_reserved<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<u64> {
        self.statistic("max_memory_reserved", device.into(), |port| peak(&port.cache.stats().reserved_bytes))
    }

    /// The counters of pinned host memory for a device. Starts nothing: empty while the runtime has not started.
    /// [`torch.cuda.host_memory_stats`](https://pytorch.org/docs/stable/generated/torch.cuda.memory.host_memory_stats.html)
    ///
    /// # Errors
    /// Those of the device argument.
    pub fn host_memory_stats<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<HostMemoryStats> {
        let port = self.open_port("host_memory_stats", device.into())?;
        let started = self.core.running().is_some();
        Ok(HostMemoryStats(match port {
            Some(port) => {
                // Counts then include what has ended since the cache last looked; a driver that fails leaves them as they
                // are, and a host function calls none.
                let _looked = if local::in_host_fn() { Ok(()) } else { port.host.poll() };
                Some(Box::new(port.host.stats()))
            }
            None => started.then(Box::default),
        }))
    }

    /// Sets every peak of pinned memory to its current value. Starts nothing.
    ///
    /// # Errors
    /// Those of the device argument.
    pub fn reset_peak_host_memory_stats<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<()> {
        if let Some(port) = self.open_port("reset_peak_host_memory_stats", device.into())? {
            port.host.reset_peaks();
        }
        Ok(())
    }

    /// Sets the accumulated counters of pinned memory to 0. Starts nothing.
    ///
    /// # Errors
    /// Those of the device argument.
    pub fn reset_accumulated_host_memory_stats<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<()> {
        if let Some(port) = self.open_port("reset_accumulated_host_memory_stats", device.into())? {
            port.host.reset_accumulated();
        }
        Ok(())
    }

    /// Sets every peak to its current value. Starts nothing.
    /// [`torch.accelerator.reset_peak_memory_stats`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// Those of the device argument.
    pub fn reset_peak_memory_stats<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<()> {
        if let Some(port) = self.open_port("reset_peak_memory_stats", device.into())? {
            port.cache.reset_peak_stats();
        }
        Ok(())
    }

    /// Sets `allocated`, `freed` and the `num_*` counters to 0. Starts nothing.
    /// [`torch.accelerator.reset_accumulated_memory_stats`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// Those of the device argument.
    pub fn reset_accumulated_memory_stats<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<()> {
        if let Some(port) = self.open_port("reset_accumulated_memory_stats", device.into())? {
            port.cache.reset_accumulated_stats();
        }
        Ok(())
    }

    /// The statistics as a table for people, with what the device says of its free memory. Starts nothing.
    ///
    /// # Errors
    /// Those of the device argument; [`Error::InsideHostFunction`].
    pub fn memory_summary<'a>(&self, device: impl Into<DeviceArg<'a>>, abbreviated: bool) -> Result<String> {
        let call = "memory_summary";
        if local::in_host_fn() {
            return Err(Error::InsideHostFunction { call });
        }
        Ok(match self.open_port(call, device.into())? {
            Some(port) => port.cache.memory_summary(abbreviated),
            None => "No memory was taken from the device yet.\n".to_owned(),
        })
    }

    /// Limits what this process takes from a device to a fraction of its memory: `floor(fraction x total)` bytes; 1.0 is
    /// no limit. Starts nothing: applied once the runtime starts.
    ///
    /// # Errors
    /// [`Error::Fraction`] outside of 0 to 1; those of the device argument.
    #[track_caller]
    pub fn set_per_process_memory_fraction<'a>(&self, fraction: f64, device: impl Into<DeviceArg<'a>>) -> Result<()> {
        let call = "set_per_process_memory_fraction";
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::Fraction(FractionError(fraction)));
        }
        self.limit(call, FRACTION, device.into(), move |port| {
            port.cache.set_fraction(fraction).map_err(Error::Fraction)
        })
    }

    /// Limits what this process takes from a device to a number of bytes; `None` lifts it. A segment is asked of the
    /// driver if and only if reserved bytes + its size <= the budget. Starts nothing: applied once the runtime starts.
    ///
    /// # Errors
    /// Those of the device argument.
    #[track_caller]
    pub fn set_memory_budget<'a>(&self, bytes: Option<u64>, device: impl Into<DeviceArg<'a>>) -> Result<()> {
        self.limit("set_memory_budget", BUDGET, device.into(), move |port| {
            port.cache.set_budget(bytes);
            Ok(())
        })
    }

    #[track_caller]
    fn limit(
        &self,
        call: &'static str,
        slot: u32,
        device: DeviceArg<'_>,
        apply: impl FnOnce(&Port) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let ordinal = match self.check(call, device) {
            Ok(Some(ordinal)) => ordinal,
            Ok(None) => local::device(self.core.key()),
            // Without an accelerator there is nothing to limit.
            Err(Error::NoAccelerator) => return Ok(()),
            Err(error) => return Err(error),
        };
        self.lazy_call_keyed(DeferKey { slot, device: Some(ordinal) }, move |runtime| {
            apply(runtime.port(call, DeviceArg::Index(ordinal.into()))?)
        })
    }

    /// The settings of the device caches: those of `ANYACCEL_ALLOC_CONF`, else `PYTORCH_CUDA_ALLOC_CONF`, else
    /// `PYTORCH_ALLOC_CONF`, unless [`Runtime::set_allocator_settings`] was called. Starts nothing.
    ///
    /// # Errors
    /// [`Error::Settings`] for an environment that can't be used.
    pub fn allocator_settings(&self) -> Result<Settings> {
        self.core.memory.read_environment()?;
        Ok(self.core.memory.settings())
    }

    /// Puts other settings in force, `max_split_size_mb:128,expandable_segments:True` say: parsed whole, then applied
    /// whole, to all devices. Starts nothing.
    ///
    /// # Errors
    /// [`Error::Settings`], naming key and value; the settings in force stay as they were.
    pub fn set_allocator_settings(&self, text: &str) -> Result<()> {
        let settings = Settings::parse(text).map_err(Error::Settings)?;
        *self.core.memory.settings.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings.clone());
        if let Some(live) = self.core.running() {
            live.open_ports().for_each(|port| port.set_settings(&settings));
        }
        Ok(())
    }

    /// Tells `observer` of every request for device memory that fails, before its caller gets the error: device, request,
    /// total, free and what the cache holds. Runs on the failing thread, without locks; a panic in it ends there. May be
    /// attached before anything starts; stays for the runtime's life, so one that holds a clone of its
    /// runtime keeps it for good: hold a weak reference of your own instead.
    pub fn attach_out_of_memory_observer(&self, observer: impl Fn(Device, &OutOfMemory) + Send + Sync + 'static) {
        self.core.memory.observers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(observer));
    }

    /// A private pool of device memory on a device: buffers made inside its scope share no segment with others. May start
    /// the runtime.
    ///
    /// # Errors
    /// Those of the device argument and of starting.
    pub fn mem_pool<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<MemPool> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let port = Arc::clone(self.port("MemPool", device.into())?);
        let id = PoolId(0, NEXT.fetch_add(1, Ordering::Relaxed));
        // A scope of nobody's makes the pool and its first user, this value.
        port.cache.begin_pool(id, Scope::Stream(u64::MAX)).map_err(Error::Pool)?;
        port.cache.end_pool(id).map_err(Error::Pool)?;
        Ok(MemPool { runtime: self.clone(), port, id })
    }
}

fn peak(stat: &anyaccel_engine::alloc::PoolStat) -> u64 {
    stat.all.peak
}

/// A private pool of device memory. Its unused memory goes back to the device at the next
/// [`Runtime::empty_cache`] after the pool was dropped; buffers live on.
/// [`torch.cuda.MemPool`](https://pytorch.org/docs/stable/generated/torch.cuda.memory.MemPool.html)
///
/// ```
/// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
/// let pool = runtime.mem_pool(())?;
/// {
///     let _scope = pool.enter()?;
///     let _buffer = runtime.alloc(1 << 20)?; // from the pool
/// }
/// let _other = runtime.alloc(1 << 20)?; // not from the pool
/// # Ok::<(), anyaccel::Error>(())
/// ```
pub struct MemPool {
    runtime: Runtime,
    port: Arc<Port>,
    id: PoolId,
}

impl fmt::Debug for MemPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemPool").field("id", &self.id()).field("device", &self.port.device).finish()
    }
}

impl MemPool {
    /// Its id.
    pub fn id(&self) -> (u64, u64) {
        (self.id.0, self.id.1)
    }

    /// Its device.
    pub fn device(&self) -> Device {
        self.port.device
    }

    /// Takes this thread's allocations on the pool's device until the guard is dropped. Of nested pools the innermost
    /// takes them.
    ///
    /// # Errors
    /// [`Error::Pool`] if the pool is entered already; [`Error::StaleHandle`].
    pub fn enter(&self) -> Result<MemPoolGuard<'_>> {
        self.runtime.check_handle("MemPool.enter", "memory pool")?;
        self.port.cache.begin_pool(self.id, Scope::Thread(std::thread::current().id())).map_err(Error::Pool)?;
        Ok(MemPoolGuard { pool: self, _not_send: PhantomData })
    }

    /// [`MemPool::enter`] for callers that can't keep a guard: lasts until [`MemPool::end`], or as long as the pool is kept.
    ///
    /// # Errors
    /// As there.
    pub fn begin(&self) -> Result<()> {
        self.enter().map(std::mem::forget)
    }

    /// Ends the scope that [`MemPool::begin`] began.
    ///
    /// # Errors
    /// [`Error::Pool`] if the pool has no scope; [`Error::StaleHandle`].
    pub fn end(&self) -> Result<()> {
        self.runtime.check_handle("MemPool.end", "memory pool")?;
        self.port.cache.end_pool(self.id).map_err(Error::Pool)?;
        self.port.cache.release_pool(self.id).map_err(Error::Pool)
    }
}

impl Drop for MemPool {
    fn drop(&mut self) {
        if self.runtime.core.current() {
            // The pool has this user, so this can't fail.
            let _released = self.port.cache.release_pool(self.id);
        }
    }
}

/// While it lives, this thread's allocations come from a [`MemPool`].
#[must_use = "the pool takes allocations only while the guard lives"]
pub struct MemPoolGuard<'a> {
    pool: &'a MemPool,
    _not_send: PhantomData<*const ()>,
}

impl fmt::Debug for MemPoolGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemPoolGuard").field(self.pool).finish()
    }
}

impl Drop for MemPoolGuard<'_> {
    fn drop(&mut self) {
        if self.pool.runtime.core.current() {
            // Entering made a scope and a user: neither call can fail.
            let _ended = self.pool.port.cache.end_pool(self.pool.id);
            let _released = self.pool.port.cache.release_pool(self.pool.id);
        }
    }
}

impl Buffer {
    /// The bytes that the buffer really takes: its length, rounded by the cache.
    pub fn capacity(&self) -> u64 {
        self.block().map_or(0, |block| block.capacity())
    }
}
