//! Bugs of drivers that this backend goes around, each shown with nothing but OpenCL's own calls. A test tells whether the
//! driver has the bug; it fails only if the bare calls fail, as a driver without the bug is welcome.

use crate::sys::{self, Api, Buffers09, Library, Raw, SymbolTable};
use std::ffi::{CStr, c_void};
use std::ptr;

/// The first device of the first platform, CPUs too.
fn first(api: &Api) -> Option<(Raw, Raw)> {
    let (mut platform, mut device) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: C2: one handle each.
    unsafe {
        let found = (api.clGetPlatformIDs)(1, &mut platform, ptr::null_mut()) == 0
            && (api.clGetDeviceIDs)(platform, sys::DEVICE_TYPE_ALL, 1, &mut device, ptr::null_mut()) == 0;
        found.then_some((platform, device))
    }
}

fn text(api: &Api, device: Raw, name: u32) -> String {
    let mut bytes = vec![0_u8; 4096];
    // SAFETY: C1, C2.
    unsafe { (api.clGetDeviceInfo)(device, name, bytes.len(), bytes.as_mut_ptr().cast(), ptr::null_mut()) };
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// PoCL 3.1: a kernel recorded in a command buffer takes its arguments when the command buffer runs, not when it is
/// recorded. Two launches of one kernel object, with different arguments between, both run with the later ones.
/// So `graph.rs` gives every launch a kernel object of its own.
#[test]
fn recorded_kernels_take_their_arguments_late() {
    let Ok(library) = Library::load() else {
        eprintln!("skipped: no OpenCL loader here");
        return;
    };
    let api = &library.api;
    let Some((platform, device)) = first(api) else {
        eprintln!("skipped: no OpenCL device here");
        return;
    };
    let pocl = text(api, device, sys::DEVICE_VERSION).contains("PoCL");
    if !pocl || !text(api, device, sys::DEVICE_EXTENSIONS).contains("cl_khr_command_buffer") {
        eprintln!("skipped: this is about PoCL's command buffers");
        return;
    }
    // SAFETY: C1, C2, C5: bare calls with objects made here, on one thread; every list has its length beside it.
    let seen = unsafe {
        let find =
            |name: &CStr| -> *mut c_void { (api.clGetExtensionFunctionAddressForPlatform)(platform, name.as_ptr()) };
        let buffers = Buffers09::load(&find).expect("the functions of cl_khr_command_buffer 0.9");
        let mut status = 0;
        let context = (api.clCreateContext)(ptr::null(), 1, &device, ptr::null(), ptr::null_mut(), &mut status);
        assert_eq!(status, 0);
        let queue = (api.clCreateCommandQueueWithProperties)(context, device, ptr::null(), &mut status);
        assert_eq!(status, 0);
        let memory = (api.clCreateBuffer)(context, sys::MEM_READ_WRITE, 8, ptr::null_mut(), &mut status);
        assert_eq!(status, 0);
        let source = c"kernel void put(global uint *to, uint at) { to[at] = 7; }".as_ptr();
        let program = (api.clCreateProgramWithSource)(context, 1, &source, ptr::null(), &mut status);
        assert_eq!((api.clBuildProgram)(program, 1, &device, c"".as_ptr(), ptr::null(), ptr::null_mut()), 0);
        let kernel = (api.clCreateKernel)(program, c"put".as_ptr(), &mut status);
        assert_eq!(status, 0);
        let commands = (buffers.clCreateCommandBufferKHR)(1, &queue, ptr::null(), &mut status);
        assert_eq!(status, 0);
        assert_eq!((api.clSetKernelArg)(kernel, 0, size_of::<Raw>(), (&raw const memory).cast()), 0);
        for at in 0..2_u32 {
            assert_eq!((api.clSetKernelArg)(kernel, 1, 4, (&raw const at).cast()), 0);
            let (one, mut point) = (1_usize, 0);
            let recorded = (buffers.clCommandNDRangeKernelKHR)(
                commands,
                ptr::null_mut(),
                ptr::null(),
                kernel,
                1,
                ptr::null(),
                &one,
                &one,
                0,
                ptr::null(),
                &mut point,
                ptr::null_mut(),
            );
            assert_eq!(recorded, 0);
        }
        assert_eq!((buffers.clFinalizeCommandBufferKHR)(commands), 0);
        let mut words = [0_u32; 2];
        let into: *mut c_void = words.as_mut_ptr().cast();
        let write = api.clEnqueueWriteBuffer;
        assert_eq!(write(queue, memory, sys::TRUE, 0, 8, into, 0, ptr::null(), ptr::null_mut()), 0);
        let (none, no_list) = (ptr::null_mut(), ptr::null_mut());
        assert_eq!((buffers.clEnqueueCommandBufferKHR)(0, none, commands, 0, ptr::null(), no_list), 0);
        assert_eq!((api.clFinish)(queue), 0);
        let read = api.clEnqueueReadBuffer;
        assert_eq!(read(queue, memory, sys::TRUE, 0, 8, into, 0, ptr::null(), ptr::null_mut()), 0);
        (buffers.clReleaseCommandBufferKHR)(commands);
        (api.clReleaseKernel)(kernel);
        (api.clReleaseProgram)(program);
        (api.clReleaseMemObject)(memory);
        (api.clReleaseCommandQueue)(queue);
        (api.clReleaseContext)(context);
        words
    };
    match seen {
        [7, 7] => eprintln!("this driver takes arguments when a kernel is recorded, as the specification says"),
        [0, 7] => eprintln!("this driver takes arguments when the command buffer runs: the bug is there"),
        other => panic!("{other:?}"),
    }
}
