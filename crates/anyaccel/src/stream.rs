//! Streams: queues of work that runs in order.

use crate::device::{Device, DeviceArg};
use crate::error::{Error, Result};
use crate::event::{Event, EventOptions};
use crate::graph::{GraphError, not_captured};
use crate::guard::StreamGuard;
use crate::lane::LaneRef;
use crate::local;
use crate::port::Port;
use crate::runtime::Runtime;
use anyaccel_hal::{HostFn, HostStatus, Kind, StreamId, Until, WaitMode};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The id of the default stream.
const DEFAULT: u64 = 0;

/// How a stream is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamOptions {
    /// Lower is more urgent; clamped to the device's range.
    pub priority: i32,
    /// A native queue of its own, or an error, instead of the next one of the pool.
    pub reserved: bool,
}

/// A stream: work enqueued on it runs in order, and without order to other streams but by events.
///
/// A cheap handle; equal when kind, device and id are. The default stream of a device has id 0. Dropping a handle never
/// waits; a reserved stream is given back once its work has ended.
///
/// ```
/// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
/// let (a, b) = (runtime.stream(())?, runtime.stream(())?);
/// let buffer = runtime.alloc(1024)?;
/// a.fill(&buffer.all(), &[7])?;
/// b.wait_stream(&a)?; // work on b from here on sees the fill
/// let mut bytes = [0; 4];
/// b.download(&mut bytes, &buffer.slice(0..4)?)?;
/// assert_eq!(bytes, [7; 4]);
/// # Ok::<(), anyaccel::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream {
    pub(crate) runtime: Runtime,
    pub(crate) lane: LaneRef,
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.lane.id == other.lane.id && self.lane.device == other.lane.device && self.runtime.same(&other.runtime)
    }
}

impl Eq for Stream {}

impl Hash for Stream {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.lane.device, self.lane.id).hash(state);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("id", &self.lane.id).field("device", &self.lane.device).finish()
    }
}

impl Runtime {
    /// The next stream of the device's pool of 32, of ordinary priority. May start the runtime.
    /// [`torch.Stream`](https://pytorch.org/docs/stable/generated/torch.Stream.html)
    ///
    /// # Errors
    /// Those of the device argument, of starting, and of the driver.
    pub fn stream<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<Stream> {
        self.stream_with(device, StreamOptions::default())
    }

    /// A stream with options. May start the runtime.
    ///
    /// # Errors
    /// As [`Runtime::stream`].
    pub fn stream_with<'a>(&self, device: impl Into<DeviceArg<'a>>, options: StreamOptions) -> Result<Stream> {
        let call = "Stream";
        let port = self.port(call, device.into())?;
        let lane = if options.reserved {
            port.lanes.reserve(port, options.priority)?
        } else {
            port.lanes.next(port, options.priority)?
        };
        Ok(Stream { runtime: self.clone(), lane })
    }

    /// The stream with that id, as [`Stream::stream_id`] gave it. May start the runtime.
    ///
    /// # Errors
    /// [`Error::StreamKind`], [`Error::UnknownStream`], and as [`Runtime::stream`].
    pub fn stream_from_id(&self, stream_id: u64, device_index: u32, device_type: Kind) -> Result<Stream> {
        let call = "Stream";
        let current = self.live(call)?.kind;
        if device_type != current {
            return Err(Error::StreamKind { given: device_type, current });
        }
        self.stream_at(device_index, stream_id)
    }

    /// The stream with that id on a device of this runtime. May start the runtime.
    ///
    /// # Errors
    /// [`Error::UnknownStream`], and as [`Runtime::stream`].
    #[inline]
    pub fn stream_at(&self, device_index: u32, stream_id: u64) -> Result<Stream> {
        let port = self.port("Stream", DeviceArg::Index(device_index.into()))?;
        match port.lanes.by_id(port, stream_id)? {
            Some(lane) => Ok(Stream { runtime: self.clone(), lane }),
            None => Err(Error::UnknownStream { id: stream_id, device: port.device }),
        }
    }

    /// The stream of this runtime that has that [native handle](Stream::native_handle); `None` if it has none, which is
    /// also what a foreign stream gets. May start the runtime.
    ///
    /// # Errors
    /// As [`Runtime::stream`].
    pub fn stream_from_native<'a>(&self, device: impl Into<DeviceArg<'a>>, handle: u64) -> Result<Option<Stream>> {
        let port = self.port("Stream", device.into())?;
        let mut lanes = port.lanes.all().into_iter();
        let lane = lanes.find(|lane| handle != 0 && port.native_stream(lane) == handle);
        Ok(lane.map(|lane| Stream { runtime: self.clone(), lane }))
    }

    /// A stream that another library made, by its native name (a `CUstream`): work of both is in one order. It belongs to
    /// its maker, and dropping the `Stream` leaves it alone. May start the runtime.
    /// [`torch.cuda.ExternalStream`](https://pytorch.org/docs/stable/generated/torch.cuda.ExternalStream.html)
    ///
    /// # Errors
    /// As [`Runtime::stream`]; where the backend can't use such streams, or its driver knows none of that name, the driver's
    /// refusal.
    ///
    /// # Safety
    /// `native` is a stream of that device. It lives until the device has been synchronized after the last clone of the
    /// `Stream` was dropped.
    pub unsafe fn external_stream<'a>(&self, device: impl Into<DeviceArg<'a>>, native: u64) -> Result<Stream> {
        let port = self.port("Stream", device.into())?;
        // SAFETY: this function's contract.
        let lane = unsafe { port.lanes.import(port, native)? };
        Ok(Stream { runtime: self.clone(), lane })
    }

    /// The default stream of a device, with id 0. May start the runtime.
    ///
    /// # Errors
    /// As [`Runtime::stream`].
    pub fn default_stream<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<Stream> {
        let port = self.port("default_stream", device.into())?;
        Ok(Stream { runtime: self.clone(), lane: port.lanes.default(port)? })
    }

    /// This thread's current stream of a device: the default one until another is set. May start the runtime.
    /// [`torch.accelerator.current_stream`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// As [`Runtime::stream`].
    #[inline]
    pub fn current_stream<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<Stream> {
        self.current_stream_for("current_stream", device.into())
    }

    /// The same for `call`, which is who starts the runtime then.
    #[inline]
    pub(crate) fn current_stream_for(&self, call: &'static str, device: DeviceArg<'_>) -> Result<Stream> {
        let ordinal = self.resolve(call, device)?;
        let lane = match local::stream(self.core.key(), ordinal) {
            Some(lane) => lane,
            None => {
                let port = self.live(call)?.port(ordinal)?;
                port.lanes.default(port)?
            }
        };
        Ok(Stream { runtime: self.clone(), lane })
    }

    /// The device and the id of this thread's current stream of a device: what [`Runtime::stream_at`] makes the stream of. For
    /// callers to whom streams are numbers: it makes no handle, and neither opens the device nor asks it. Starts the runtime.
    ///
    /// ```
    /// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
    /// assert_eq!(runtime.current_stream_id(())?, (0, 0), "the default one until another is set");
    /// let stream = runtime.stream(0)?;
    /// runtime.set_stream(&stream)?;
    /// let (device, id) = runtime.current_stream_id(0)?;
    /// assert_eq!(runtime.stream_at(device, id)?, stream);
    /// # Ok::<(), anyaccel::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of the device argument and of starting; [`Error::InsideHostFunction`].
    #[inline]
    pub fn current_stream_id<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<(u32, u64)> {
        let call = "current_stream_id";
        let ordinal = self.resolve_named(call, device.into())?;
        match local::stream_id(self.core.key(), ordinal, DEFAULT) {
            Some(current) => Ok(current),
            None => Err(Error::InsideHostFunction { call }),
        }
    }

    /// Makes a stream current on this thread, and its device too.
    /// [`torch.accelerator.set_stream`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// [`Error::StreamKind`] for a stream of another kind, [`Error::ForeignRuntime`] for one of another runtime,
    /// [`Error::StaleHandle`] for one from before a fork.
    #[inline]
    pub fn set_stream(&self, stream: &Stream) -> Result<()> {
        if !self.same(&stream.runtime) {
            return Err(self.foreign_stream(stream));
        }
        if !self.core.current() {
            return self.check_generation("set_stream", "stream");
        }
        local::set_stream(self.core.key(), || self.weak(), stream.lane.clone());
        Ok(())
    }

    /// Makes a stream the current one of its device on this thread, and returns the one that was. The current device stays.
    ///
    /// # Errors
    /// As [`Runtime::set_stream`]; [`Error::InsideHostFunction`] in a host function.
    #[inline]
    pub fn exchange_stream(&self, stream: &Stream) -> Result<Stream> {
        if !self.same(&stream.runtime) {
            return Err(self.foreign_stream(stream));
        }
        let call = "exchange_stream";
        self.check_generation(call, "stream")?;
        if local::in_host_fn() {
            // The default stream couldn't be told, and by then it would have been done.
            return Err(Error::InsideHostFunction { call });
        }
        let lane = match local::exchange_stream(self.core.key(), || self.weak(), stream.lane.clone()) {
            Some(lane) => lane,
            None => {
                let port = self.live(call)?.port(stream.lane.ordinal)?;
                port.lanes.default(port)?
            }
        };
        Ok(Stream { runtime: self.clone(), lane })
    }

    /// The same with the id of the one that was, which is on the same device. Makes no handle.
    ///
    /// ```
    /// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
    /// let (a, b) = (runtime.stream(0)?, runtime.stream(0)?);
    /// assert_eq!(runtime.exchange_stream_id(&a)?, 0);
    /// assert_eq!(runtime.exchange_stream_id(&b)?, a.stream_id());
    /// # Ok::<(), anyaccel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Runtime::set_stream`].
    #[inline]
    pub fn exchange_stream_id(&self, stream: &Stream) -> Result<u64> {
        if !self.same(&stream.runtime) {
            return Err(self.foreign_stream(stream));
        }
        self.check_generation("exchange_stream_id", "stream")?;
        let before = local::exchange_stream(self.core.key(), || self.weak(), stream.lane.clone());
        Ok(before.map_or(DEFAULT, |lane| lane.id))
    }

    #[cold]
    fn foreign_stream(&self, stream: &Stream) -> Error {
        match self.kind() {
            _ if !stream.runtime.core.current() => Error::StaleHandle { what: "stream" },
            Some(current) if current != stream.device_type() => {
                Error::StreamKind { given: stream.device_type(), current }
            }
            _ => Error::ForeignRuntime { what: "stream" },
        }
    }

    /// Waits for all streams of a device. While the runtime has not started: checks the argument and returns. Leaves the
    /// current device alone. [`torch.accelerator.synchronize`](https://pytorch.org/docs/stable/accelerator.html)
    ///
    /// # Errors
    /// Those of the device argument; the driver's; [`Error::HostPanic`] of the first stream that has one.
    pub fn synchronize<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<()> {
        self.synchronize_until(device.into(), None).map(|_ended| ())
    }

    /// The same with a time limit: false if work goes on. The work is not touched.
    ///
    /// # Errors
    /// As [`Runtime::synchronize`].
    pub fn synchronize_for<'a>(&self, device: impl Into<DeviceArg<'a>>, limit: Duration) -> Result<bool> {
        self.synchronize_until(device.into(), Instant::now().checked_add(limit))
    }

    fn synchronize_until(&self, device: DeviceArg<'_>, deadline: Option<Instant>) -> Result<bool> {
        let call = "synchronize";
        if self.core.running().is_none() {
            if self.core.current() {
                self.check(call, device)?;
            }
            return Ok(true);
        }
        let ordinal = self.resolve(call, device)?;
        self.may_wait(call)?;
        let Some(port) = self.live(call)?.open_port(ordinal) else { return Ok(true) };
        let mut panicked = Ok(());
        for lane in port.lanes.all() {
            if !port.wait_host(call, &lane, Until::Now, deadline, WaitMode::Auto)? {
                return Ok(false);
            }
            panicked = panicked.and(lane.take_panic());
        }
        port.reap();
        panicked.map(|()| true)
    }

    /// The open device that an argument names.
    #[inline]
    pub(crate) fn port(&self, call: &'static str, device: DeviceArg<'_>) -> Result<&Arc<Port>> {
        let ordinal = self.resolve(call, device)?;
        self.live(call)?.port(ordinal)
    }
}

impl Stream {
    /// Its number on its device; 0 is the default stream. Numbers of reserved streams are never used again.
    pub fn stream_id(&self) -> u64 {
        self.lane.id
    }

    /// Its device's index.
    pub fn device_index(&self) -> u32 {
        self.lane.ordinal
    }

    /// Its device's kind.
    pub fn device_type(&self) -> Kind {
        self.lane.device.kind()
    }

    /// Its device.
    pub fn device(&self) -> Device {
        self.lane.device
    }

    /// Its priority; lower is more urgent.
    pub fn priority(&self) -> i32 {
        self.lane.priority
    }

    /// Whether it has a native queue of its own.
    pub fn is_reserved(&self) -> bool {
        self.lane.reserved
    }

    /// The vendor's stream (a `CUstream`, a `cl_command_queue`), 0 where there is none. Valid while the stream lives.
    ///
    /// # Errors
    /// [`Error::StaleHandle`].
    pub fn native_handle(&self) -> Result<u64> {
        Ok(self.port("Stream.native_handle")?.native_stream(&self.lane))
    }

    /// The driver's own name for the native queue, as a simulation's controls take it.
    pub fn driver_id(&self) -> StreamId {
        self.lane.raw
    }

    /// Whether work on the two streams goes through one native queue: true for the 1st and the 33rd of a pool.
    pub fn shares_queue_with(&self, other: &Stream) -> bool {
        self.runtime.same(&other.runtime) && self.lane.raw == other.lane.raw
    }

    /// Whether all work enqueued so far has ended.
    ///
    /// # Errors
    /// The driver's; [`Error::HostPanic`], once.
    pub fn query(&self) -> Result<bool> {
        let call = "Stream.query";
        let port = self.port(call)?;
        not_captured(call, &self.lane)?;
        let mark = port.mark(call, &self.lane)?;
        let ended = port.ended(call, &self.lane, mark)?;
        if ended {
            self.lane.take_panic()?;
        }
        Ok(ended)
    }

    /// Waits for all work enqueued so far.
    ///
    /// # Errors
    /// The driver's; [`Error::HostPanic`], once; [`Error::InsideHostFunction`].
    #[inline]
    pub fn synchronize(&self) -> Result<()> {
        self.synchronize_until(None).map(|_ended| ())
    }

    /// The same with a time limit: false if work goes on. The work is not touched.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub fn synchronize_for(&self, limit: Duration) -> Result<bool> {
        self.synchronize_until(Instant::now().checked_add(limit))
    }

    #[inline]
    fn synchronize_until(&self, deadline: Option<Instant>) -> Result<bool> {
        let call = "Stream.synchronize";
        let port = self.port(call)?;
        self.runtime.may_wait(call)?;
        not_captured(call, &self.lane)?;
        if !port.wait_host(call, &self.lane, Until::Now, deadline, WaitMode::Auto)? {
            return Ok(false);
        }
        self.lane.take_panic()?;
        Ok(true)
    }

    /// Makes later work wait for an event. An event that was never recorded is no reason to wait.
    ///
    /// # Errors
    /// Those of [`Event::wait`](crate::UniqueEvent::wait).
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        event.wait(Some(self))
    }

    /// Makes later work wait for what is enqueued on another stream now. It may be on another device.
    ///
    /// # Errors
    /// [`Error::ForeignRuntime`], and the driver's.
    pub fn wait_stream(&self, other: &Stream) -> Result<()> {
        let call = "Stream.wait_stream";
        self.same_runtime(other)?;
        let (port, of) = (self.port(call)?, other.port(call)?);
        if self.lane.raw == other.lane.raw {
            return Ok(());
        }
        if let Some(recording) = other.lane.recording() {
            return recording.wait(call, &self.lane, port, recording.point(&other.lane)?);
        }
        if self.lane.is_capturing() {
            return Err(GraphError::OutsideEvent { call }.into());
        }
        let mark = of.mark(call, &other.lane)?;
        port.wait(&self.lane, of, &other.lane, mark)
    }

    /// Makes a stream that another library made, by its native name (a `CUstream`), wait for all that was enqueued here
    /// before, on the device: what that library enqueues there from now on comes behind it. Nothing is kept of it, unlike
    /// of a [`Runtime::external_stream`].
    ///
    /// # Errors
    /// [`GraphError::OutsideEvent`] while this stream is captured; where the backend can't use such streams, or its driver
    /// knows none of that name, the driver's refusal.
    ///
    /// # Safety
    /// `native` is a stream of this stream's device, and lives until this returns.
    pub unsafe fn external_wait(&self, native: u64) -> Result<()> {
        let call = "Stream.external_wait";
        let port = self.port(call)?;
        if self.lane.is_capturing() {
            return Err(GraphError::OutsideEvent { call }.into());
        }
        // SAFETY: this function's contract.
        unsafe { port.external_wait(call, &self.lane, native) }
    }

    /// Records an event here, a new one if none is given, and returns it.
    ///
    /// # Errors
    /// Those of [`Event::record`](crate::UniqueEvent::record).
    pub fn record_event(&self, event: Option<&Event>) -> Result<Event> {
        let event = match event {
            Some(event) => event.clone(),
            None => self.runtime.event(EventOptions::default())?,
        };
        event.record(Some(self))?;
        Ok(event)
    }

    /// Whether the stream is being captured into a [`Graph`](crate::Graph): what is enqueued is recorded.
    ///
    /// # Errors
    /// [`Error::StaleHandle`].
    pub fn is_capturing(&self) -> Result<bool> {
        self.port("Stream.is_capturing").map(|_port| self.lane.is_capturing())
    }

    /// Calls a function of the host in stream order, on a thread of the backend. It may block, but not call the
    /// runtime, which is refused as [`Error::InsideHostFunction`]; dropping handles inside is fine. If its turn can't
    /// come (a lost device), it is dropped without a call.
    ///
    /// A panic in it is kept and returned as [`Error::HostPanic`] by the next synchronization of this stream.
    ///
    /// Inside a capture use [`Stream::host_fn_mut`].
    ///
    /// # Errors
    /// [`GraphError::CalledOnce`] on a captured stream; the driver's.
    pub fn host_fn(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        let call = "Stream.host_fn";
        let port = self.port(call)?;
        if self.lane.is_capturing() {
            return Err(GraphError::CalledOnce.into());
        }
        self.host_call_once(call, port, function)
    }

    /// [`Stream::host_fn`] with a function that can be called again: enqueued, it is called once; captured into a
    /// [`Graph`](crate::Graph), once at each replay, and dropped with the graph. A panic is the stream's that the replay
    /// went to.
    ///
    /// # Errors
    /// The driver's.
    pub fn host_fn_mut(&self, function: impl FnMut() + Send + 'static) -> Result<()> {
        self.host_call("Stream.host_fn_mut", function)
    }

    /// Calls a function now in stream order, or at each replay.
    pub(crate) fn host_call(&self, call: &'static str, function: impl FnMut() + Send + 'static) -> Result<()> {
        let port = self.port(call)?;
        match self.lane.recording() {
            Some(recording) => port.record_call(&recording, &self.lane, function),
            None => self.host_call_once(call, port, function),
        }
    }

    /// A function called once in stream order, its panic kept. Everything that it owns is dropped inside it, where
    /// drops know not to call the driver.
    pub(crate) fn host_call_once(
        &self,
        call: &'static str,
        port: &Port,
        function: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        let mut once = Some((function, self.lane.clone()));
        let wrapped = HostFn::new(move |status| {
            let Some((function, lane)) = once.take() else { return };
            local::as_host_fn(|| {
                let ran = catch_unwind(AssertUnwindSafe(|| match status {
                    HostStatus::Run => function(),
                    HostStatus::Cancelled => drop(function),
                }));
                if let Err(payload) = ran {
                    lane.note_panic(&*payload);
                }
                drop(lane);
            });
        });
        port.host_call(call, &self.lane, wrapped)
    }

    /// Makes this stream and its device current until the guard is dropped. Scopes nest in any order.
    ///
    /// # Errors
    /// [`Error::StaleHandle`].
    #[inline]
    pub fn enter(&self) -> Result<StreamGuard> {
        self.port("Stream.enter")?;
        Ok(StreamGuard::enter(self))
    }

    /// The runtime that it belongs to.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Its open device.
    #[inline]
    pub(crate) fn port(&self, call: &'static str) -> Result<&Arc<Port>> {
        self.runtime.check_handle(call, "stream")?.port(self.lane.ordinal)
    }

    /// The same for who has made sure that this is no host function.
    #[inline]
    pub(crate) fn port_outside(&self, call: &'static str) -> Result<&Arc<Port>> {
        self.runtime.check_handle_outside(call, "stream")?.port(self.lane.ordinal)
    }

    pub(crate) fn same_runtime(&self, other: &Stream) -> Result<()> {
        if self.runtime.same(&other.runtime) {
            Ok(())
        } else if !other.runtime.core.current() {
            Err(Error::StaleHandle { what: "stream" })
        } else {
            Err(Error::ForeignRuntime { what: "stream" })
        }
    }
}

impl Runtime {
    /// The started runtime that a handle belongs to; a handle can only come from a started one.
    #[inline]
    pub(crate) fn check_handle(&self, call: &'static str, what: &'static str) -> Result<&crate::lifecycle::Live> {
        if local::in_host_fn() {
            return Err(Error::InsideHostFunction { call });
        }
        self.check_handle_outside(call, what)
    }

    /// The same for who has made sure that this is no host function.
    #[inline]
    pub(crate) fn check_handle_outside(
        &self,
        call: &'static str,
        what: &'static str,
    ) -> Result<&crate::lifecycle::Live> {
        match self.core.started() {
            Some(live) => Ok(live),
            None => self.early_or_stale(call, what),
        }
    }

    #[cold]
    fn early_or_stale(&self, call: &'static str, what: &'static str) -> Result<&crate::lifecycle::Live> {
        self.check_generation(call, what)?;
        // A deferred call, while the runtime starts.
        self.live(call)
    }
}
