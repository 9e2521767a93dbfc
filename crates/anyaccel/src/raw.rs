//! Memory by address: for bindings whose users have nothing but a pointer, and give it back by that.
//!
//! # Protocol
//!
//! [`Addresses`] keeps what was given out by address, device memory and pinned memory apart, each behind a lock of its own. A
//! lock is held for a search alone: blocks are cloned or taken out under it, and used and dropped without it. So any thread may
//! look anything up, in host functions too. Where the caller promises that nobody takes a block out meanwhile, it is lent: used
//! without being counted.
//!
//! Addresses are looked up, never followed: one that names nothing is an error.

use crate::buffer::{Buffer, BufferSlice};
use crate::device::{Device, DeviceArg};
use crate::error::{Error, Result};
use crate::port::{Block, HostBlock, Port};
use crate::runtime::Runtime;
use crate::stream::Stream;
use anyaccel_hal::{Fault, Kind};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What was given out by address, by where it begins.
struct Map<T>(Mutex<BTreeMap<u64, (u64, Arc<T>)>>);

impl<T> Default for Map<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Map<T> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, (u64, Arc<T>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a block; gives it back if another one begins there.
    #[inline]
    fn insert(&self, addr: u64, len: u64, block: Arc<T>) -> Result<(), Arc<T>> {
        match self.lock().entry(addr) {
            Entry::Vacant(place) => {
                place.insert((len, block));
                Ok(())
            }
            Entry::Occupied(_) => Err(block),
        }
    }

    /// The block that begins there.
    #[inline]
    fn remove(&self, addr: u64) -> Option<Arc<T>> {
        self.lock().remove(&addr).map(|(_, block)| block)
    }

    /// The block that has that address, and how far inside it is.
    #[inline]
    fn find(&self, addr: u64) -> Option<(Arc<T>, u64)> {
        self.look(addr, Arc::clone)
    }

    /// The same, not counted.
    ///
    /// # Safety
    /// Nobody removes the block until what this returns was dropped.
    #[inline]
    unsafe fn lend(&self, addr: u64) -> Option<(Lent<T>, u64)> {
        // SAFETY: the map's own count lasts, by this function's contract, and `Lent` gives none back.
        self.look(addr, |block| Lent(ManuallyDrop::new(unsafe { Arc::from_raw(Arc::as_ptr(block)) })))
    }

    /// What is made of the block that has that address, under the lock.
    #[inline]
    fn look<R>(&self, addr: u64, make: impl FnOnce(&Arc<T>) -> R) -> Option<(R, u64)> {
        let blocks = self.lock();
        let (start, (len, block)) = blocks.range(..=addr).next_back()?;
        (addr - start < *len).then(|| (make(block), addr - start))
    }
}

/// A block that is counted by its map alone.
struct Lent<T>(ManuallyDrop<Arc<T>>);

impl<T> Deref for Lent<T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

/// A buffer whose block is counted by its map alone.
struct LentBuffer(Buffer);

impl Drop for LentBuffer {
    #[inline]
    fn drop(&mut self) {
        self.0.forget_block();
    }
}

/// A runtime's memory that was given out by address.
#[derive(Default)]
pub(crate) struct Addresses {
    device: Map<Block>,
    pinned: Map<HostBlock>,
}

const DEVICE: &str = "device memory";
const PINNED: &str = "pinned memory";

/// How a device's memory is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryFacts {
    /// Whether the host may read and write device memory at its addresses, in stream order. False where that is not known.
    pub host_addressable: bool,
    /// Whether host memory really is pinned.
    pub pins: bool,
}

/// Pinned memory that was given out by address.
#[derive(Clone)]
pub struct PinnedAt {
    block: Arc<HostBlock>,
    /// The device that it was pinned for.
    pub device: Device,
    /// Where it begins.
    pub start: u64,
    /// The bytes that were asked for.
    pub len: u64,
}

impl std::fmt::Debug for PinnedAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PinnedAt").field("device", &self.device).field("len", &self.len).finish_non_exhaustive()
    }
}

impl PinnedAt {
    /// The bytes that are held for it.
    pub fn capacity(&self) -> u64 {
        self.block.capacity()
    }
}

impl Buffer {
    /// Leaves the buffer to the runtime, which keeps it until [`Runtime::take_buffer`] is called with the address that this
    /// returns: 0 for a buffer without bytes, which needs no such call. Dropping the runtime drops it.
    ///
    /// ```
    /// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
    /// let addr = runtime.buffer_from(b"to be or not to be")?.into_address()?;
    /// let (same, offset) = runtime.buffer_at(addr + 3)?;
    /// assert_eq!((same.to_vec()?.len(), offset), (18, 3));
    /// drop(runtime.take_buffer(addr)?);
    /// assert!(runtime.buffer_at(addr).is_err());
    /// # Ok::<(), anyaccel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a device whose memory has no addresses, or not its own alone; [`Error::StaleHandle`].
    pub fn into_address(self) -> Result<u64> {
        let call = "Buffer.into_address";
        let runtime = self.runtime().clone();
        runtime.check_generation(call, "buffer")?;
        let (device, len) = (self.device(), self.len());
        let Some(block) = self.into_block() else { return Ok(0) };
        let addr = block.addr();
        if block.port.info().place_alignment > 1 {
            return Err(Error::Unsupported { what: "memory by address", device });
        }
        match runtime.core.addresses.device.insert(addr, len, block) {
            Ok(()) => Ok(addr),
            Err(_taken) => Err(Error::Unsupported { what: "memory at an address that another device has too", device }),
        }
    }
}

impl Runtime {
    /// Device memory that was left to the runtime by [`Buffer::into_address`], back as a buffer: dropping it frees it. May be
    /// called from host functions. Starts nothing.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] unless it is the address of its first byte; [`Error::StaleHandle`], [`Error::Exiting`].
    #[inline]
    pub fn take_buffer(&self, addr: u64) -> Result<Buffer> {
        self.check_generation("take_buffer", "address")?;
        match self.core.addresses.device.remove(addr) {
            Some(block) => Ok(Buffer::of_block(self.clone(), block)),
            None => Err(Error::UnknownAddress { what: DEVICE, addr }),
        }
    }

    /// Device memory that was left to the runtime, by any address inside: a buffer that shares it, and how far inside the
    /// address is. The memory is freed when it was taken and all such buffers were dropped. Starts nothing.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`]; [`Error::StaleHandle`], [`Error::Exiting`].
    #[inline]
    pub fn buffer_at(&self, addr: u64) -> Result<(Buffer, u64)> {
        self.check_generation("buffer_at", "address")?;
        match self.core.addresses.device.find(addr) {
            Some((block, offset)) => Ok((Buffer::of_block(self.clone(), block), offset)),
            None => Err(Error::UnknownAddress { what: DEVICE, addr }),
        }
    }

    /// Runs a function with device memory that was left to the runtime, by any address inside, and with how far inside the
    /// address is: as [`Runtime::buffer_at`] for those who know that the memory stays, which needs no counting. Starts nothing.
    ///
    /// ```
    /// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
    /// let addr = runtime.buffer_from(b"to be or not to be")?.into_address()?;
    /// // SAFETY: it is taken back below, after this.
    /// let left = unsafe { runtime.with_buffer_at(addr + 3, |buffer, offset| buffer.len() - offset)? };
    /// assert_eq!(left, 15);
    /// drop(runtime.take_buffer(addr)?);
    /// # Ok::<(), anyaccel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Runtime::buffer_at`].
    ///
    /// # Safety
    /// Nobody takes the memory by [`Runtime::take_buffer`] until the function has returned.
    #[inline]
    pub unsafe fn with_buffer_at<R>(&self, addr: u64, f: impl FnOnce(&Buffer, u64) -> R) -> Result<R> {
        self.check_generation("with_buffer_at", "address")?;
        // SAFETY: this function's contract.
        match unsafe { self.core.addresses.device.lend(addr) } {
            Some((lent, offset)) => {
                let buffer = LentBuffer(Buffer::of_block(self.clone(), ManuallyDrop::into_inner(lent.0)));
                Ok(f(&buffer.0, offset))
            }
            None => Err(Error::UnknownAddress { what: DEVICE, addr }),
        }
    }

    /// Pinned host memory by address, as [`Runtime::pinned`] but for its owner: it is valid until [`Runtime::free_pinned`] is
    /// called, and who reads or writes it has to wait for the copies that use it. 0 for no bytes. May start the runtime.
    ///
    /// # Errors
    /// As [`Runtime::pinned`].
    pub fn alloc_pinned<'a>(&self, device: impl Into<DeviceArg<'a>>, bytes: usize) -> Result<u64> {
        let port = self.port("alloc_pinned", device.into())?;
        if bytes == 0 {
            return Ok(0);
        }
        let block = port.alloc_host(bytes)?;
        let addr = block.ptr().expose_provenance() as u64;
        match self.core.addresses.pinned.insert(addr, bytes as u64, block) {
            Ok(()) => Ok(addr),
            Err(_taken) => {
                let fault = Fault::invalid("alloc", format!("{addr:#x} was given out already"));
                Err(Error::from_fault("alloc_pinned", port.device, fault))
            }
        }
    }

    /// Gives it back. It is reused once the copies that use it have ended. May be called from host functions. Starts nothing.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] unless it is the address of its first byte; [`Error::StaleHandle`], [`Error::Exiting`].
    pub fn free_pinned(&self, addr: u64) -> Result<()> {
        self.check_generation("free_pinned", "address")?;
        match self.core.addresses.pinned.remove(addr) {
            Some(block) => {
                drop(block);
                Ok(())
            }
            None => Err(Error::UnknownAddress { what: PINNED, addr }),
        }
    }

    /// The pinned memory that an address lies in. Starts nothing.
    pub fn pinned_at(&self, addr: u64) -> Option<PinnedAt> {
        let (block, offset) = self.pinned_block(addr)?;
        let (device, len) = (block.port.device, block.len as u64);
        Some(PinnedAt { block, device, start: addr - offset, len })
    }

    fn pinned_block(&self, addr: u64) -> Option<(Arc<HostBlock>, u64)> {
        if self.core.current() { self.core.addresses.pinned.find(addr) } else { None }
    }

    /// Notes that work on `stream`, enqueued by other means than this crate, uses pinned memory: once given back it is reused
    /// when what is on that stream by then has ended.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`]; [`Error::ForeignRuntime`], [`Error::ForeignDevice`], [`Error::StaleHandle`].
    pub fn record_pinned(&self, addr: u64, stream: &Stream) -> Result<()> {
        stream.port("record_pinned")?;
        let (block, _) = self.pinned_block(addr).ok_or(Error::UnknownAddress { what: PINNED, addr })?;
        if !self.same(stream.runtime()) {
            return Err(Error::ForeignRuntime { what: "stream" });
        }
        if block.port.device != stream.device() {
            return Err(Error::ForeignDevice {
                what: "pinned memory",
                given: block.port.device,
                wanted: stream.device(),
            });
        }
        block.used_on(&stream.lane);
        Ok(())
    }

    /// How a device's memory is reached. May start the runtime.
    ///
    /// # Errors
    /// Those of the device argument and of starting.
    pub fn memory_facts<'a>(&self, device: impl Into<DeviceArg<'a>>) -> Result<MemoryFacts> {
        let port = self.port("memory_facts", device.into())?;
        Ok(MemoryFacts { host_addressable: port.device.kind() == Kind::HOST, pins: port.pins() })
    }
}

impl Stream {
    /// Device memory whose home is this stream, whichever is current. Contents are undefined.
    ///
    /// # Errors
    /// As [`Runtime::alloc`].
    #[inline]
    pub fn alloc(&self, bytes: u64) -> Result<Buffer> {
        let port = self.port("Stream.alloc")?;
        match port.alloc(&self.lane, bytes)? {
            Some(block) => Ok(Buffer::of_block(self.runtime.clone(), block)),
            None => Ok(Buffer::empty(self.runtime.clone(), port.device)),
        }
    }

    /// The pinned memory of this stream's device that a range of host memory lies in, and where in it.
    ///
    /// # Safety
    /// That memory is not freed until what this returns was dropped.
    #[inline]
    unsafe fn pinned_here(&self, port: &Port, addr: u64, len: u64) -> Option<(Lent<HostBlock>, usize)> {
        if !self.runtime.core.current() {
            return None;
        }
        // SAFETY: this function's contract.
        let (block, at) = unsafe { self.runtime.core.addresses.pinned.lend(addr)? };
        let fits = at.checked_add(len).is_some_and(|end| end <= block.len as u64);
        (fits && block.port.ordinal == port.ordinal).then_some((block, at as usize))
    }

    /// Copies host memory to a buffer. From memory of [`Runtime::alloc_pinned`] for this device it returns at once, else as
    /// [`Stream::upload`].
    ///
    /// # Errors
    /// As [`Stream::upload`].
    ///
    /// # Safety
    /// `src` is valid for reads of the buffer's length; nobody writes there during the call and, if it is pinned, until the copy
    /// has ended. Freeing it by [`Runtime::free_pinned`] needs no wait.
    pub unsafe fn upload_from(&self, dst: &BufferSlice<'_>, src: *const u8) -> Result<()> {
        let port = self.port("Stream.upload_from")?;
        dst.buffer().on(self)?;
        let Some(to) = dst.part()? else { return Ok(()) };
        // SAFETY: memory that is read during the call is not freed during it.
        match unsafe { self.pinned_here(port, src.addr() as u64, to.len) } {
            Some((block, at)) => port.upload(&self.lane, to, &block, at),
            // SAFETY: this function's contract, for the call.
            None => self.upload(dst, unsafe { std::slice::from_raw_parts(src, to.len as usize) }),
        }
    }

    /// Copies a buffer to host memory. To memory of [`Runtime::alloc_pinned`] for this device it returns at once, else as
    /// [`Stream::download`].
    ///
    /// # Errors
    /// As [`Stream::download`].
    ///
    /// # Safety
    /// `dst` is valid for reads and writes of the buffer's length; nobody reads or writes there during the call and, if it is
    /// pinned, until the copy has ended. Freeing it by [`Runtime::free_pinned`] needs no wait.
    pub unsafe fn download_into(&self, dst: *mut u8, src: &BufferSlice<'_>) -> Result<()> {
        let port = self.port("Stream.download_into")?;
        src.buffer().on(self)?;
        let Some(from) = src.part()? else { return Ok(()) };
        // SAFETY: memory that is written during the call is not freed during it.
        match unsafe { self.pinned_here(port, dst.addr() as u64, from.len) } {
            Some((block, at)) => port.download(&self.lane, &block, at, from),
            // SAFETY: this function's contract, for the call.
            None => self.download(unsafe { std::slice::from_raw_parts_mut(dst, from.len as usize) }, src),
        }
    }
}
