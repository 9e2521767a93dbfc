//! Memory of a lab, on devices and on the host, and the work on it.

use super::{Lab, Stream, locked};
use crate::case::Outcome;
use anyaccel_hal::{
    Arg, Device, End, Fault, HostPtr, Kernel, KernelSource, Launch, Mem, Pattern, Place, Range, Segment,
};
use std::sync::Arc;

/// Memory as an argument of a kernel.
pub(crate) fn arg<'a>(region: Region) -> Arg<'a> {
    Arg::Place { place: region.place, len: region.len }
}

/// A part of a device's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Region {
    pub(crate) device: usize,
    pub(crate) place: Place,
    pub(crate) len: u64,
}

impl Region {
    /// The part of `len` bytes from `offset` on.
    pub(crate) fn part(self, offset: u64, len: u64) -> Region {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a case steps out of its memory");
        Region { place: self.place.add(offset), len, ..self }
    }

    /// The part that begins at `offset`.
    pub(crate) fn from(self, offset: u64) -> Region {
        self.part(offset, self.len - offset)
    }
}

/// A part of the host's memory that a lab keeps. Anyone may look at it at any time, so no reference to it is ever made.
///
/// Pinned where the device has pinned memory, so that copies never block their caller (H5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    at: HostPtr,
    len: usize,
    pinned: Option<(usize, Place)>,
}

impl Host {
    pub(crate) fn len(self) -> usize {
        self.len
    }

    pub(crate) fn part(self, offset: usize, len: usize) -> Host {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a case steps out of its memory");
        let pinned = self.pinned.map(|(device, place)| (device, place.add(offset as u64)));
        Host { at: HostPtr(self.at.0.wrapping_add(offset)), len, pinned }
    }

    /// How a copy on a stream of that device names it.
    fn end(self, device: usize) -> End {
        match self.pinned {
            Some((owner, place)) if owner == device => End::Pinned(place),
            _ => End::Host(self.at),
        }
    }

    /// What is in it now.
    pub(crate) fn look(self) -> Vec<u8> {
        let mut seen = vec![0; self.len];
        // SAFETY: H5, the lab keeps the memory while work may use it, and part() narrows only. A backend that keeps H5
        // is not writing when a case looks at what it copied; one that breaks it is what the case wants to see.
        unsafe { self.at.0.copy_to_nonoverlapping(seen.as_mut_ptr(), self.len) };
        seen
    }

    pub(crate) fn address(self) -> usize {
        self.at.0.addr()
    }

    /// The byte at `at`, now.
    #[inline(never)] // a frame of its own, by whose name a thread sanitizer is told to let it be
    pub(crate) fn byte(self, at: usize) -> u8 {
        // SAFETY: as for look; volatile, since cases poll it.
        unsafe { self.part(at, 1).at.0.read_volatile() }
    }

    /// Overwrites the beginning.
    pub(crate) fn put(self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len, "a case steps out of its memory");
        // SAFETY: as for look; cases write only what no work uses at that moment.
        unsafe { self.at.0.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Overwrites all of it with one byte.
    pub(crate) fn set(self, byte: u8) {
        self.put(&vec![byte; self.len]);
    }
}

/// What a lab gives back in the end.
#[derive(Default)]
pub(crate) struct Kept {
    memory: Vec<(usize, Mem)>,
    pinned: Vec<(usize, Mem)>,
    ranges: Vec<(usize, Range)>,
    kernels: Vec<(usize, Kernel)>,
    host: Vec<HostMemory>,
}

/// An allocation without a Rust owner that could claim exclusive access: the device and volatile looks share it.
struct HostMemory(*mut [u8]);

// SAFETY: it is only the duty to free the allocation.
unsafe impl Send for HostMemory {}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: made by Box::into_raw in Lab::host; dropped once, after all work ended (H5).
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl Kept {
    pub(super) fn give_back(self, devices: &[Arc<dyn Device>]) {
        for (device, kernel) in self.kernels {
            if let Some(kernels) = devices[device].kernels() {
                // SAFETY: H1, loaded by the lab and used no more.
                unsafe { kernels.unload(kernel) };
            }
        }
        for (device, mem) in self.memory.into_iter().rev() {
            // SAFETY: H1 and H4, taken by the lab, and all streams have ended.
            let _cleanup = unsafe { devices[device].free(mem) };
        }
        for (device, range) in self.ranges {
            if let Some(memory) = devices[device].virtual_memory() {
                // SAFETY: as above.
                let _cleanup = unsafe { memory.release(range) };
            }
        }
        for (device, mem) in self.pinned {
            if let Some(pinned) = devices[device].pinned() {
                // SAFETY: as above, and H5.
                let _cleanup = unsafe { pinned.free(mem) };
            }
        }
    }
}

/// `len` bytes that repeat with no short period, other ones for each `salt`.
pub(crate) fn bytes(salt: u64, len: usize) -> Vec<u8> {
    let mut random = crate::random::Random::new(salt);
    let mut made = vec![0; len.next_multiple_of(8)];
    for word in made.as_chunks_mut().0 {
        *word = random.next().to_le_bytes();
    }
    made.truncate(len);
    made
}

impl Lab {
    // Memory

    pub(crate) fn segment(&self, device: usize, len: u64) -> Result<Segment, Fault> {
        let segment = self.device(device).alloc(len)?;
        locked(&self.kept).memory.push((device, segment.mem));
        Ok(segment)
    }

    pub(crate) fn memory(&self, len: u64) -> Result<Region, Fault> {
        self.memory_on(0, len)
    }

    pub(crate) fn memory_on(&self, device: usize, len: u64) -> Result<Region, Fault> {
        let segment = self.segment(device, len)?;
        Ok(Region { device, place: Place { mem: segment.mem, offset: 0 }, len })
    }

    /// The whole of a segment.
    pub(crate) fn region(&self, device: usize, segment: &Segment) -> Region {
        Region { device, place: Place { mem: segment.mem, offset: 0 }, len: segment.len }
    }

    /// Memory on `stream`'s device that holds `bytes` once the stream gets there.
    pub(crate) fn memory_with(&self, stream: Stream, bytes: &[u8]) -> Outcome<Region> {
        let region = self.memory_on(stream.device, bytes.len() as u64)?;
        self.upload(stream, region, self.host_on(stream.device, bytes)?)?;
        Ok(region)
    }

    /// Names a region's memory a second time, as somebody else's. The lab frees it before the first.
    pub(crate) fn import(&self, region: Region) -> Result<Region, Fault> {
        let device = self.device(region.device);
        // SAFETY: H1, see the module; the lab keeps the memory until after the import is freed, since it frees the
        // latest first.
        let segment = unsafe {
            let native = device.native_mem(region.place.mem);
            device.import(native, region.place.offset + region.len)?
        };
        locked(&self.kept).memory.push((region.device, segment.mem));
        Ok(Region { place: Place { mem: segment.mem, offset: region.place.offset }, ..region })
    }

    /// Frees memory; the case has waited for its work.
    pub(crate) fn free(&self, device: usize, mem: Mem) -> Result<(), Fault> {
        locked(&self.kept).memory.retain(|&kept| kept != (device, mem));
        // SAFETY: H1 and H4, the lab took it, and the case has waited for its work.
        unsafe { self.device(device).free(mem) }
    }

    /// Host memory for copies of device 0 with that content, kept until the lab goes.
    pub(crate) fn host(&self, content: &[u8]) -> Outcome<Host> {
        self.host_on(0, content)
    }

    /// Host memory for copies of that device with that content, kept until the lab goes.
    pub(crate) fn host_on(&self, device: usize, content: &[u8]) -> Outcome<Host> {
        let host = match self.device(device).pinned() {
            Some(_) => self.pinned(device, content.len() as u64)?,
            None => self.plain(content),
        };
        host.put(content);
        Ok(host)
    }

    /// Host memory that no device knows of.
    pub(crate) fn plain(&self, content: &[u8]) -> Host {
        let raw = Box::into_raw(Box::<[u8]>::from(content));
        locked(&self.kept).host.push(HostMemory(raw));
        Host { at: HostPtr(raw.cast()), len: content.len(), pinned: None }
    }

    /// Pinned host memory.
    pub(crate) fn pinned(&self, device: usize, len: u64) -> Outcome<Host> {
        let Some(pinned) = self.device(device).pinned() else { return crate::case::skip("no pinned memory") };
        let (mem, at) = pinned.alloc(len)?;
        locked(&self.kept).pinned.push((device, mem));
        Ok(Host { at, len: len as usize, pinned: Some((device, Place { mem, offset: 0 })) })
    }

    /// Releases a reservation in the end.
    pub(crate) fn keep_range(&self, device: usize, range: Range) {
        locked(&self.kept).ranges.push((device, range));
    }

    // Work

    pub(crate) fn upload(&self, stream: Stream, dst: Region, src: Host) -> Result<(), Fault> {
        assert_eq!(dst.len, src.len as u64, "a case copies between lengths");
        // SAFETY: H1, H4 and H5, see the module; host and device memory lie apart.
        unsafe { self.device(stream.device).copy(stream.id, End::Device(dst.place), src.end(stream.device), dst.len) }
    }

    pub(crate) fn download(&self, stream: Stream, dst: Host, src: Region) -> Result<(), Fault> {
        assert_eq!(dst.len as u64, src.len, "a case copies between lengths");
        // SAFETY: H1, H4 and H5, see the module.
        unsafe { self.device(stream.device).copy(stream.id, dst.end(stream.device), End::Device(src.place), src.len) }
    }

    /// A copy between two places of a device, which do not overlap.
    pub(crate) fn copy(&self, stream: Stream, dst: Region, src: Region) -> Result<(), Fault> {
        assert_eq!(dst.len, src.len, "a case copies between lengths");
        let (to, from) = (dst.place.offset, src.place.offset);
        let apart = dst.place.mem != src.place.mem || to + dst.len <= from || from + src.len <= to;
        assert!(apart, "a case copies between overlapping places");
        // SAFETY: H1 and H4, see the module; the ends lie apart.
        unsafe { self.device(stream.device).copy(stream.id, End::Device(dst.place), End::Device(src.place), dst.len) }
    }

    /// A copy between two host ends, which every device refuses.
    pub(crate) fn copy_on_host(&self, stream: Stream, dst: Host, src: Host) -> Result<(), Fault> {
        assert_eq!(dst.len, src.len, "a case copies between lengths");
        // SAFETY: H1 and H5, see the module.
        unsafe {
            self.device(stream.device).copy(stream.id, dst.end(stream.device), src.end(stream.device), dst.len as u64)
        }
    }

    /// A copy from another device, on a stream of the destination.
    pub(crate) fn peer_copy(&self, stream: Stream, dst: Region, src: Region) -> Result<(), Fault> {
        assert_eq!(dst.len, src.len, "a case copies between lengths");
        let Some(peers) = self.device(stream.device).peers() else { return Err(Fault::unsupported("peers")) };
        // SAFETY: H1 and H4, see the module.
        unsafe { peers.copy(stream.id, dst.place, src.device as u32, src.place, dst.len) }
    }

    /// A fill with a pattern of a size that the device has, or a refused one.
    pub(crate) fn fill_with(&self, stream: Stream, dst: Region, pattern: &[u8]) -> Result<(), Fault> {
        let made = Pattern::new(pattern).unwrap_or_else(|| panic!("a case fills with {} bytes", pattern.len()));
        let size = pattern.len() as u64;
        let fits = dst.place.offset.is_multiple_of(size) && dst.len.is_multiple_of(size);
        assert!(fits, "a case fills off its pattern's alignment");
        // SAFETY: H1, H4 and H14, see the module.
        unsafe { self.device(stream.device).fill(stream.id, dst.place, made, dst.len) }
    }

    /// Sets every byte, by whatever the device has for it.
    pub(crate) fn fill(&self, stream: Stream, dst: Region, byte: u8) -> Outcome {
        if self.device(stream.device).info().fill_patterns.has(1) {
            return Ok(self.fill_with(stream, dst, &[byte])?);
        }
        let host = self.host_on(stream.device, &vec![byte; dst.len as usize])?;
        Ok(self.upload(stream, dst, host)?)
    }

    pub(crate) fn write(&self, stream: Stream, dst: Region, bytes: &[u8]) -> Result<(), Fault> {
        assert!(dst.len >= bytes.len() as u64, "a case steps out of its memory");
        // SAFETY: H1 and H4, see the module.
        unsafe { self.device(stream.device).write(stream.id, dst.place, bytes) }
    }

    /// Loads a kernel that is a function of this process.
    pub(crate) fn load(&self, device: usize, kernel: anyaccel_hal::HostKernel) -> Outcome<Kernel> {
        let Some(kernels) = self.device(device).kernels() else { return crate::case::skip("no kernels can be loaded") };
        // SAFETY: cases launch it with the arguments that it expects.
        let kernel = unsafe { kernels.load(KernelSource::Host(kernel)) }?;
        locked(&self.kept).kernels.push((device, kernel));
        Ok(kernel)
    }

    /// Unloads a kernel that a case loaded; the case has waited for its launches.
    pub(crate) fn unload(&self, device: usize, kernel: Kernel) {
        locked(&self.kept).kernels.retain(|&kept| kept != (device, kernel));
        if let Some(kernels) = self.device(device).kernels() {
            // SAFETY: H1, the lab loaded it, and the case launches it no more.
            unsafe { kernels.unload(kernel) };
        }
    }

    /// Launches a kernel of the case's own or a built-in; the case gives the arguments that it expects.
    pub(crate) fn launch(&self, stream: Stream, kernel: Kernel, launch: Launch, args: &[Arg<'_>]) -> Result<(), Fault> {
        // SAFETY: H1, H4 and H15, see the module; places come from regions.
        unsafe { self.device(stream.device).launch(stream.id, kernel, launch, args) }
    }

    /// What is in a region once everything before has ended.
    pub(crate) fn read(&self, stream: Stream, region: Region) -> Outcome<Vec<u8>> {
        let host = self.host_on(stream.device, &vec![0xA5; region.len as usize])?;
        self.download(stream, host, region)?;
        self.finish(stream)?;
        Ok(host.look())
    }
}
