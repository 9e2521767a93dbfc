//! The baseline: OpenCL's own calls and nothing else, with memory in the same form.

use crate::sys::{self, Api, Buffers09, Buffers10, Library, Raw, SymbolTable, Usm};
use crate::{BATCH, SET, SMALL, mean};
use anyaccel_opencl::Addressing;
use std::ffi::{CStr, CString, c_void};
use std::ptr;

/// A context, a queue, two pieces of memory, a kernel. Never released: the bench ends with it.
pub(crate) struct Bare {
    api: &'static Api,
    usm: Option<Usm>,
    addressing: Addressing,
    platform: Raw,
    device: Raw,
    context: Raw,
    queue: Raw,
    program: Raw,
    kernel: Raw,
    to: *mut c_void,
    from: *mut c_void,
}

impl Bare {
    /// On the first device that is there; `None` for a form that the baseline does not speak.
    pub(crate) fn new(addressing: Addressing) -> Option<Self> {
        let api = &Library::load().ok()?.api;
        // SAFETY: C1, C2, C5: objects made here, each list with its length.
        unsafe {
            let (mut platform, mut device, mut status) = (ptr::null_mut(), ptr::null_mut(), 0);
            if (api.clGetPlatformIDs)(1, &mut platform, ptr::null_mut()) != 0
                || (api.clGetDeviceIDs)(platform, sys::DEVICE_TYPE_ALL, 1, &mut device, ptr::null_mut()) != 0
            {
                return None;
            }
            let find = |name: &CStr| -> *mut c_void {
                (api.clGetExtensionFunctionAddressForPlatform)(platform, name.as_ptr())
            };
            let usm = Usm::load(&find).ok();
            let context = (api.clCreateContext)(ptr::null(), 1, &device, ptr::null(), ptr::null_mut(), &mut status);
            let properties = [sys::QUEUE_PROPERTIES, sys::QUEUE_PROFILING_ENABLE, 0];
            let queue = (api.clCreateCommandQueueWithProperties)(context, device, properties.as_ptr(), &mut status);
            let memory = || -> Option<*mut c_void> {
                Some(match addressing {
                    Addressing::Usm => {
                        (usm.as_ref()?.clDeviceMemAllocINTEL)(context, device, ptr::null(), 4096, 0, &mut { 0 })
                    }
                    Addressing::Svm => api.clSVMAlloc?(context, sys::MEM_READ_WRITE, 4096, 0),
                    Addressing::Buffer => {
                        (api.clCreateBuffer)(context, sys::MEM_READ_WRITE, 4096, ptr::null_mut(), &mut { 0 })
                    }
                    Addressing::DeviceAddress => return None,
                })
            };
            let (to, from) = (memory()?, memory()?);
            let source = CString::new(SET).ok()?;
            let program = (api.clCreateProgramWithSource)(context, 1, &source.as_ptr(), ptr::null(), &mut status);
            assert_eq!((api.clBuildProgram)(program, 1, &device, c"".as_ptr(), ptr::null(), ptr::null_mut()), 0);
            let kernel = (api.clCreateKernel)(program, c"set".as_ptr(), &mut status);
            assert_eq!(status, 0);
            let bare = Self { api, usm, addressing, platform, device, context, queue, program, kernel, to, from };
            bare.fill();
            bare.copy();
            bare.launch();
            bare.finish();
            Some(bare)
        }
    }

    pub(crate) fn fill(&self) {
        let (byte, len, queue, to) = (1_u8, SMALL as usize, self.queue, self.to);
        let (pattern, none, event): (*const c_void, _, _) = ((&raw const byte).cast(), ptr::null(), ptr::null_mut());
        // SAFETY: C1, C2: live memory of 4096 bytes.
        let status = unsafe {
            match (self.addressing, &self.usm, self.api.clEnqueueSVMMemFill) {
                (Addressing::Usm, Some(usm), _) => {
                    (usm.clEnqueueMemFillINTEL)(queue, to, pattern, 1, len, 0, none, event)
                }
                (Addressing::Svm, _, Some(fill)) => fill(queue, to, pattern, 1, len, 0, none, event),
                _ => (self.api.clEnqueueFillBuffer)(queue, to, pattern, 1, 0, len, 0, none, event),
            }
        };
        assert_eq!(status, 0);
    }

    pub(crate) fn copy(&self) {
        let (len, queue, to, from) = (SMALL as usize, self.queue, self.to, self.from);
        let (none, event) = (ptr::null(), ptr::null_mut());
        // SAFETY: C1, C2, as above.
        let status = unsafe {
            match (self.addressing, &self.usm, self.api.clEnqueueSVMMemcpy) {
                (Addressing::Usm, Some(usm), _) => {
                    (usm.clEnqueueMemcpyINTEL)(queue, sys::FALSE, to, from, len, 0, none, event)
                }
                (Addressing::Svm, _, Some(copy)) => copy(queue, sys::FALSE, to, from, len, 0, none, event),
                _ => (self.api.clEnqueueCopyBuffer)(queue, from, to, 0, 0, len, 0, none, event),
            }
        };
        assert_eq!(status, 0);
    }

    pub(crate) fn launch(&self) {
        self.set_arguments(self.kernel);
        let (global, local) = (SMALL as usize, 64_usize);
        // SAFETY: C1, C2: one size each.
        let status = unsafe {
            let enqueue = self.api.clEnqueueNDRangeKernel;
            enqueue(self.queue, self.kernel, 1, ptr::null(), &global, &local, 0, ptr::null(), ptr::null_mut())
        };
        assert_eq!(status, 0);
    }

    fn set_arguments(&self, kernel: Raw) {
        let (api, what) = (self.api, 1_u32);
        // SAFETY: C1, C2, C3: one thread.
        let status = unsafe {
            let first = match (self.addressing, &self.usm, api.clSetKernelArgSVMPointer) {
                (Addressing::Usm, Some(usm), _) => (usm.clSetKernelArgMemPointerINTEL)(kernel, 0, self.to),
                (Addressing::Svm, _, Some(set)) => set(kernel, 0, self.to),
                _ => (api.clSetKernelArg)(kernel, 0, size_of::<Raw>(), (&raw const self.to).cast()),
            };
            first | (api.clSetKernelArg)(kernel, 1, 4, (&raw const what).cast())
        };
        assert_eq!(status, 0);
    }

    pub(crate) fn finish(&self) {
        // SAFETY: C1.
        assert_eq!(unsafe { (self.api.clFinish)(self.queue) }, 0);
    }

    /// The mean time of enqueueing one thing on a queue that is held up.
    pub(crate) fn held(&self, each: impl Fn(&Self)) -> f64 {
        let (api, mut status) = (self.api, 0);
        // SAFETY: C1, C2: an event made here, set once, and released.
        let event = unsafe {
            let event = (api.clCreateUserEvent)(self.context, &mut status);
            assert_eq!((api.clEnqueueBarrierWithWaitList)(self.queue, 1, &event, ptr::null_mut()), 0);
            event
        };
        let time = mean(BATCH, || (0..BATCH).for_each(|_| each(self)));
        // SAFETY: as above.
        unsafe {
            assert_eq!((api.clSetUserEventStatus)(event, sys::COMPLETE), 0);
            (api.clReleaseEvent)(event);
        }
        self.finish();
        time
    }

    /// A command buffer of that many launches, each after the one before; `None` if the device has none.
    pub(crate) fn command_buffer(&self, nodes: usize) -> Option<Buffer> {
        // SAFETY: C1, C2, C5: the table is chosen by the version that the device tells.
        unsafe {
            let find = |name: &CStr| -> *mut c_void {
                (self.api.clGetExtensionFunctionAddressForPlatform)(self.platform, name.as_ptr())
            };
            let table = Buffers10::load(&find).ok()?;
            // The functions that are used here are the same in both versions.
            let _also_old = Buffers09::load(&find).ok()?;
            let properties = [sys::COMMAND_BUFFER_FLAGS_KHR, sys::COMMAND_BUFFER_SIMULTANEOUS_USE_KHR, 0];
            let mut status = 0;
            let raw = (table.clCreateCommandBufferKHR)(1, &self.queue, properties.as_ptr(), &mut status);
            assert_eq!(status, 0);
            let (mut before, global, local) = (0_u32, [SMALL as usize, 1, 1], [64_usize, 1, 1]);
            for node in 0..nodes {
                let kernel = (self.api.clCreateKernel)(self.program, c"set".as_ptr(), &mut status);
                assert_eq!(status, 0);
                self.set_arguments(kernel);
                let (wait, list) = if node == 0 { (0, ptr::null()) } else { (1, &raw const before) };
                let mut point = 0;
                let record = table.clCommandNDRangeKernelKHR;
                let (none, handle) = (ptr::null_mut(), ptr::null_mut());
                let (global, local) = (global.as_ptr(), local.as_ptr());
                let recorded = record(
                    raw,
                    none,
                    ptr::null(),
                    kernel,
                    3,
                    ptr::null(),
                    global,
                    local,
                    wait,
                    list,
                    &mut point,
                    handle,
                );
                assert_eq!(recorded, 0);
                before = point;
            }
            assert_eq!((table.clFinalizeCommandBufferKHR)(raw), 0);
            let _device = self.device;
            Some(Buffer { table, raw })
        }
    }
}

/// A command buffer, never released.
pub(crate) struct Buffer {
    table: Buffers10,
    raw: Raw,
}

impl Buffer {
    pub(crate) fn enqueue(&self, bare: &Bare) {
        let mut queue = bare.queue;
        // SAFETY: C1, C2: one queue.
        let status =
            unsafe { (self.table.clEnqueueCommandBufferKHR)(1, &mut queue, self.raw, 0, ptr::null(), ptr::null_mut()) };
        assert_eq!(status, 0);
    }
}
