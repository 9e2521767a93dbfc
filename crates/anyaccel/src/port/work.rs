//! Work: copies, fills, writes, launches. Parts are known to lie in their blocks, so H4 holds by type.

use super::{HostBlock, Loaded, Part, Port};
use crate::error::{Error, Result};
use crate::graph::{Argument, Recording, Repeated, Site, Spot, Work};
use crate::lane::Lane;
use crate::local;
use anyaccel_hal::{Arg, End, Fault, HostFn, HostPtr, Kernel, Launch, Pattern, Until, WaitMode, Written};
use std::sync::Arc;
use std::time::Duration;

/// An argument of a launch, checked.
pub(crate) enum LaunchPart<'a> {
    Part(Part<'a>),
    Bytes(&'a [u8]),
    Local(usize),
}

impl Port {
    #[inline]
    fn done(&self, call: &'static str, result: Result<(), Fault>) -> Result<()> {
        result.map_err(|fault| self.error(call, fault))
    }

    /// Fills a part; the pattern is one that the device has, and the part is aligned to it (H14).
    #[inline]
    pub(crate) fn fill(&self, lane: &Lane, dst: Part<'_>, pattern: Pattern) -> Result<()> {
        if let Some(recording) = lane.recording() {
            let work = Work::Fill { dst: Spot::of(&dst), pattern, len: dst.len };
            return recording.record(self, lane, work, &[dst.block]);
        }
        dst.block.used_on(self, lane)?;
        // SAFETY: H1, H4: lane and block are borrowed and the part lies in the block. H14 by the caller's check.
        self.done("Stream.fill", unsafe { self.hal().fill(lane.raw, dst.place(), pattern, dst.len) })
    }

    /// Stores at most 64 bytes.
    #[inline]
    pub(crate) fn write(&self, lane: &Lane, dst: Part<'_>, bytes: &[u8]) -> Result<()> {
        if let Some(recording) = lane.recording() {
            return self.record_write(&recording, lane, dst, bytes);
        }
        dst.block.used_on(self, lane)?;
        // SAFETY: H1, H4: as in `fill`; the lengths were compared by the caller.
        self.done("Stream.write", unsafe { self.hal().write(lane.raw, dst.place(), bytes) })
    }

    #[cold]
    fn record_write(&self, recording: &Recording, lane: &Lane, dst: Part<'_>, bytes: &[u8]) -> Result<()> {
        let Some(bytes) = Written::new(bytes) else {
            let (expected, got) = (Written::MAX as u64, bytes.len() as u64);
            return Err(Error::Length { what: "write (at most)", expected, got });
        };
        recording.record(self, lane, Work::Write { dst: Spot::of(&dst), bytes }, &[dst.block])
    }

    /// Copies within this device.
    #[inline]
    pub(crate) fn copy(&self, lane: &Lane, dst: Part<'_>, src: Part<'_>) -> Result<()> {
        if let Some(recording) = lane.recording() {
            let (to, from) = (Site::Device(Spot::of(&dst)), Site::Device(Spot::of(&src)));
            let work = Work::Copy { dst: to, src: from, len: dst.len };
            return recording.record(self, lane, work, &[dst.block, src.block]);
        }
        dst.block.used_on(self, lane)?;
        src.block.used_on(self, lane)?;
        let (to, from) = (End::Device(dst.place()), End::Device(src.place()));
        // SAFETY: H1, H4: as in `fill`, for both parts, which are equally long and don't overlap.
        self.done("Stream.copy", unsafe { self.hal().copy(lane.raw, to, from, dst.len) })
    }

    /// Copies from a peer's memory to this device's.
    pub(crate) fn copy_peer(&self, lane: &Lane, dst: Part<'_>, from: u32, src: Part<'_>) -> Result<()> {
        let peers = self.hal().peers().ok_or(Error::Unsupported { what: "Stream.copy", device: self.device })?;
        if let Some(recording) = lane.recording() {
            let work = Work::Peer { dst: Spot::of(&dst), from, src: Spot::of(&src), len: dst.len };
            return recording.record(self, lane, work, &[dst.block, src.block]);
        }
        dst.block.used_on(self, lane)?;
        src.block.used_on(self, lane)?;
        // SAFETY: H1, H4, H28: both blocks are borrowed, and the parts lie in them.
        self.done("Stream.copy", unsafe { peers.copy(lane.raw, dst.place(), from, src.place(), dst.len) })
    }

    /// Copies from host memory that frees itself after the copy.
    #[inline]
    pub(crate) fn upload(&self, lane: &Lane, dst: Part<'_>, src: &Arc<HostBlock>, at: usize) -> Result<()> {
        if let Some(recording) = lane.recording() {
            let (to, from) = (Site::Device(Spot::of(&dst)), Site::host(src, at, dst.len));
            return recording.record_transfer(
                self,
                lane,
                Work::Copy { dst: to, src: from, len: dst.len },
                dst.block,
                src,
            );
        }
        dst.block.used_on(self, lane)?;
        src.used_on(lane);
        let from = src.end(at, dst.len);
        // SAFETY: H1, H4 as in `fill`. H5: the block lives until a later mark of this lane, and its owner waits for
        // this copy before it hands out a mutable view.
        self.done("Stream.upload", unsafe { self.hal().copy(lane.raw, End::Device(dst.place()), from, dst.len) })
    }

    /// Copies from host memory that another device pinned, by its address. The block is kept until the copy has ended:
    /// it knows nothing of this device's lanes, so a host function holds it.
    pub(crate) fn upload_foreign(&self, lane: &Lane, dst: Part<'_>, src: Arc<HostBlock>) -> Result<()> {
        dst.block.used_on(self, lane)?;
        let from = End::Host(HostPtr(src.ptr()));
        // SAFETY: H1, H4 as in `fill`. H5: the host function after the copy owns the block.
        self.done("Stream.copy", unsafe { self.hal().copy(lane.raw, End::Device(dst.place()), from, dst.len) })?;
        let mut kept = Some(Arc::clone(&src));
        let kept = HostFn::new(move |_| local::as_host_fn(|| drop(kept.take())));
        let held = self.host_call("Stream.copy", lane, kept);
        if held.is_err() {
            // Nobody holds it for the copy, so this function does.
            self.wait_borrowed("Stream.copy", lane)?;
        }
        held
    }

    /// Copies host memory to host memory of another device, by a host function.
    pub(crate) fn carry(
        &self,
        call: &'static str,
        lane: &Lane,
        from: Arc<HostBlock>,
        to: Arc<HostBlock>,
    ) -> Result<Arc<HostBlock>> {
        let mut pair = Some((from, Arc::clone(&to)));
        let carry = HostFn::new(move |_| {
            local::as_host_fn(|| {
                let Some((from, to)) = pair.take() else { return };
                // SAFETY: H6: the copy into `from` has ended and the one out of `to` has not begun; nobody else has them.
                unsafe { to.bytes_in_turn() }.copy_from_slice(unsafe { from.bytes_in_turn() });
            });
        });
        self.host_call(call, lane, carry)?;
        Ok(to)
    }

    /// Copies to host memory that frees itself after the copy.
    #[inline]
    pub(crate) fn download(&self, lane: &Lane, dst: &Arc<HostBlock>, at: usize, src: Part<'_>) -> Result<()> {
        if let Some(recording) = lane.recording() {
            let (to, from) = (Site::host(dst, at, src.len), Site::Device(Spot::of(&src)));
            return recording.record_transfer(
                self,
                lane,
                Work::Copy { dst: to, src: from, len: src.len },
                src.block,
                dst,
            );
        }
        src.block.used_on(self, lane)?;
        dst.used_on(lane);
        let to = dst.end(at, src.len);
        // SAFETY: H1, H4 as in `fill`. H5: the block lives until a later mark of this lane, and its owner waits for
        // this copy before it hands out any view.
        self.done("Stream.download", unsafe { self.hal().copy(lane.raw, to, End::Device(src.place()), src.len) })
    }

    /// Copies from borrowed memory and waits.
    pub(crate) fn upload_now(&self, lane: &Lane, dst: Part<'_>, src: &[u8]) -> Result<()> {
        self.wait_before_borrowing("Stream.upload", lane)?;
        dst.block.used_on(self, lane)?;
        let from = HostPtr(src.as_ptr().cast_mut());
        // SAFETY: H1, H4 as in `fill`. H5: the slice is borrowed until this function returns, which is after the copy
        // has ended (a lost device ends all work, H20); a source is only read.
        self.done("Stream.upload", unsafe {
            self.hal().copy(lane.raw, End::Device(dst.place()), End::Host(from), dst.len)
        })?;
        self.wait_borrowed("Stream.upload", lane)
    }

    /// Copies to borrowed memory and waits.
    pub(crate) fn download_now(&self, lane: &Lane, dst: &mut [u8], src: Part<'_>) -> Result<()> {
        self.wait_before_borrowing("Stream.download", lane)?;
        src.block.used_on(self, lane)?;
        let to = HostPtr(dst.as_mut_ptr());
        // SAFETY: H1, H4 as in `fill`. H5: the slice is borrowed mutably until this function returns, which is after
        // the copy has ended (H20 as above).
        self.done("Stream.download", unsafe {
            self.hal().copy(lane.raw, End::Host(to), End::Device(src.place()), src.len)
        })?;
        self.wait_borrowed("Stream.download", lane)
    }

    /// Once a copy of borrowed memory has begun its wait is seen through: what can be given up is waited for before.
    fn wait_before_borrowing(&self, call: &'static str, lane: &Lane) -> Result<()> {
        if local::stop().is_some() {
            self.wait_host(call, lane, Until::Now, None, WaitMode::Auto)?;
        }
        Ok(())
    }

    /// Waits for a copy of borrowed memory. Returns only once the memory is out of the device's hands: a fault that
    /// leaves the copy pending is waited out, since the borrow ends when this returns (H5).
    fn wait_borrowed(&self, call: &'static str, lane: &Lane) -> Result<()> {
        let mut outcome = Ok(());
        loop {
            match self.wait_through(call, lane, Until::Now, None, WaitMode::Auto) {
                Ok(true) => return outcome,
                Err(lost @ Error::DeviceLost { .. }) => return Err(lost),
                Ok(false) => {}
                // It may be that of the copy itself, told once (H33).
                Err(error) => outcome = outcome.and(Err(error)),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Launches a built-in.
    ///
    /// # Safety
    /// H15: the arguments are what the kernel expects.
    pub(crate) unsafe fn launch(
        &self,
        call: &'static str,
        lane: &Lane,
        kernel: Kernel,
        launch: Launch,
        args: &[LaunchPart<'_>],
    ) -> Result<()> {
        // SAFETY: H15 is this function's own condition.
        unsafe { self.launch_code(call, lane, kernel, None, launch, args) }
    }

    /// Launches a kernel of the user's.
    ///
    /// # Safety
    /// H15: the arguments are what the kernel expects.
    pub(crate) unsafe fn launch_loaded(
        &self,
        call: &'static str,
        lane: &Lane,
        kernel: &Arc<Loaded>,
        launch: Launch,
        args: &[LaunchPart<'_>],
    ) -> Result<()> {
        // SAFETY: H15 is this function's own condition.
        unsafe { self.launch_code(call, lane, kernel.raw, Some(kernel), launch, args) }
    }

    /// # Safety
    /// H15: the arguments are what the kernel expects.
    unsafe fn launch_code(
        &self,
        call: &'static str,
        lane: &Lane,
        kernel: Kernel,
        loaded: Option<&Arc<Loaded>>,
        launch: Launch,
        args: &[LaunchPart<'_>],
    ) -> Result<()> {
        let mut raw = [Arg::Local(0); 16];
        if args.len() > raw.len() {
            return Err(Error::Argument {
                argument: "args",
                reason: format!("a kernel takes at most {} arguments, got {}", raw.len(), args.len()),
            });
        }
        if let Some(recording) = lane.recording() {
            return self.record_launch(&recording, call, lane, kernel, loaded, launch, args);
        }
        for (to, from) in raw.iter_mut().zip(args) {
            *to = match from {
                LaunchPart::Part(part) => {
                    part.block.used_on(self, lane)?;
                    Arg::Place { place: part.place(), len: part.len }
                }
                LaunchPart::Bytes(bytes) => Arg::Bytes(bytes),
                LaunchPart::Local(len) => Arg::Local(*len),
            };
        }
        // SAFETY: H1, H4: lane and blocks are borrowed, places lie in them. H15 is this function's own condition.
        self.done(call, unsafe { self.hal().launch(lane.raw, kernel, launch, &raw[..args.len()]) })
    }

    #[cold]
    #[expect(clippy::too_many_arguments, reason = "a launch and where it goes")]
    fn record_launch(
        &self,
        recording: &Recording,
        call: &'static str,
        lane: &Lane,
        kernel: Kernel,
        loaded: Option<&Arc<Loaded>>,
        launch: Launch,
        args: &[LaunchPart<'_>],
    ) -> Result<()> {
        if let Some(loaded) = loaded {
            recording.keep_other(loaded)?;
        }
        let mut blocks = Vec::with_capacity(args.len());
        let args = args.iter().map(|arg| match arg {
            LaunchPart::Part(part) => {
                blocks.push(part.block);
                Argument::Place { spot: Spot::of(part), len: part.len }
            }
            LaunchPart::Bytes(bytes) => Argument::Bytes((*bytes).into()),
            LaunchPart::Local(len) => Argument::Local(*len),
        });
        let args = args.collect();
        // A user's kernel goes by the name of the call, a built-in by its own.
        let name = if loaded.is_some() { "kernel" } else { call.strip_prefix("Stream.").unwrap_or(call) };
        recording.record(self, lane, Work::Launch { name, kernel, launch, args }, &blocks)
    }

    /// Records a host function that is called at each replay.
    pub(crate) fn record_call(
        &self,
        recording: &Recording,
        lane: &Lane,
        function: impl FnMut() + Send + 'static,
    ) -> Result<()> {
        recording.record(self, lane, Work::Call(Repeated::new(&recording.targets, function)), &[])
    }
}
