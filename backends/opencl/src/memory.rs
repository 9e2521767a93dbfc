//! Memory, in the forms that devices have: by address (USM, SVM), by object and with an address (device addresses), by
//! object alone. A block frees itself when it is dropped.

use crate::config::Addressing;
use crate::conv::{check, fault, made};
use crate::object::Buffer;
use crate::part::Part;
use crate::sys::{self, MEM_OBJECT_ALLOCATION_FAILURE, Raw};
use anyaccel_hal::{Fault, HostPtr};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What host memory of the device is aligned to, and its lengths are rounded up to.
pub(crate) const PAGE: u64 = 4096;

/// Where a block's bytes are.
enum Form {
    /// Unified shared memory.
    Usm(*mut u8),
    /// Shared virtual memory.
    Svm(*mut u8),
    /// Somebody else's address.
    Borrowed(*mut u8),
    /// An object.
    Object(Buffer),
    /// An object that is mapped for its whole life, and where.
    Mapped(Buffer, *mut u8),
}

/// A piece of memory.
pub(crate) struct Block {
    part: Arc<Part>,
    form: Form,
    /// The device address, or a synthetic one.
    pub(crate) addr: u64,
    pub(crate) len: u64,
    /// Bytes that count as taken.
    charged: u64,
    /// Where the host sees it, for pinned memory.
    host: Option<*mut u8>,
}

// SAFETY: the pointers name memory of the driver, which any thread may name (C3); who may access it is ruled by H4, H5.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// Where an operation's end is.
#[derive(Clone, Copy)]
pub(crate) enum Spot {
    /// At an address: of the device, or of the host.
    Address(*mut u8),
    /// In an object, at an offset.
    Object(Raw, usize),
}

/// The next synthetic address. Never given out twice, so that no two blocks overlap.
pub(crate) struct Addresses(AtomicU64);

impl Addresses {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(1 << 32))
    }

    fn take(&self, len: u64, alignment: u64) -> u64 {
        let step = len.next_multiple_of(PAGE.max(alignment));
        self.0.fetch_add(step, Ordering::Relaxed)
    }
}

impl Block {
    /// `len` bytes of device memory, backed (H3).
    pub(crate) fn new(part: &Arc<Part>, len: u64, addresses: &Addresses) -> Result<Self, Fault> {
        part.charge(len)?;
        let taken = Charge { part, len };
        let size = len as usize;
        let (form, addr) = match part.facts.addressing {
            Addressing::Usm => {
                let at = usm_device(part, size)?;
                (Form::Usm(at), at.expose_provenance() as u64)
            }
            Addressing::Svm => {
                let at = svm(part, size, 0)?;
                (Form::Svm(at), at.expose_provenance() as u64)
            }
            Addressing::DeviceAddress => {
                let buffer = part.context.addressed_buffer(size).ok_or(Fault::unsupported("alloc"))??;
                let addr = buffer.device_addresses().and_then(|all| all.get(part.member).copied());
                let addr = addr.ok_or_else(|| fault("clGetMemObjectInfo", -30))?;
                (Form::Object(buffer), addr)
            }
            Addressing::Buffer => {
                let buffer = part.context.buffer(sys::MEM_READ_WRITE, size)?;
                (Form::Object(buffer), addresses.take(len, part.facts.info.alignment))
            }
        };
        std::mem::forget(taken);
        let block = Self { part: Arc::clone(part), form, addr, len, charged: len, host: None };
        block.back()?;
        Ok(block)
    }

    /// Moves it to the device and waits for that: making it alone may take no memory yet. USM of a device is there from the start
    /// and never moves; Intel's runtime for CPUs refuses to be asked (`clEnqueueMigrateMemINTEL`: -30, whatever the flags).
    fn back(&self) -> Result<(), Fault> {
        let (api, queue) = (self.part.api(), self.part.own_queue()?);
        let undefined = sys::MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
        let status = match (&self.form, api.clEnqueueSVMMigrateMem) {
            (&Form::Svm(at), Some(migrate)) => {
                let (list, sizes) = ([at.cast_const().cast()], [self.len as usize]);
                // SAFETY: C1, C2: the memory was made just now, by the function of the same version.
                unsafe {
                    let (list, sizes) = (list.as_ptr(), sizes.as_ptr());
                    migrate(queue.raw(), 1, list, sizes, undefined, 0, ptr::null(), ptr::null_mut())
                }
            }
            (Form::Object(buffer), _) => {
                let list = [buffer.raw()];
                // SAFETY: C1, C2: as above.
                unsafe {
                    let list = list.as_ptr();
                    (api.clEnqueueMigrateMemObjects)(queue.raw(), 1, list, undefined, 0, ptr::null(), ptr::null_mut())
                }
            }
            _ => return Ok(()),
        };
        check("migration", status)?;
        queue.finish()
    }

    /// Host memory that the device reaches (H27).
    pub(crate) fn pinned(part: &Arc<Part>, len: u64, addresses: &Addresses) -> Result<Self, Fault> {
        // Room to begin at a page.
        let padded = len.checked_add(PAGE).and_then(|len| usize::try_from(len).ok());
        let padded = padded.ok_or_else(|| fault("alloc", MEM_OBJECT_ALLOCATION_FAILURE))?;
        let form = match (pinned_form(part), &part.facts.usm) {
            (Addressing::Usm, Some(usm)) => {
                let mut status = 0;
                // SAFETY: C1, C2: no properties are given.
                let at = unsafe { (usm.clHostMemAllocINTEL)(part.context.raw(), ptr::null(), padded, 0, &mut status) };
                Form::Usm(made("clHostMemAllocINTEL", at.cast(), status)?)
            }
            (Addressing::Svm, _) => Form::Svm(svm(part, padded, sys::MEM_SVM_FINE_GRAIN_BUFFER)?),
            _ => mapped(part, padded)?,
        };
        let (Form::Usm(start) | Form::Svm(start) | Form::Mapped(_, start)) = form else {
            return Err(Fault::unsupported("alloc"));
        };
        let host = start.wrapping_add(start.align_offset(PAGE as usize));
        let addr = match form {
            Form::Mapped(..) => addresses.take(len, PAGE),
            _ => host.expose_provenance() as u64,
        };
        Ok(Self { part: Arc::clone(part), form, addr, len, charged: 0, host: Some(host) })
    }

    /// Memory of somebody else, by what [`Block::native`] gives.
    ///
    /// # Safety
    /// As for `Device::import`.
    pub(crate) unsafe fn borrow(part: &Arc<Part>, native: u64, len: u64, addresses: &Addresses) -> Result<Self, Fault> {
        let at = ptr::with_exposed_provenance_mut::<u8>(native as usize);
        let (form, addr) = match part.facts.addressing {
            Addressing::Usm | Addressing::Svm => (Form::Borrowed(at), native),
            Addressing::DeviceAddress | Addressing::Buffer => {
                // SAFETY: a live cl_mem, as this function's caller promises.
                let buffer = unsafe { Buffer::retain(part.api(), at.cast()) }?;
                (Form::Object(buffer), addresses.take(len, part.facts.info.alignment))
            }
        };
        Ok(Self { part: Arc::clone(part), form, addr, len, charged: 0, host: None })
    }

    /// What another library would name it by.
    pub(crate) fn native(&self) -> u64 {
        match &self.form {
            Form::Object(buffer) | Form::Mapped(buffer, _) => buffer.raw().expose_provenance() as u64,
            Form::Usm(_) | Form::Svm(_) | Form::Borrowed(_) => self.addr,
        }
    }

    /// Where it is for the host, if the host may name it.
    pub(crate) fn host(&self) -> Option<HostPtr> {
        self.host.map(HostPtr)
    }

    /// The place `offset` bytes from its start. Inside of it by H4.
    #[inline]
    pub(crate) fn spot(&self, offset: u64) -> Spot {
        let offset = offset as usize;
        match (&self.form, self.host) {
            (Form::Object(buffer), _) => Spot::Object(buffer.raw(), offset),
            (_, Some(host)) => Spot::Address(host.wrapping_add(offset)),
            (&(Form::Usm(at) | Form::Svm(at) | Form::Borrowed(at) | Form::Mapped(_, at)), None) => {
                Spot::Address(at.wrapping_add(offset))
            }
        }
    }

    /// Its object, where it has one that kernels may use.
    pub(crate) fn object(&self) -> Option<&Buffer> {
        match &self.form {
            Form::Object(buffer) => Some(buffer),
            _ => None,
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let part = &self.part;
        match (&self.form, &part.facts.usm, part.api().clSVMFree) {
            (&Form::Usm(at), Some(usm), _) => {
                // SAFETY: C1: taken from the same extension, freed once; by H4 no work uses it.
                let _status = unsafe { (usm.clMemFreeINTEL)(part.context.raw(), at.cast()) };
            }
            // SAFETY: C1: as above.
            (&Form::Svm(at), _, Some(free)) => unsafe { free(part.context.raw(), at.cast()) },
            (&Form::Mapped(ref buffer, at), _, _) => {
                if let Ok(queue) = part.own_queue() {
                    // SAFETY: C1: mapped at that address once.
                    let status = unsafe {
                        let unmap = part.api().clEnqueueUnmapMemObject;
                        unmap(queue.raw(), buffer.raw(), at.cast(), 0, ptr::null(), ptr::null_mut())
                    };
                    let _ended = check("clEnqueueUnmapMemObject", status).and_then(|()| queue.finish());
                }
            }
            _ => {}
        }
        part.discharge(self.charged);
    }
}

/// Gives a charge back unless it is forgotten.
struct Charge<'a> {
    part: &'a Part,
    len: u64,
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.part.discharge(self.len);
    }
}

/// The form of pinned memory: the best that the host may touch at any time.
pub(crate) fn pinned_form(part: &Part) -> Addressing {
    let facts = &part.facts;
    match facts.addressing {
        Addressing::Usm if facts.host_usm => Addressing::Usm,
        Addressing::Svm if facts.fine_svm => Addressing::Svm,
        _ => Addressing::Buffer,
    }
}

fn usm_device(part: &Part, size: usize) -> Result<*mut u8, Fault> {
    let usm = part.facts.usm.as_ref().ok_or(Fault::unsupported("alloc"))?;
    let mut status = 0;
    // SAFETY: C1, C2: no properties are given.
    let at = unsafe {
        let (context, device) = (part.context.raw(), part.facts.id.raw);
        (usm.clDeviceMemAllocINTEL)(context, device, ptr::null(), size, 0, &mut status)
    };
    made("clDeviceMemAllocINTEL", at.cast(), status)
}

fn svm(part: &Part, size: usize, flags: u64) -> Result<*mut u8, Fault> {
    let alloc = part.api().clSVMAlloc.ok_or(Fault::unsupported("alloc"))?;
    // SAFETY: C1; it answers null on failure, whose reason it does not tell.
    let at = unsafe { alloc(part.context.raw(), sys::MEM_READ_WRITE | flags, size, 0) };
    if at.is_null() { Err(fault("clSVMAlloc", MEM_OBJECT_ALLOCATION_FAILURE)) } else { Ok(at.cast()) }
}

fn mapped(part: &Part, size: usize) -> Result<Form, Fault> {
    let buffer = part.context.buffer(sys::MEM_READ_WRITE | sys::MEM_ALLOC_HOST_PTR, size)?;
    let queue = part.own_queue()?;
    let mut status = 0;
    // SAFETY: C1, C2: a blocking map of the whole buffer.
    let at = unsafe {
        let map = part.api().clEnqueueMapBuffer;
        let flags = sys::MAP_READ | sys::MAP_WRITE;
        map(queue.raw(), buffer.raw(), sys::TRUE, flags, 0, size, 0, ptr::null(), ptr::null_mut(), &mut status)
    };
    let at = made("clEnqueueMapBuffer", at.cast(), status)?;
    Ok(Form::Mapped(buffer, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synthetic_addresses_never_meet() {
        let addresses = Addresses::new();
        let mut end = 0;
        for (len, alignment) in [(1, 128), (4096, 128), (4097, 8192), (1 << 21, 128)] {
            let at = addresses.take(len, alignment);
            assert!(at >= end && at.is_multiple_of(PAGE), "{at} after {end}");
            end = at + len;
        }
    }
}
