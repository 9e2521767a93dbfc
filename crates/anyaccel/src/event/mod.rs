//! Events: points in streams that can be waited for, asked about and timed.

mod shared;

use crate::device::{Device, DeviceArg};
use crate::error::{Error, Result};
use crate::graph::GraphError;
use crate::local;
use crate::port::{Port, Recorded};
use crate::runtime::Runtime;
use crate::stream::Stream;
use anyaccel_hal::{Until, WaitMode};
use shared::SharedEvent;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How an event is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventOptions {
    /// The device that it will be recorded on; `None`: that of its first recording.
    pub device: Option<Device>,
    /// Keep the time of each recording, for [`Event::elapsed_time`].
    pub enable_timing: bool,
    /// Host threads that wait for it sleep instead of spinning.
    pub blocking: bool,
    /// Other processes can record it and wait for it, by [`UniqueEvent::ipc_handle`].
    pub interprocess: bool,
}

/// An event that is kept in place, by one owner: what an [`Event`] is a handle of, with all that it does. For tables of events
/// that have handles of their own, as bindings to other languages do.
///
/// ```
/// use anyaccel::{EventOptions, UniqueEvent};
/// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
/// let mut table: Vec<UniqueEvent> = Vec::new();
/// table.push(runtime.unique_event(EventOptions::default())?);
/// table[0].record(None)?;
/// table[0].synchronize()?;
/// # Ok::<(), anyaccel::Error>(())
/// ```
pub struct UniqueEvent {
    runtime: Runtime,
    options: EventOptions,
    id: u64,
    /// The device that was asked for, with its index, or that of the first recording.
    device: OnceLock<Device>,
    last: Mutex<Option<Arc<Recorded>>>,
    /// What other processes have of it too.
    shared: OnceLock<Box<SharedEvent>>,
}

/// An event. A handle; clones name the same event. Making one starts nothing: it comes to life when first recorded.
/// [`torch.Event`](https://pytorch.org/docs/stable/generated/torch.Event.html)
///
/// ```
/// use anyaccel::EventOptions;
/// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
/// let timed = EventOptions { enable_timing: true, ..EventOptions::default() };
/// let (start, end) = (runtime.event(timed)?, runtime.event(timed)?);
/// assert!(start.query()?, "an event that was never recorded is no reason to wait");
/// let stream = runtime.current_stream(())?;
/// start.record(None)?;
/// stream.fill(&runtime.alloc(1 << 20)?.all(), &[1])?;
/// end.record(None)?;
/// end.synchronize()?;
/// assert!(start.elapsed_time(&end)? >= 0.0);
/// # Ok::<(), anyaccel::Error>(())
/// ```
#[derive(Clone)]
pub struct Event(Arc<UniqueEvent>);

impl Event {
    /// Milliseconds from this event's last recording to another's. As [`UniqueEvent::elapsed_time`], between handles.
    ///
    /// # Errors
    /// As there.
    pub fn elapsed_time(&self, end: &Event) -> Result<f64> {
        self.0.elapsed_time(end)
    }
}

impl Deref for Event {
    type Target = UniqueEvent;

    #[inline]
    fn deref(&self) -> &UniqueEvent {
        &self.0
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Event {}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Debug for UniqueEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("id", &self.event_id()).field("device", &self.device()).finish_non_exhaustive()
    }
}

impl From<UniqueEvent> for Event {
    fn from(event: UniqueEvent) -> Self {
        Self(Arc::new(event))
    }
}

impl Runtime {
    /// A new event. Starts nothing.
    ///
    /// # Errors
    /// Those of the device in the options; [`Error::EventOption`] for an option that a started device does not have
    /// (while the runtime has not started, the first recording reports it).
    pub fn event(&self, options: EventOptions) -> Result<Event> {
        self.unique_event(options).map(Event::from)
    }

    /// The same, kept in place. Starts nothing.
    ///
    /// # Errors
    /// As [`Runtime::event`].
    #[inline]
    pub fn unique_event(&self, options: EventOptions) -> Result<UniqueEvent> {
        self.check_event(options)?;
        Ok(UniqueEvent {
            runtime: self.clone(),
            options,
            id: next_id(),
            device: bound_to(options),
            last: Mutex::default(),
            shared: OnceLock::new(),
        })
    }

    #[inline]
    fn check_event(&self, options: EventOptions) -> Result<()> {
        if let Some(device) = options.device {
            self.check("Event", DeviceArg::Device(device))?;
        }
        if let Some(live) = self.core.started() {
            let ordinal = options.device.and_then(Device::index).unwrap_or_else(|| local::device(self.core.key()));
            if let Some(port) = live.open_port(ordinal) {
                refuse_missing(options, port)?;
            }
        }
        Ok(())
    }
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The device that an event belongs to before it is recorded.
fn bound_to(options: EventOptions) -> OnceLock<Device> {
    options.device.filter(|device| device.index().is_some()).map_or_else(OnceLock::new, OnceLock::from)
}

/// Options are honoured or refused.
fn refuse_missing(options: EventOptions, port: &Port) -> Result<()> {
    if options.interprocess && port.shared_events().is_none() {
        return Err(Error::EventOption { option: "interprocess", kind: port.device.kind() });
    }
    Ok(())
}

/// Refuses a question to an event that was recorded inside a capture.
fn outside(call: &'static str, last: &Recorded) -> Result<()> {
    match last.captured {
        None => Ok(()),
        Some(_) => Err(GraphError::CapturedEvent { call }.into()),
    }
}

impl UniqueEvent {
    /// Makes another event of it, as [`Runtime::unique_event`] would, in its place. Waits for its recordings stay in force.
    ///
    /// # Errors
    /// As [`Runtime::event`]; it is the event that it was then.
    #[inline]
    pub fn renew(&mut self, options: EventOptions) -> Result<()> {
        self.runtime.check_event(options)?;
        self.forget();
        // Field by field: what was written in parts just now is not to be read as a whole.
        let EventOptions { device, enable_timing, blocking, interprocess } = options;
        self.options.device = device;
        self.options.enable_timing = enable_timing;
        self.options.blocking = blocking;
        self.options.interprocess = interprocess;
        self.id = next_id();
        if device.is_some() || self.device.get().is_some() {
            self.device = bound_to(options);
        }
        Ok(())
    }

    /// Forgets its last recording, as if there had been none. Waits for it stay in force. What other processes have of it is
    /// theirs alone from then on.
    #[inline]
    pub fn forget(&mut self) {
        *self.last.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        if self.shared.get().is_some() {
            self.shared = OnceLock::new();
        }
    }

    /// What other processes have of it too, made when first needed.
    fn shared(&self, call: &'static str, port: &Arc<Port>) -> Result<&SharedEvent> {
        if let Some(shared) = self.shared.get() {
            return Ok(shared);
        }
        let made = Box::new(SharedEvent::make(call, port)?);
        Ok(self.shared.get_or_init(|| made))
    }

    /// Makes it an event of that device, unless it is one of another.
    fn bind(&self, device: Device) -> Result<()> {
        let event = *self.device.get_or_init(|| device);
        if event == device { Ok(()) } else { Err(Error::EventDevice { event, stream: device }) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Recorded>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> Option<Arc<Recorded>> {
        self.lock().clone()
    }

    /// Checks that this event can be used at all: in this generation, outside of host functions.
    #[inline]
    fn usable(&self, call: &'static str) -> Result<()> {
        if local::in_host_fn() {
            return Err(Error::InsideHostFunction { call });
        }
        self.runtime.check_generation(call, "event")
    }

    /// The number of the event, unique in the process; 0 until it is recorded.
    pub fn event_id(&self) -> u64 {
        if self.runtime.core.current() && self.lock().is_some() { self.id } else { 0 }
    }

    /// The device that it belongs to: the one asked for, or that of the first recording.
    pub fn device(&self) -> Option<Device> {
        if self.runtime.core.current() { self.device.get().copied().or(self.options.device) } else { None }
    }

    /// The options that it was made with.
    pub fn options(&self) -> EventOptions {
        self.options
    }

    /// Records it on a stream, the current one of its device (or of this thread's device) if none is given. An earlier
    /// recording is forgotten; waits for it stay in force. May start the runtime.
    ///
    /// # Errors
    /// [`Error::EventKind`] and [`Error::EventDevice`] for a stream of another kind or device than before;
    /// [`Error::ForeignRuntime`]; [`Error::EventOption`]; [`Error::Unsupported`] for an interprocess event inside a capture; the
    /// driver's.
    pub fn record(&self, stream: Option<&Stream>) -> Result<()> {
        let call = "Event.record";
        self.usable(call)?;
        let runtime = &self.runtime;
        let bound = self.device();
        let current;
        let stream = match stream {
            Some(stream) => stream,
            None => {
                current = runtime.current_stream_for(call, bound.into())?;
                &current
            }
        };
        self.same_kind(stream, bound)?;
        let port = stream.port_outside(call)?;
        if let Some(event) = bound
            && event.index().is_some()
            && event != stream.device()
        {
            return Err(Error::EventDevice { event, stream: stream.device() });
        }
        refuse_missing(self.options, port)?;
        if self.options.interprocess && stream.lane.is_capturing() {
            return Err(Error::Unsupported { what: "an interprocess event inside a capture", device: port.device });
        }
        let recorded = port.record(&stream.lane, self.options.enable_timing)?;
        // Another thread may have recorded it first, on another device.
        self.bind(stream.device())?;
        if self.options.interprocess {
            self.shared(call, port)?.record(call, &stream.lane)?;
        }
        let before = self.lock().replace(recorded);
        drop(before);
        Ok(())
    }

    fn same_kind(&self, stream: &Stream, bound: Option<Device>) -> Result<()> {
        if self.runtime.same(&stream.runtime) {
            return Ok(());
        }
        if !stream.runtime.core.current() {
            return Err(Error::StaleHandle { what: "stream" });
        }
        match bound.map(Device::kind).or_else(|| self.runtime.kind()) {
            Some(event) if event != stream.device_type() => {
                Err(Error::EventKind { event, stream: stream.device_type() })
            }
            _ => Err(Error::ForeignRuntime { what: "stream" }),
        }
    }

    /// Makes later work of a stream (the current one if none is given) wait for the last recording. Returns at once; if
    /// the event was never recorded, does nothing. The stream may be on another device.
    ///
    /// # Errors
    /// [`Error::EventKind`], [`Error::ForeignRuntime`]; the driver's.
    pub fn wait(&self, stream: Option<&Stream>) -> Result<()> {
        let call = "Event.wait";
        self.usable(call)?;
        if let Some(stream) = stream {
            self.same_kind(stream, self.device())?;
        }
        let shared = self.shared.get();
        let last = self.last();
        if last.is_none() && shared.is_none() {
            return Ok(());
        }
        let current;
        let stream = match stream {
            Some(stream) => stream,
            None => {
                current = self.runtime.current_stream_for(call, DeviceArg::Current)?;
                &current
            }
        };
        let port = stream.port_outside(call)?;
        if let Some(shared) = shared {
            return shared.wait(call, port, &stream.lane);
        }
        let Some(last) = last else { return Ok(()) };
        match &last.captured {
            Some((recording, point)) => match recording.upgrade().filter(|recording| recording.is_open()) {
                Some(recording) => recording.wait(call, &stream.lane, port, *point),
                None => Err(GraphError::CapturedEvent { call }.into()),
            },
            None if stream.lane.is_capturing() => Err(GraphError::OutsideEvent { call }.into()),
            None => port.wait(&stream.lane, &last.port, &last.lane, last.mark),
        }
    }

    /// Whether the work before the last recording has ended; true if it was never recorded.
    ///
    /// # Errors
    /// [`GraphError::CapturedEvent`] for an event recorded inside a capture; the driver's.
    pub fn query(&self) -> Result<bool> {
        let call = "Event.query";
        self.usable(call)?;
        if let Some(last) = self.last() {
            outside(call, &last)?;
            if !last.port.ended(call, &last.lane, last.mark)? {
                return Ok(false);
            }
        }
        // Another process may have recorded it since.
        self.shared.get().map_or(Ok(true), |shared| shared.ended(call))
    }

    /// Waits on this thread for the work before the last recording.
    ///
    /// # Errors
    /// The driver's; [`Error::HostPanic`] of a host function on the recorded stream, once.
    pub fn synchronize(&self) -> Result<()> {
        self.synchronize_until(None).map(|_ended| ())
    }

    /// The same with a time limit: false if the work goes on.
    ///
    /// # Errors
    /// As [`UniqueEvent::synchronize`].
    pub fn synchronize_for(&self, limit: Duration) -> Result<bool> {
        self.synchronize_until(Instant::now().checked_add(limit))
    }

    fn synchronize_until(&self, deadline: Option<Instant>) -> Result<bool> {
        let call = "Event.synchronize";
        self.usable(call)?;
        let mode = if self.options.blocking { WaitMode::Block } else { WaitMode::Auto };
        if let Some(last) = self.last() {
            outside(call, &last)?;
            if !last.port.wait_host(call, &last.lane, Until::Mark(last.mark), deadline, mode)? {
                return Ok(false);
            }
            last.lane.take_panic()?;
        }
        self.shared.get().map_or(Ok(true), |shared| shared.wait_host(call, deadline, mode))
    }

    /// Milliseconds from this event's last recording to another's.
    ///
    /// # Errors
    /// In this order: [`Error::EventKinds`], [`Error::EventDevices`], [`Error::EventTimingDisabled`],
    /// [`Error::EventNotRecorded`], [`Error::EventNotCompleted`].
    pub fn elapsed_time(&self, end: &UniqueEvent) -> Result<f64> {
        let call = "Event.elapsed_time";
        self.usable(call)?;
        end.usable(call)?;
        let kind = |event: &Self| event.device().map(Device::kind).or_else(|| event.runtime.kind());
        if let (Some(this), Some(other)) = (kind(self), kind(end))
            && this != other
        {
            return Err(Error::EventKinds { this, other });
        }
        if let (Some(this), Some(other)) = (self.device(), end.device())
            && this.index().is_some()
            && other.index().is_some()
            && this != other
        {
            return Err(Error::EventDevices { this, other });
        }
        if !(self.options.enable_timing && end.options.enable_timing) {
            return Err(Error::EventTimingDisabled);
        }
        let (Some(from), Some(to)) = (self.last(), end.last()) else { return Err(Error::EventNotRecorded) };
        if !self.runtime.same(&end.runtime) {
            return Err(Error::ForeignRuntime { what: "event" });
        }
        outside(call, &from)?;
        outside(call, &to)?;
        if !(from.port.ended(call, &from.lane, from.mark)? && to.port.ended(call, &to.lane, to.mark)?) {
            return Err(Error::EventNotCompleted);
        }
        Ok(from.port.elapsed_ns(&from, &to)? as f64 / 1e6)
    }

    /// Bytes that another process opens with [`Runtime::event_from_ipc_handle`], for an event made with
    /// [`interprocess`](EventOptions::interprocess). From then on both name one event: it stands for the last recording of any of
    /// them, for which all of them wait. Belongs to this thread's current device if no other was asked for. May start the runtime.
    /// [`torch.Event.ipc_handle`](https://pytorch.org/docs/stable/generated/torch.Event.html)
    ///
    /// # Errors
    /// [`Error::EventOption`] where the device shares no events; [`Error::Argument`] for an event that was made without the option;
    /// what starting reports; the driver's.
    pub fn ipc_handle(&self) -> Result<Vec<u8>> {
        let call = "Event.ipc_handle";
        self.usable(call)?;
        let port = self.runtime.port(call, self.device().into())?;
        refuse_missing(EventOptions { interprocess: true, ..self.options }, port)?;
        if !self.options.interprocess {
            let reason = "it was made without the option 'interprocess'".to_owned();
            return Err(Error::Argument { argument: "event", reason });
        }
        self.bind(port.device)?;
        self.shared(call, port)?.handle(call)
    }
}

impl Runtime {
    /// Opens an event that another process has on the same device, by what [`UniqueEvent::ipc_handle`] gave it there. May start
    /// the runtime.
    ///
    /// A question for its end may be answered a moment late, and with no while a recording goes on that was asked for before.
    ///
    /// # Errors
    /// [`Error::EventOption`] where the device shares no events; [`Error::Argument`] for bytes that can be no handle; those of
    /// the device argument and of starting; the driver's for a handle that it does not know.
    pub fn event_from_ipc_handle<'a>(&self, device: impl Into<DeviceArg<'a>>, handle: &[u8]) -> Result<Event> {
        self.unique_event_from_ipc_handle(device, handle).map(Event::from)
    }

    /// The same, kept in place.
    ///
    /// # Errors
    /// As [`Runtime::event_from_ipc_handle`].
    pub fn unique_event_from_ipc_handle<'a>(
        &self,
        device: impl Into<DeviceArg<'a>>,
        handle: &[u8],
    ) -> Result<UniqueEvent> {
        let call = "Event.from_ipc_handle";
        if local::in_host_fn() {
            return Err(Error::InsideHostFunction { call });
        }
        let port = self.port(call, device.into())?;
        let shared = SharedEvent::open(call, port, handle)?;
        Ok(UniqueEvent {
            runtime: self.clone(),
            options: EventOptions { device: Some(port.device), interprocess: true, ..EventOptions::default() },
            id: next_id(),
            device: OnceLock::from(port.device),
            last: Mutex::default(),
            shared: OnceLock::from(Box::new(shared)),
        })
    }
}
