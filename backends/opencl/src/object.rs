//! Owners of OpenCL objects: each releases its object when it is dropped. OpenCL counts references, so a command that was
//! enqueued keeps what it uses.

use crate::conv::{check, made};
use crate::sys::{self, Api, EventCallback, Raw, Status};
use anyaccel_hal::Fault;
use std::ffi::{c_char, c_void};
use std::fmt;
use std::ptr;

macro_rules! object {
    ($(#[$doc:meta])* $name:ident, $release:ident) => {
        $(#[$doc])*
        pub(crate) struct $name {
            api: &'static Api,
            raw: Raw,
        }

        // SAFETY: C3: the object may be used from any thread.
        unsafe impl Send for $name {}
        // SAFETY: C3.
        unsafe impl Sync for $name {}

        impl $name {
            /// The object itself, live while this owner is.
            #[allow(dead_code, reason = "not every object is named by other calls")]
            #[inline]
            pub(crate) const fn raw(&self) -> Raw {
                self.raw
            }

            #[allow(dead_code, reason = "not every object has calls beyond its release")]
            #[inline]
            pub(crate) const fn api(&self) -> &'static Api {
                self.api
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: C1: live, and released by this owner once.
                let _status = unsafe { (self.api.$release)(self.raw) };
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.raw).finish()
            }
        }
    };
}

object!(
    /// A `cl_context` over devices of one platform.
    Context,
    clReleaseContext
);
object!(
    /// A `cl_command_queue`, in order.
    Queue,
    clReleaseCommandQueue
);
object!(
    /// A `cl_event`: a command's, or one of the host.
    Event,
    clReleaseEvent
);
object!(
    /// A `cl_mem`.
    Buffer,
    clReleaseMemObject
);
object!(
    /// A `cl_program`, built.
    Program,
    clReleaseProgram
);
object!(
    /// A `cl_kernel`. Its arguments are set by one thread at a time (C3).
    KernelObject,
    clReleaseKernel
);

impl Context {
    pub(crate) fn new(api: &'static Api, platform: Raw, devices: &[Raw]) -> Result<Self, Fault> {
        let properties = [sys::CONTEXT_PLATFORM, platform as u64, 0];
        let mut status = 0;
        // SAFETY: C1: platforms and devices are never released. C2. There is no callback.
        let raw = unsafe {
            (api.clCreateContext)(
                properties.as_ptr(),
                devices.len() as u32,
                devices.as_ptr(),
                ptr::null(),
                ptr::null_mut(),
                &mut status,
            )
        };
        Ok(Self { api, raw: made("clCreateContext", raw, status)? })
    }

    /// An event that the host ends.
    pub(crate) fn user_event(&self) -> Result<Event, Fault> {
        let mut status = 0;
        // SAFETY: C1, C2.
        let raw = unsafe { (self.api.clCreateUserEvent)(self.raw, &mut status) };
        Ok(Event { api: self.api, raw: made("clCreateUserEvent", raw, status)? })
    }

    /// An in-order queue that keeps times. `priority` is one of the `QUEUE_PRIORITY_` values, or 0 for none.
    pub(crate) fn queue(&self, device: Raw, priority: u64) -> Result<Queue, Fault> {
        let mut properties = [sys::QUEUE_PROPERTIES, sys::QUEUE_PROFILING_ENABLE, 0, 0, 0];
        if priority != 0 {
            (properties[2], properties[3]) = (sys::QUEUE_PRIORITY_KHR, priority);
        }
        let mut status = 0;
        // SAFETY: C1, C2: the list ends with a 0.
        let raw = unsafe {
            (self.api.clCreateCommandQueueWithProperties)(self.raw, device, properties.as_ptr(), &mut status)
        };
        Ok(Queue { api: self.api, raw: made("clCreateCommandQueueWithProperties", raw, status)? })
    }

    pub(crate) fn buffer(&self, flags: u64, len: usize) -> Result<Buffer, Fault> {
        let mut status = 0;
        // SAFETY: C1, C2: no host pointer is given.
        let raw = unsafe { (self.api.clCreateBuffer)(self.raw, flags, len, ptr::null_mut(), &mut status) };
        Ok(Buffer { api: self.api, raw: made("clCreateBuffer", raw, status)? })
    }

    /// A buffer with an address on the devices, by `cl_ext_buffer_device_address`; `None` without OpenCL 3.0.
    pub(crate) fn addressed_buffer(&self, len: usize) -> Option<Result<Buffer, Fault>> {
        const CALL: &str = "clCreateBufferWithProperties";
        let create = self.api.clCreateBufferWithProperties?;
        let properties = [sys::MEM_DEVICE_PRIVATE_ADDRESS_EXT, sys::TRUE.into(), 0];
        let mut status = 0;
        // SAFETY: C1, C2: the list ends with a 0, and no host pointer is given.
        let raw =
            unsafe { create(self.raw, properties.as_ptr(), sys::MEM_READ_WRITE, len, ptr::null_mut(), &mut status) };
        Some(made(CALL, raw, status).map(|raw| Buffer { api: self.api, raw }))
    }
}

impl Buffer {
    /// A second owner of a buffer that somebody else made.
    ///
    /// # Safety
    /// `raw` is a live `cl_mem`.
    pub(crate) unsafe fn retain(api: &'static Api, raw: Raw) -> Result<Self, Fault> {
        // SAFETY: C1, as this function's caller promises.
        check("clRetainMemObject", unsafe { (api.clRetainMemObject)(raw) })?;
        Ok(Self { api, raw })
    }

    /// A part of it as a buffer of its own.
    pub(crate) fn part(&self, offset: usize, len: usize) -> Result<Self, Fault> {
        let region = [offset, len];
        let mut status = 0;
        // SAFETY: C1, C2: cl_buffer_region is two sizes, origin and length.
        let raw = unsafe {
            (self.api.clCreateSubBuffer)(
                self.raw,
                sys::MEM_READ_WRITE,
                sys::BUFFER_CREATE_TYPE_REGION,
                region.as_ptr().cast(),
                &mut status,
            )
        };
        Ok(Self { api: self.api, raw: made("clCreateSubBuffer", raw, status)? })
    }

    /// Its addresses on the devices of the context, in their order, by `cl_ext_buffer_device_address`.
    pub(crate) fn device_addresses(&self) -> Option<Vec<u64>> {
        // SAFETY: C1; C2, by `query::bytes`.
        let bytes = crate::query::bytes(|size, value, needed| unsafe {
            (self.api.clGetMemObjectInfo)(self.raw, sys::MEM_DEVICE_ADDRESS_EXT, size, value, needed)
        })?;
        Some(bytes.chunks_exact(8).filter_map(|one| Some(u64::from_ne_bytes(one.try_into().ok()?))).collect())
    }
}

impl Queue {
    /// An event that ends when all work enqueued so far has ended.
    pub(crate) fn marker(&self) -> Result<Event, Fault> {
        let mut raw = ptr::null_mut();
        // SAFETY: C1, C2.
        let status = unsafe { (self.api.clEnqueueMarkerWithWaitList)(self.raw, 0, ptr::null(), &mut raw) };
        check("clEnqueueMarkerWithWaitList", status)?;
        Ok(Event { api: self.api, raw: made("clEnqueueMarkerWithWaitList", raw, status)? })
    }

    /// Holds up what is enqueued later until the event has ended, which is of the same context.
    pub(crate) fn barrier(&self, until: &Event) -> Result<(), Fault> {
        let list = [until.raw];
        // SAFETY: C1, C2.
        let status = unsafe { (self.api.clEnqueueBarrierWithWaitList)(self.raw, 1, list.as_ptr(), ptr::null_mut()) };
        check("clEnqueueBarrierWithWaitList", status)
    }

    pub(crate) fn flush(&self) -> Result<(), Fault> {
        // SAFETY: C1.
        check("clFlush", unsafe { (self.api.clFlush)(self.raw) })
    }

    /// Waits for all its work, on this thread.
    pub(crate) fn finish(&self) -> Result<(), Fault> {
        // SAFETY: C1.
        check("clFinish", unsafe { (self.api.clFinish)(self.raw) })
    }
}

impl Event {
    /// How far it is: 0 when it has ended, negative when it has failed.
    pub(crate) fn status(&self) -> Status {
        let mut status: Status = 0;
        // SAFETY: C1, C2: the answer is one status.
        let asked = unsafe {
            (self.api.clGetEventInfo)(
                self.raw,
                sys::EVENT_COMMAND_EXECUTION_STATUS,
                size_of::<Status>(),
                (&raw mut status).cast(),
                ptr::null_mut(),
            )
        };
        if asked == sys::SUCCESS { status } else { asked.min(-1) }
    }

    /// Waits on this thread until it has ended or failed.
    pub(crate) fn wait(&self) -> Result<(), Fault> {
        let list = [self.raw];
        // SAFETY: C1, C2.
        match unsafe { (self.api.clWaitForEvents)(1, list.as_ptr()) } {
            // Which of them failed is told by its status.
            sys::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST => Ok(()),
            status => check("clWaitForEvents", status),
        }
    }

    /// Ends an event of the host. A second time changes nothing.
    pub(crate) fn set(&self, status: Status) -> Result<(), Fault> {
        // SAFETY: C1: only events of `Context::user_event` are set.
        check("clSetUserEventStatus", unsafe { (self.api.clSetUserEventStatus)(self.raw, status) })
    }

    /// When its command ended, in nanoseconds of the device.
    pub(crate) fn end_ns(&self) -> Result<u64, Fault> {
        let mut time = 0_u64;
        // SAFETY: C1, C2: the answer is one 64-bit time.
        let status = unsafe {
            (self.api.clGetEventProfilingInfo)(
                self.raw,
                sys::PROFILING_COMMAND_END,
                size_of::<u64>(),
                (&raw mut time).cast(),
                ptr::null_mut(),
            )
        };
        check("clGetEventProfilingInfo", status).map(|()| time)
    }

    /// Calls `callback(event, status, data)` once, when it has ended or failed: now if it has.
    ///
    /// # Safety
    /// C4 for `data`; the callback is quick and calls nothing that waits.
    pub(crate) unsafe fn call_back(&self, callback: EventCallback, data: *mut c_void) -> Result<(), Fault> {
        // SAFETY: C1; C4, as this function's caller promises.
        let status = unsafe { (self.api.clSetEventCallback)(self.raw, sys::COMPLETE, callback, data) };
        check("clSetEventCallback", status)
    }
}

impl Clone for Event {
    fn clone(&self) -> Self {
        // SAFETY: C1. It fails for invalid events alone.
        let _status = unsafe { (self.api.clRetainEvent)(self.raw) };
        Self { api: self.api, raw: self.raw }
    }
}

impl Program {
    /// From source in OpenCL C, of several strings in a row.
    pub(crate) fn from_source(context: &Context, source: &[&[u8]]) -> Result<Self, Fault> {
        let api = context.api;
        let texts: Vec<*const c_char> = source.iter().map(|text| text.as_ptr().cast()).collect();
        let lens: Vec<usize> = source.iter().map(|text| text.len()).collect();
        let mut status = 0;
        // SAFETY: C1, C2: as many strings as lengths.
        let raw = unsafe {
            let (count, texts, lens) = (source.len() as u32, texts.as_ptr(), lens.as_ptr());
            (api.clCreateProgramWithSource)(context.raw, count, texts, lens, &mut status)
        };
        Ok(Self { api, raw: made("clCreateProgramWithSource", raw, status)? })
    }

    /// From SPIR-V.
    pub(crate) fn from_il(context: &Context, code: &[u8]) -> Result<Self, Fault> {
        const CALL: &str = "clCreateProgramWithIL";
        let api = context.api;
        let create = api.clCreateProgramWithIL.ok_or(Fault::unsupported(CALL))?;
        let mut status = 0;
        // SAFETY: C1, C2.
        let raw = unsafe { create(context.raw, code.as_ptr().cast(), code.len(), &mut status) };
        Ok(Self { api, raw: made(CALL, raw, status)? })
    }

    /// Builds it for a device. On failure the log is in the note.
    pub(crate) fn build(&self, device: Raw, options: &std::ffi::CStr) -> Result<(), Fault> {
        let list = [device];
        // SAFETY: C1, C2: without a callback it returns when the build has ended.
        let status = unsafe {
            (self.api.clBuildProgram)(self.raw, 1, list.as_ptr(), options.as_ptr(), ptr::null(), ptr::null_mut())
        };
        check("clBuildProgram", status).map_err(|fault| match self.log(device) {
            Some(log) => fault.note(log),
            None => fault,
        })
    }

    fn log(&self, device: Raw) -> Option<String> {
        let text = crate::query::text(|size, value, needed| {
            // SAFETY: C1; C2, by `query::text`.
            unsafe { (self.api.clGetProgramBuildInfo)(self.raw, device, sys::PROGRAM_BUILD_LOG, size, value, needed) }
        });
        text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    pub(crate) fn kernel(&self, entry: &str) -> Result<KernelObject, Fault> {
        const CALL: &str = "clCreateKernel";
        let name = std::ffi::CString::new(entry)
            .map_err(|_| Fault::invalid(CALL, format!("an entry with a 0 in its name: {entry:?}")))?;
        let mut status = 0;
        // SAFETY: C1, C2.
        let raw = unsafe { (self.api.clCreateKernel)(self.raw, name.as_ptr(), &mut status) };
        let raw = made(CALL, raw, status).map_err(|fault| fault.note(format!("the entry {entry:?}")))?;
        Ok(KernelObject { api: self.api, raw })
    }
}
