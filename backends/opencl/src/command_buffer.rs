//! Command buffers of `cl_khr_command_buffer`, in the two forms that their functions have had.

use crate::conv::{check, made};
use crate::info::CommandBuffers;
use crate::object::Queue;
use crate::part::Part;
use crate::sys::{self, Raw, Status};
use anyaccel_hal::Fault;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// A point in a command buffer that later commands can wait for.
pub(crate) type SyncPoint = u32;

/// A command buffer, released when it is dropped.
pub(crate) struct CommandBuffer {
    part: Arc<Part>,
    raw: Raw,
}

// SAFETY: C3: it is recorded by one thread and enqueued by any.
unsafe impl Send for CommandBuffer {}
// SAFETY: as above.
unsafe impl Sync for CommandBuffer {}

/// The functions, where the device has them.
fn table(part: &Part) -> Result<&CommandBuffers, Fault> {
    part.facts.command_buffers.as_ref().ok_or(Fault::unsupported("command buffers"))
}

/// Calls the function of that name in the table that the device has, with arguments that both forms take.
macro_rules! call {
    ($table:expr, $name:ident($($arg:expr),* $(,)?)) => {
        match $table {
            CommandBuffers::Old(table) => (table.$name)($($arg),*),
            CommandBuffers::New(table) => (table.$name)($($arg),*),
        }
    };
}

impl CommandBuffer {
    /// An empty one for queues like `queue`, which may be enqueued again before it has ended.
    pub(crate) fn new(part: &Arc<Part>, queue: &Queue) -> Result<Self, Fault> {
        let table = table(part)?;
        let properties = [sys::COMMAND_BUFFER_FLAGS_KHR, sys::COMMAND_BUFFER_SIMULTANEOUS_USE_KHR, 0];
        let (list, mut status) = ([queue.raw()], 0);
        // SAFETY: C1, C2: one queue, and a list that ends with a 0.
        let raw = unsafe { call!(table, clCreateCommandBufferKHR(1, list.as_ptr(), properties.as_ptr(), &mut status)) };
        let raw = made("clCreateCommandBufferKHR", raw, status)?;
        Ok(Self { part: Arc::clone(part), raw })
    }

    /// Ends recording.
    pub(crate) fn finalize(&self) -> Result<(), Fault> {
        // SAFETY: C1.
        let status = unsafe { call!(table(&self.part)?, clFinalizeCommandBufferKHR(self.raw)) };
        check("clFinalizeCommandBufferKHR", status)
    }

    /// Runs all of it as one command of a queue.
    pub(crate) fn enqueue(&self, queue: &Queue) -> Result<(), Fault> {
        let mut list = [queue.raw()];
        // SAFETY: C1, C2: one queue in the place of the one that it was made for.
        let status = unsafe {
            call!(
                table(&self.part)?,
                clEnqueueCommandBufferKHR(1, list.as_mut_ptr(), self.raw, 0, ptr::null(), ptr::null_mut())
            )
        };
        check("clEnqueueCommandBufferKHR", status)
    }

    /// Records a copy between objects.
    ///
    /// # Safety
    /// C1 for the objects, H4 for the places.
    pub(crate) unsafe fn copy_objects(
        &self,
        (to, at): (Raw, usize),
        (from, start): (Raw, usize),
        len: usize,
        after: &[SyncPoint],
    ) -> Result<SyncPoint, Fault> {
        let (none, count, list) = (ptr::null_mut(), after.len() as u32, list(after));
        // SAFETY: C1, C2, as this function's caller promises.
        self.record("clCommandCopyBufferKHR", |table, point| unsafe {
            match table {
                CommandBuffers::Old(table) => (table.clCommandCopyBufferKHR)(
                    self.raw,
                    none,
                    from,
                    to,
                    start,
                    at,
                    len,
                    count,
                    list,
                    point,
                    none.cast(),
                ),
                CommandBuffers::New(table) => (table.clCommandCopyBufferKHR)(
                    self.raw,
                    none,
                    ptr::null(),
                    from,
                    to,
                    start,
                    at,
                    len,
                    count,
                    list,
                    point,
                    none.cast(),
                ),
            }
        })
    }

    /// Records a fill of an object.
    ///
    /// # Safety
    /// C1 for the object, H4 and H14 for the place.
    pub(crate) unsafe fn fill_object(
        &self,
        (to, at): (Raw, usize),
        pattern: &[u8],
        len: usize,
        after: &[SyncPoint],
    ) -> Result<SyncPoint, Fault> {
        let (none, count, list) = (ptr::null_mut(), after.len() as u32, list(after));
        let (bytes, size): (*const c_void, _) = (pattern.as_ptr().cast(), pattern.len());
        // SAFETY: C1, C2, as this function's caller promises; the pattern is taken before the call returns.
        self.record("clCommandFillBufferKHR", |table, point| unsafe {
            match table {
                CommandBuffers::Old(table) => (table.clCommandFillBufferKHR)(
                    self.raw,
                    none,
                    to,
                    bytes,
                    size,
                    at,
                    len,
                    count,
                    list,
                    point,
                    none.cast(),
                ),
                CommandBuffers::New(table) => (table.clCommandFillBufferKHR)(
                    self.raw,
                    none,
                    ptr::null(),
                    to,
                    bytes,
                    size,
                    at,
                    len,
                    count,
                    list,
                    point,
                    none.cast(),
                ),
            }
        })
    }

    /// Records a kernel whose arguments are set, which are taken before this returns.
    ///
    /// # Safety
    /// C1, C3 for the kernel, H15 for its arguments.
    pub(crate) unsafe fn kernel(
        &self,
        kernel: Raw,
        global: [usize; 3],
        local: [usize; 3],
        after: &[SyncPoint],
    ) -> Result<SyncPoint, Fault> {
        let (none, count, list) = (ptr::null_mut(), after.len() as u32, list(after));
        let (global, local) = (global.as_ptr(), local.as_ptr());
        // SAFETY: C1, C2, as this function's caller promises: three sizes each.
        self.record("clCommandNDRangeKernelKHR", |table, point| unsafe {
            call!(
                table,
                clCommandNDRangeKernelKHR(
                    self.raw,
                    none,
                    ptr::null(),
                    kernel,
                    3,
                    ptr::null(),
                    global,
                    local,
                    count,
                    list,
                    point,
                    none.cast()
                )
            )
        })
    }

    fn record(
        &self,
        api: &'static str,
        command: impl FnOnce(&CommandBuffers, *mut SyncPoint) -> Status,
    ) -> Result<SyncPoint, Fault> {
        let mut point = 0;
        check(api, command(table(&self.part)?, &mut point)).map(|()| point)
    }
}

/// A list of what to wait for; null if it is empty, as the specification wants it.
fn list(after: &[SyncPoint]) -> *const SyncPoint {
    if after.is_empty() { ptr::null() } else { after.as_ptr() }
}

impl Drop for CommandBuffer {
    fn drop(&mut self) {
        if let Ok(table) = table(&self.part) {
            // SAFETY: C1: live, and released by this owner once.
            let _status = unsafe { call!(table, clReleaseCommandBufferKHR(self.raw)) };
        }
    }
}
