//! Work: copies, fills, writes, launches. Parts are known to lie in their blocks, so H4 holds by type.

use super::{HostBlock, Part, Port};
use crate::error::{Error, Result};
use crate::lane::Lane;
use crate::local;
use anyaccel_hal::{Arg, End, Fault, HostFn, HostPtr, Kernel, Launch, Pattern, Until, WaitMode};
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
        dst.block.used_on(self, lane)?;
        // SAFETY: H1, H4: lane and block are borrowed and the part lies in the block. H14 by the caller's check.
        self.done("Stream.fill", unsafe { self.hal().fill(lane.raw, dst.place(), pattern, dst.len) })
    }

    /// Stores at most 64 bytes.
    #[inline]
    pub(crate) fn write(&self, lane: &Lane, dst: Part<'_>, bytes: &[u8]) -> Result<()> {
        dst.block.used_on(self, lane)?;
        // SAFETY: H1, H4: as in `fill`; the lengths were compared by the caller.
        self.done("Stream.write", unsafe { self.hal().write(lane.raw, dst.place(), bytes) })
    }

    /// Copies within this device.
    #[inline]
    pub(crate) fn copy(&self, lane: &Lane, dst: Part<'_>, src: Part<'_>) -> Result<()> {
        dst.block.used_on(self, lane)?;
        src.block.used_on(self, lane)?;
        let (to, from) = (End::Device(dst.place()), End::Device(src.place()));
        // SAFETY: H1, H4: as in `fill`, for both parts, which are equally long and don't overlap.
        self.done("Stream.copy", unsafe { self.hal().copy(lane.raw, to, from, dst.len) })
    }

    /// Copies from a peer's memory to this device's.
    pub(crate) fn copy_peer(&self, lane: &Lane, dst: Part<'_>, from: u32, src: Part<'_>) -> Result<()> {
        let peers = self.hal().peers().ok_or(Error::Unsupported { what: "Stream.copy", device: self.device })?;
        dst.block.used_on(self, lane)?;
        src.block.used_on(self, lane)?;
        // SAFETY: H1, H4, H28: both blocks are borrowed, and the parts lie in them.
        self.done("Stream.copy", unsafe { peers.copy(lane.raw, dst.place(), from, src.place(), dst.len) })
    }

    /// Copies from host memory that frees itself after the copy.
    #[inline]
    pub(crate) fn upload(&self, lane: &Lane, dst: Part<'_>, src: &HostBlock, at: usize) -> Result<()> {
        dst.block.used_on(self, lane)?;
        src.used_on(lane);
        let from = src.end(at, dst.len);
        // SAFETY: H1, H4 as in `fill`. H5: the block lives until a later mark of this lane, and its owner waits for
        // this copy before it hands out a mutable view.
        self.done("Stream.upload", unsafe { self.hal().copy(lane.raw, End::Device(dst.place()), from, dst.len) })
    }

    /// Copies from host memory that another device pinned, by its address. The block is kept until the copy has ended:
    /// it knows nothing of this device's lanes, so a host function holds it.
    pub(crate) fn upload_foreign(&self, lane: &Lane, dst: Part<'_>, src: HostBlock) -> Result<()> {
        dst.block.used_on(self, lane)?;
        let from = End::Host(HostPtr(src.ptr()));
        // SAFETY: H1, H4 as in `fill`. H5: the host function after the copy owns the block.
        self.done("Stream.copy", unsafe { self.hal().copy(lane.raw, End::Device(dst.place()), from, dst.len) })?;
        let mut kept = Some(src);
        self.host_call("Stream.copy", lane, HostFn::new(move |_| local::as_host_fn(|| drop(kept.take()))))
    }

    /// Copies host memory to host memory of another device, by a host function.
    pub(crate) fn carry(
        &self,
        call: &'static str,
        lane: &Lane,
        from: HostBlock,
        to: HostBlock,
    ) -> Result<Arc<HostBlock>> {
        let to = Arc::new(to);
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
    pub(crate) fn download(&self, lane: &Lane, dst: &HostBlock, at: usize, src: Part<'_>) -> Result<()> {
        src.block.used_on(self, lane)?;
        dst.used_on(lane);
        let to = dst.end(at, src.len);
        // SAFETY: H1, H4 as in `fill`. H5: the block lives until a later mark of this lane, and its owner waits for
        // this copy before it hands out any view.
        self.done("Stream.download", unsafe { self.hal().copy(lane.raw, to, End::Device(src.place()), src.len) })
    }

    /// Copies from borrowed memory and waits.
    pub(crate) fn upload_now(&self, lane: &Lane, dst: Part<'_>, src: &[u8]) -> Result<()> {
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
        src.block.used_on(self, lane)?;
        let to = HostPtr(dst.as_mut_ptr());
        // SAFETY: H1, H4 as in `fill`. H5: the slice is borrowed mutably until this function returns, which is after
        // the copy has ended (H20 as above).
        self.done("Stream.download", unsafe {
            self.hal().copy(lane.raw, End::Host(to), End::Device(src.place()), src.len)
        })?;
        self.wait_borrowed("Stream.download", lane)
    }

    /// Waits for a copy of borrowed memory. Returns only once the memory is out of the device's hands: a fault that
    /// leaves the copy pending is waited out, since the borrow ends when this returns (H5).
    fn wait_borrowed(&self, call: &'static str, lane: &Lane) -> Result<()> {
        loop {
            match self.wait_host(call, lane, Until::Now, None, WaitMode::Auto) {
                Ok(true) => return Ok(()),
                Err(lost @ Error::DeviceLost { .. }) => return Err(lost),
                Ok(false) | Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Launches a kernel.
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
        let mut raw = [Arg::Local(0); 16];
        if args.len() > raw.len() {
            return Err(Error::Argument {
                argument: "args",
                reason: format!("a kernel takes at most {} arguments, got {}", raw.len(), args.len()),
            });
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
}
