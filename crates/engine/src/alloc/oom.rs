//! What a failed request says, and who is told.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::arena::{Life, NIL};
use super::cache::DeviceCache;
use super::heap::Heap;
use super::miss::Request;
use super::policy::{MAX_REQUEST, MIB, share};
use super::ports::PortError;

/// Is told of every request that fails for lack of memory, before its caller is.
pub(super) type Observer = dyn Fn(&OutOfMemory) + Send + Sync;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AllocError {
    /// There is no room.
    #[error("{0}")]
    OutOfMemory(Box<OutOfMemory>),
    /// 2^60 bytes or more: no device has that much, and sums of such sizes overflow.
    #[error(
        "device {device}: {requested} bytes were requested, but a request must be below {MAX_REQUEST} (1 EiB): \
         was a negative size converted to an unsigned one?"
    )]
    TooLarge {
        /// Ordinal of the device.
        device: u32,
        /// Bytes asked for.
        requested: u64,
    },
    /// A call to the device failed, for another reason than lack of memory.
    #[error("device {device}: {call} failed: {fault}")]
    Port {
        /// Ordinal of the device.
        device: u32,
        /// Which port method.
        call: &'static str,
        /// What it said.
        fault: PortError,
    },
    /// The cache has been closed.
    #[error("device {device}: its allocator has been closed")]
    Closed {
        /// Ordinal of the device.
        device: u32,
    },
    /// More than 2^27 blocks.
    #[error("device {device}: more than 134 million blocks are in use; the allocator can't name another one")]
    TooManyBlocks {
        /// Ordinal of the device.
        device: u32,
    },
}

/// What stood in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The device had no room.
    Device,
    /// The memory fraction.
    Fraction,
    /// The budget in bytes.
    Budget,
    /// `throw_on_cudamalloc_oom`.
    Rejected,
}

/// The block that keeps the largest free run from going back to the device or from growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Its address.
    pub addr: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The stream it was allocated for, by the number that the cache knows it by; a report that was given names of its
    /// own ([`OutOfMemory::with_streams`]) has those, and `None` where there is none.
    pub stream: Option<u64>,
    /// Its user gave it back, but a stream still uses it.
    pub pending: bool,
}

/// A request that could not be served: what was asked, what was there, what to try. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Ordinal of the device.
    pub device: u32,
    /// What the caller asked for.
    pub requested: u64,
    /// What the device was, or would have been, asked for.
    pub segment: u64,
    /// The stream of the request, named as in [`Pin::stream`].
    pub stream: Option<u64>,
    /// What stood in the way.
    pub cause: Cause,
    /// Memory of the device.
    pub total: u64,
    /// Free memory of the device, where it can tell.
    pub free: Option<u64>,
    /// In the hands of users.
    pub allocated: u64,
    /// Given back by users but still used by a stream.
    pub pending: u64,
    /// Taken from the device.
    pub reserved: u64,
    /// Part of `reserved` that belongs to private pools.
    pub private: u64,
    /// Reserved but neither allocated nor pending.
    pub unused: u64,
    /// The limit on `reserved` in force.
    pub cap: Option<u64>,
    /// The largest free run, wherever it lies.
    pub largest_free: u64,
    /// The block beside that run, if one keeps it from going back to the device.
    pub pinned_by: Option<Pin>,
    /// A capture was under way, so nothing was given back.
    pub capturing: bool,
    /// What to try, in the order of promise.
    pub advice: Vec<String>,
}

/// Bytes as people read them.
pub(super) fn human(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2} {}", UNITS[unit])
}

impl OutOfMemory {
    /// The report with other names for the streams: those that a user knows.
    #[must_use]
    pub fn with_streams(mut self, name: impl Fn(u64) -> Option<u64>) -> Self {
        self.stream = self.stream.and_then(&name);
        if let Some(pin) = &mut self.pinned_by {
            pin.stream = pin.stream.and_then(&name);
        }
        self
    }

    /// The sentences, about a device by that name.
    ///
    /// # Errors
    /// The formatter's.
    pub fn write(&self, f: &mut fmt::Formatter<'_>, device: fmt::Arguments<'_>) -> fmt::Result {
        write!(f, "{device} is out of memory: {} were requested", human(self.requested))?;
        if let Some(stream) = self.stream {
            write!(f, " on stream {stream}")?;
        }
        write!(f, ", for which a segment of {} was needed. ", human(self.segment))?;
        match (self.cause, self.cap) {
            (Cause::Fraction, Some(cap)) => write!(f, "The memory fraction allows {} in all. ", human(cap))?,
            (Cause::Budget, Some(cap)) => write!(f, "The budget allows {} in all. ", human(cap))?,
            (Cause::Rejected, _) => f.write_str("throw_on_cudamalloc_oom refused it before anything was freed. ")?,
            _ => {}
        }
        write!(f, "The device has {}", human(self.total))?;
        if let Some(free) = self.free {
            write!(f, ", of which {} are free", human(free))?;
        }
        write!(f, ". This process holds {}: {} in use", human(self.reserved), human(self.allocated))?;
        if self.pending > 0 {
            write!(f, ", {} freed but still used by a stream", human(self.pending))?;
        }
        write!(f, ", {} reserved but unused", human(self.unused))?;
        if self.private > 0 {
            write!(f, " ({} of all this in private pools)", human(self.private))?;
        }
        write!(f, ". The largest free run is {}", human(self.largest_free))?;
        if let Some(pin) = self.pinned_by {
            let state = if pin.pending { "a freed block that a stream still uses" } else { "a live block" };
            write!(f, ", pinned by {state} of {} at {:#x}", human(pin.size), pin.addr)?;
            match pin.stream {
                Some(stream) => write!(f, " on stream {stream}")?,
                None => f.write_str(", allocated on a stream that is gone")?,
            }
        }
        f.write_str(".")?;
        for advice in &self.advice {
            write!(f, " {advice}")?;
        }
        Ok(())
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, format_args!("device {}", self.device))
    }
}

impl Heap {
    pub(super) fn out_of_memory(&self, device: u32, request: &Request, cause: Cause) -> OutOfMemory {
        let allocated = self.counters.allocated_now();
        let pending = self.counters.pending_now();
        let reserved = self.counters.reserved_now();
        let cap = match cause {
            Cause::Fraction => self.limit,
            Cause::Budget => self.budget,
            Cause::Rejected => Some(share(self.settings.per_process_memory_fraction, self.total)),
            Cause::Device => self.cap(),
        };
        let (mut largest_free, mut at) = (0, NIL);
        for (id, block) in self.arena.iter().filter(|(_, b)| b.life == Life::Free) {
            if block.size > largest_free {
                (largest_free, at) = (block.size, id);
            }
        }
        let mut report = OutOfMemory {
            device,
            requested: request.size,
            segment: request.segment,
            stream: Some(request.stream),
            cause,
            total: self.total,
            free: None,
            allocated,
            pending,
            reserved,
            private: self.pools[1..].iter().map(|p| p.reserved).sum(),
            unused: reserved.saturating_sub(allocated + pending),
            cap,
            largest_free,
            pinned_by: self.pin(at),
            capturing: self.capturing(),
            advice: Vec::new(),
        };
        report.advice = self.advice(&report, request);
        report
    }

    /// The used neighbour of a free block.
    fn pin(&self, id: u32) -> Option<Pin> {
        if id == NIL {
            return None;
        }
        [self.arena[id].prev, self.arena[id].next].into_iter().filter(|&n| n != NIL).find_map(|n| {
            let block = &self.arena[n];
            matches!(block.life, Life::Active | Life::Pending).then(|| Pin {
                addr: block.addr,
                size: block.size,
                stream: Some(self.shelves[block.shelf as usize].stream),
                pending: block.life == Life::Pending,
            })
        })
    }

    fn advice(&self, report: &OutOfMemory, request: &Request) -> Vec<String> {
        let mut out = Vec::new();
        match report.cause {
            Cause::Fraction => out.push("Raise the memory fraction, which is in the way.".to_owned()),
            Cause::Budget => out.push("Raise the budget, which is in the way.".to_owned()),
            Cause::Rejected => {
                out.push(
                    "Without throw_on_cudamalloc_oom:True unused segments would be freed and the request tried again."
                        .to_owned(),
                );
            }
            Cause::Device => {}
        }
        if report.capturing {
            out.push(
                "A capture is under way, during which nothing is freed: call empty_cache before it begins.".to_owned(),
            );
        }
        if report.pending >= request.rounded {
            out.push(format!("{} wait for the streams that use them: synchronize those.", human(report.pending)));
        }
        if report.unused >= request.rounded {
            if report.largest_free >= request.rounded && !self.is_own(request) {
                out.push(
                    "A free run that is large enough belongs to another stream or pool: allocate on the stream that \
                     freed it."
                        .to_owned(),
                );
                return out;
            }
            if !self.settings.expandable_segments && self.can_grow {
                out.push(
                    "The unused memory is in pieces: expandable_segments:True lets segments grow instead.".to_owned(),
                );
            } else if self.settings.expandable_segments && !self.can_grow {
                out.push(
                    "expandable_segments:True has no effect, since this backend can't map memory piece by piece."
                        .to_owned(),
                );
            }
            if self.settings.max_split_size.is_none() && !self.rules.growable {
                let size = (request.rounded / MIB).next_power_of_two().max(self.rules.large_segment / MIB);
                out.push(format!("max_split_size_mb:{size} would keep larger blocks whole."));
            }
        } else if report.free.is_none_or(|free| free < report.segment) && report.cause == Cause::Device {
            out.push("The memory is in use: free something, or ask for less at once.".to_owned());
        }
        out
    }

    /// Is there a large enough free block on the request's own shelf (which a split limit then kept from it)?
    fn is_own(&self, request: &Request) -> bool {
        self.shelves[request.shelf as usize].at_least(&self.arena, request.rounded) != NIL
    }
}

impl DeviceCache {
    /// Tells `observer` of every request that fails for lack of memory, before the caller gets the error. It runs on the
    /// failing thread, without locks; it may use the cache. If it panics, the panic ends there.
    pub fn observe_out_of_memory(&self, observer: impl Fn(&OutOfMemory) + Send + Sync + 'static) {
        self.observers.lock().push(Arc::new(observer));
    }

    pub(super) fn tell_observers(&self, mut report: OutOfMemory) -> Box<OutOfMemory> {
        report.free = self.ports.segments.memory().free;
        let observers = self.observers.lock().clone();
        for observer in observers {
            let _ = catch_unwind(AssertUnwindSafe(|| observer(&report)));
        }
        Box::new(report)
    }
}
