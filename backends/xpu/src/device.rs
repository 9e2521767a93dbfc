//! The device: handles become objects, calls become native calls. It decides nothing.

use crate::builtin::Builtins;
use crate::context::Context;
use crate::graph::Recorder;
use crate::machine::Machine;
use crate::memory::{Holder, Memory, pointer};
use crate::platform::Stamped;
use crate::stream::Stream;
use crate::sys::*;
use crate::telemetry::Sensors;
use crate::wait::wait_host;
use anyaccel_hal::{
    Arg, Device, DeviceInfo, End, Fault, Gates, Graphs, HostFn, Kernel, Kernels, Launch, Mark, Mem, MemoryInfo,
    Pattern, Peers, Pinned, Place, Segment, Stamp, StreamId, Telemetry, Until, VirtualMemory, WaitMode, Waited,
    Written,
};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

/// Degrees of what a device can, asked when it is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_threads: u32,
    pub(crate) max_threads_by_axis: [u32; 3],
    pub(crate) max_groups: [u32; 3],
    pub(crate) max_shared: u32,
    /// The largest allocation that needs no further words.
    pub(crate) plain_alloc: u64,
    /// The longest pattern of a fill.
    pub(crate) max_pattern: usize,
    /// Memory of others can be pinned.
    pub(crate) register: bool,
    /// Whose functions record and replay, if the driver has them.
    pub(crate) recorder: Option<Recorder>,
    /// What mappings are multiples of; 0 where there are none.
    pub(crate) granularity: u64,
    /// Ticks of its clock in a second, and how many bits of it count.
    pub(crate) frequency: u64,
    pub(crate) clock_bits: u32,
}

/// An open device.
pub(crate) struct XpuDevice {
    pub(crate) context: Arc<Context>,
    pub(crate) info: DeviceInfo,
    pub(crate) limits: Limits,
    pub(crate) builtins: Arc<Builtins>,
    /// Which ordinals it reaches directly.
    pub(crate) peers: Vec<bool>,
    pub(crate) sensors: Sensors,
    pub(crate) machine: Arc<Machine>,
}

#[cold]
pub(crate) fn unknown(api: &'static str, what: &str) -> Fault {
    Fault::invalid(api, format!("an unknown {what}"))
}

/// What lies between two readings of a clock that counts with so many bits: the short way round.
pub(crate) fn between(from: u64, to: u64, bits: u32) -> i64 {
    let unused = 64 - bits.clamp(1, 64);
    (to.wrapping_sub(from) << unused) as i64 >> unused
}

/// Ticks as nanoseconds.
pub(crate) fn nanoseconds(ticks: i64, frequency: u64) -> i64 {
    (i128::from(ticks) * 1_000_000_000 / i128::from(frequency.max(1))) as i64
}

impl XpuDevice {
    /// # Safety
    /// H1.
    #[inline]
    pub(crate) unsafe fn stream(&self, stream: StreamId, api: &'static str) -> Result<&Arc<Stream>, Fault> {
        // SAFETY: H1: nobody destroys the stream during a call that names it.
        unsafe { self.machine.streams.get(stream.0) }.ok_or_else(|| unknown(api, "stream"))
    }

    /// # Safety
    /// H1.
    #[inline]
    pub(crate) unsafe fn memory(&self, mem: Mem, api: &'static str) -> Result<&Memory, Fault> {
        // SAFETY: H1: nobody frees the memory during a call that names it.
        unsafe { self.machine.memory.get(mem.0) }.ok_or_else(|| unknown(api, "memory"))
    }

    /// The address of `len` bytes at a place.
    ///
    /// # Safety
    /// H1.
    #[inline]
    pub(crate) unsafe fn place(&self, place: Place, len: u64, api: &'static str) -> Result<u64, Fault> {
        // SAFETY: as this function.
        unsafe { self.memory(place.mem, api)? }.part(place.offset, len, api)
    }

    /// The address of an end of a copy, and whether it is one of the host.
    ///
    /// # Safety
    /// H1.
    #[inline]
    unsafe fn end(&self, end: End, len: u64) -> Result<(*mut c_void, bool), Fault> {
        match end {
            // SAFETY: as this function.
            End::Device(place) => Ok((pointer(unsafe { self.place(place, len, "copy")? }), false)),
            // SAFETY: as this function.
            End::Pinned(place) => Ok((pointer(unsafe { self.place(place, len, "copy")? }), true)),
            End::Host(host) => Ok((host.0.cast(), true)),
        }
    }

    /// # Safety
    /// H4, H5: both ranges are live until the copy has ended.
    #[inline]
    pub(crate) unsafe fn append_copy(
        &self,
        stream: &Stream,
        dst: *mut c_void,
        src: *const c_void,
        len: u64,
    ) -> Result<(), Fault> {
        // SAFETY: the list lives (H1), and this thread has its lock; the ranges as this function's caller promises.
        stream.list()?.append(|ze, list| unsafe {
            ze.zeCommandListAppendMemoryCopy(list, dst, src, len as usize, ZeEvent::NULL, 0, ptr::null_mut())
        })
    }

    /// # Safety
    /// H1, H4, H5.
    #[inline]
    pub(crate) unsafe fn copy_on(&self, stream: &Stream, dst: End, src: End, len: u64) -> Result<(), Fault> {
        // SAFETY: as this function.
        let ((dst, to_host), (src, from_host)) = unsafe { (self.end(dst, len)?, self.end(src, len)?) };
        if to_host && from_host {
            return Err(Fault::invalid("copy", "two host ends"));
        }
        // SAFETY: H4 and H5: both ends are live and as long as that; host memory stays until a later mark.
        unsafe { self.append_copy(stream, dst, src, len) }
    }

    /// # Safety
    /// H1, H4, H14.
    #[inline]
    pub(crate) unsafe fn fill_on(&self, stream: &Stream, dst: Place, pattern: Pattern, len: u64) -> Result<(), Fault> {
        // SAFETY: as this function.
        let dst = unsafe { self.place(dst, len, "fill")? };
        let bytes = pattern.bytes();
        if bytes.len() > self.limits.max_pattern {
            return Err(Fault::unsupported("fill").note(format!("a pattern of {} bytes", bytes.len())));
        }
        // SAFETY: H1, H4 and H14: the range is live, and as long as whole patterns; this thread has the list's lock.
        stream.list()?.append(|ze, list| unsafe {
            let (dst, from, size) = (pointer(dst), bytes.as_ptr().cast(), bytes.len());
            ze.zeCommandListAppendMemoryFill(list, dst, from, size, len as usize, ZeEvent::NULL, 0, ptr::null_mut())
        })
    }

    /// # Safety
    /// H1, H4.
    pub(crate) unsafe fn write_on(&self, stream: &Stream, dst: Place, bytes: &[u8]) -> Result<(), Fault> {
        if bytes.is_empty() || bytes.len() > Written::MAX {
            return Err(Fault::invalid("write", format!("{} bytes, at most {}", bytes.len(), Written::MAX)));
        }
        // SAFETY: as this function.
        let mut dst = unsafe { self.place(dst, bytes.len() as u64, "write")? };
        let mut list = stream.list()?;
        let mut left = bytes;
        while !left.is_empty() {
            let (now, later) = left.split_at(piece(dst, left.len(), self.limits.max_pattern));
            // SAFETY: H1 and H4: the range is live; this thread has the list's lock. A fill takes its pattern at once (H12).
            list.append(|ze, list| unsafe {
                let (at, from, size) = (pointer(dst), now.as_ptr().cast(), now.len());
                ze.zeCommandListAppendMemoryFill(list, at, from, size, size, ZeEvent::NULL, 0, ptr::null_mut())
            })?;
            dst += now.len() as u64;
            left = later;
        }
        Ok(())
    }

    /// # Safety
    /// H1, H4, H15.
    #[inline]
    pub(crate) unsafe fn launch_on(
        &self,
        stream: &Stream,
        kernel: Kernel,
        launch: Launch,
        args: &[Arg<'_>],
    ) -> Result<(), Fault> {
        self.context.alive()?;
        // SAFETY: as this function.
        unsafe {
            match u32::try_from(kernel.0) {
                Ok(number) => match self.builtins.get(number) {
                    Some(builtin) => self.launch_builtin(stream, builtin, launch, args),
                    None => Err(unknown("launch", "kernel")),
                },
                Err(_) => self.launch_loaded(stream, kernel, launch, args),
            }
        }
    }
}

/// The longest piece of `left` bytes at an address that one fill can store as its pattern.
fn piece(address: u64, left: usize, max_pattern: usize) -> usize {
    let aligned = 1_usize << address.trailing_zeros().min(6);
    let fits = 1 << left.ilog2();
    let most = 1 << max_pattern.max(1).ilog2();
    aligned.min(fits).min(most)
}

// SAFETY: the rules marked (backend) are kept: H2 by the slabs; H3 by zeMemAllocDevice and residency; H5 to H10 by the order
// of immediate lists and `stream`; H11 since asynchronous immediate lists submit what is appended; H12 since appending copies
// patterns and arguments; H13 in `host_call`; H14 to H16 here, in `kernel` and `builtin`; H17 by stamps whose event has ended;
// H18 since all state is behind locks and atomics; H19 since calls check before they append; H20 in `context`; H25 in `machine`.
unsafe impl Device for XpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory_info(&self) -> Result<MemoryInfo, Fault> {
        self.context.alive()?;
        let unknown = MemoryInfo { free: None, total: self.info.memory };
        Ok(self.sensors.memory().unwrap_or(unknown))
    }

    fn alloc(&self, len: u64) -> Result<Segment, Fault> {
        self.take_segment(len)
    }

    unsafe fn free(&self, mem: Mem) -> Result<(), Fault> {
        // SAFETY: H1 and H4, as this function's caller promises.
        unsafe { self.give_back(mem, "free", false) }
    }

    unsafe fn import(&self, native: u64, len: u64) -> Result<Segment, Fault> {
        let context = Arc::clone(&self.context);
        let memory = Memory { addr: native, len, holder: Holder::Imported, context };
        Ok(Segment { mem: Mem(self.machine.memory.insert(memory)), addr: native, len })
    }

    unsafe fn native_mem(&self, mem: Mem) -> u64 {
        // SAFETY: H1, as this function's caller promises.
        unsafe { self.memory(mem, "native_mem") }.map_or(0, |memory| memory.addr)
    }

    fn create_stream(&self, priority: i32) -> Result<StreamId, Fault> {
        self.context.alive()?;
        let stream = Stream::create(&self.context, self.info.priorities.clamp(priority))?;
        Ok(StreamId(self.machine.streams.insert(Arc::new(stream))))
    }

    unsafe fn destroy_stream(&self, stream: StreamId) -> Result<(), Fault> {
        match self.machine.streams.remove(stream.0) {
            Some(_ended) => Ok(()),
            None => Err(unknown("destroy_stream", "stream")),
        }
    }

    unsafe fn native_stream(&self, stream: StreamId) -> u64 {
        // SAFETY: H1, as this function's caller promises.
        unsafe { self.stream(stream, "native_stream") }.map_or(0, |stream| stream.share().0 as u64)
    }

    unsafe fn import_stream(&self, native: u64) -> Result<StreamId, Fault> {
        self.context.alive()?;
        if native == 0 {
            return Err(Fault::invalid("import_stream", "no command list"));
        }
        let stream = Stream::borrow(&self.context, ZeCommandList(native as usize));
        Ok(StreamId(self.machine.streams.insert(Arc::new(stream))))
    }

    unsafe fn mark(&self, stream: StreamId) -> Result<Mark, Fault> {
        // SAFETY: H1, as this function's caller promises.
        unsafe { self.stream(stream, "mark")? }.mark()
    }

    unsafe fn wait(&self, stream: StreamId, of: StreamId, mark: Mark) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let (on, awaited) = unsafe { (self.stream(stream, "wait")?, self.stream(of, "wait")?) };
        match mark {
            // A stream is behind its own marks anyway.
            Mark::At(_) if stream == of => self.context.alive(),
            Mark::At(_) if !Arc::ptr_eq(&on.context.platform, &awaited.context.platform) => {
                Err(Fault::unsupported("wait").note("devices of two drivers"))
            }
            // All marks of a lost device have ended (H20).
            Mark::At(_) if awaited.context.is_lost() => on.context.alive(),
            Mark::At(mark) => awaited.hold_up(on, mark),
            Mark::Captured(_) => Err(Fault::invalid("wait", "a mark of a capture, of which there is none")),
        }
    }

    unsafe fn wait_host(
        &self,
        stream: StreamId,
        until: Until,
        deadline: Option<Instant>,
        mode: WaitMode,
    ) -> Result<Waited, Fault> {
        // SAFETY: H1, as this function's caller promises.
        wait_host(unsafe { self.stream(stream, "wait_host")? }, until, deadline, mode)
    }

    unsafe fn completed(&self, stream: StreamId) -> Result<u64, Fault> {
        // SAFETY: H1, as this function's caller promises.
        let stream = unsafe { self.stream(stream, "completed")? };
        if self.context.is_lost() {
            // All marks of a lost device have ended (H20).
            return Ok(stream.given());
        }
        let looked = self.context.check(stream.completed()).and_then(|ended| {
            if ended < stream.given() {
                self.context.looked()?;
            }
            Ok(ended)
        });
        match looked {
            Err(_) if self.context.is_lost() => Ok(stream.given()),
            looked => looked,
        }
    }

    unsafe fn stamp(&self, stream: StreamId) -> Result<Stamp, Fault> {
        // SAFETY: H1, as this function's caller promises.
        let stream = unsafe { self.stream(stream, "stamp")? };
        self.context.fade(None);
        let stamped = self.context.check_shared(Stamped::new(&self.context.platform))?;
        let (place, event) = (stamped.time.pointer(), stamped.event.raw);
        // SAFETY: the list lives (H1), and this thread has its lock; the place and the event stay until they are written.
        stream.list()?.append(|ze, list| unsafe {
            ze.zeCommandListAppendWriteGlobalTimestamp(list, place, event, 0, ptr::null_mut())
        })?;
        Ok(Stamp(self.machine.stamps.insert(stamped)))
    }

    unsafe fn elapsed_ns(&self, from: Stamp, to: Stamp) -> Result<i64, Fault> {
        // SAFETY: H1: nobody drops a stamp during a call that names it.
        let (from, to) = unsafe {
            let get = |stamp: Stamp| self.machine.stamps.get(stamp.0).ok_or_else(|| unknown("elapsed_ns", "stamp"));
            (get(from)?, get(to)?)
        };
        self.context.alive()?;
        for stamp in [from, to] {
            if !self.context.check(stamp.event.ended())? {
                self.context.looked()?;
                return Err(Fault::new(anyaccel_hal::FaultKind::NotReady, "elapsed_ns"));
            }
        }
        let ticks = between(from.time.read(), to.time.read(), self.limits.clock_bits);
        Ok(nanoseconds(ticks, self.limits.frequency))
    }

    unsafe fn drop_stamp(&self, stamp: Stamp) {
        self.context.fade(self.machine.stamps.remove(stamp.0));
    }

    unsafe fn copy(&self, stream: StreamId, dst: End, src: End, len: u64) -> Result<(), Fault> {
        // SAFETY: H1, H4 and H5, as this function's caller promises.
        unsafe { self.copy_on(self.stream(stream, "copy")?, dst, src, len) }
    }

    unsafe fn fill(&self, stream: StreamId, dst: Place, pattern: Pattern, len: u64) -> Result<(), Fault> {
        // SAFETY: H1, H4 and H14, as this function's caller promises.
        unsafe { self.fill_on(self.stream(stream, "fill")?, dst, pattern, len) }
    }

    unsafe fn write(&self, stream: StreamId, dst: Place, bytes: &[u8]) -> Result<(), Fault> {
        // SAFETY: H1 and H4, as this function's caller promises.
        unsafe { self.write_on(self.stream(stream, "write")?, dst, bytes) }
    }

    unsafe fn host_call(&self, stream: StreamId, function: HostFn) -> Result<(), Fault> {
        // SAFETY: H1, as this function's caller promises.
        let stream = unsafe { self.stream(stream, "host_call")? };
        self.context.alive()?;
        stream.functions.enqueue(stream, function)
    }

    fn builtin(&self, number: u32) -> Option<Kernel> {
        self.builtins.get(number).map(|builtin| Kernel(builtin.number().into()))
    }

    unsafe fn launch(&self, stream: StreamId, kernel: Kernel, launch: Launch, args: &[Arg<'_>]) -> Result<(), Fault> {
        // SAFETY: H1, H4 and H15, as this function's caller promises.
        unsafe { self.launch_on(self.stream(stream, "launch")?, kernel, launch, args) }
    }

    fn pinned(&self) -> Option<&dyn Pinned> {
        Some(self)
    }

    fn peers(&self) -> Option<&dyn Peers> {
        Some(self)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        if self.limits.granularity > 0 { Some(self) } else { None }
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        if self.limits.recorder.is_some() { Some(self) } else { None }
    }

    fn kernels(&self) -> Option<&dyn Kernels> {
        Some(self)
    }

    fn gates(&self) -> Option<&dyn Gates> {
        Some(self)
    }

    fn telemetry(&self) -> Option<&dyn Telemetry> {
        Some(&self.sensors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_wraps_is_read_the_short_way_round() {
        assert_eq!(between(5, 9, 64), 4);
        assert_eq!(between(9, 5, 64), -4);
        assert_eq!(between(u64::MAX - 1, 2, 64), 4);
        assert_eq!(between(0xffff_fffe, 2, 32), 4);
        assert_eq!(between(2, 0xffff_fffe, 32), -4);
        // What lies above the bits that count is noise.
        assert_eq!(between(0xdead_0000_0005, 0xbeef_0000_0009, 32), 4);
        assert_eq!(between(0, 1 << 30, 32), 1 << 30);
    }

    #[test]
    fn ticks_become_nanoseconds_without_a_loss_of_long_times() {
        assert_eq!(nanoseconds(19_200_000, 19_200_000), 1_000_000_000);
        assert_eq!(nanoseconds(-96, 19_200_000), -5_000);
        // A year.
        assert_eq!(nanoseconds(19_200_000 * 31_536_000, 19_200_000), 31_536_000_000_000_000);
        assert_eq!(nanoseconds(7, 0), 7_000_000_000);
    }

    #[test]
    fn a_write_is_cut_into_pieces_that_fills_can_store() {
        assert_eq!(piece(64, 64, usize::MAX), 64);
        assert_eq!(piece(64, 63, usize::MAX), 32);
        assert_eq!(piece(4, 64, usize::MAX), 4);
        assert_eq!(piece(1, 64, usize::MAX), 1);
        assert_eq!(piece(64, 64, 16), 16);
        assert_eq!(piece(64, 64, 1), 1);
        assert_eq!(piece(0, 64, 128), 64);
    }
}
