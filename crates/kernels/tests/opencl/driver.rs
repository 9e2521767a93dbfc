//! The little of OpenCL that the tests need, through the loader of the machine.
//!
//! Rules that the `unsafe` blocks cite:
//! - **T1** The types of [`Api`] are those of the OpenCL specification, and the library stays loaded for good.
//! - **T2** Objects are used while they live, sizes and pointers are those of live Rust values, and every command has ended
//!   (`clFinish`, or a blocking command) before what it uses goes away.

use crate::cases::Case;
use anyaccel_kernels::Builtin;
use anyaccel_kernels::device::Plan;
use anyaccel_kernels::device::opencl::Features;
use libloading::Library;
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

type Handle = *mut c_void;
type Status = i32;

/// Declares the functions that are used, and finds them in a library.
macro_rules! api {
    ($($name:ident($($arg:ty),*) -> $result:ty;)*) => {
        /// Functions of OpenCL by their names.
        #[allow(non_snake_case)]
        struct Api { $($name: unsafe extern "system" fn($($arg),*) -> $result,)* }

        impl Api {
            fn load() -> Result<Api, String> {
                // SAFETY: T1, the loader's initialisers need nothing.
                let library = unsafe { Library::new("libOpenCL.so.1") }.map_err(|error| error.to_string())?;
                // Drivers leave threads behind that unloading would pull the code from under.
                let library: &'static Library = Box::leak(Box::new(library));
                Ok(Api { $(
                    // SAFETY: T1.
                    $name: *unsafe { library.get(stringify!($name).as_bytes()) }.map_err(|error| error.to_string())?,
                )* })
            }
        }
    };
}

api! {
    clGetPlatformIDs(u32, *mut Handle, *mut u32) -> Status;
    clGetDeviceIDs(Handle, u64, u32, *mut Handle, *mut u32) -> Status;
    clGetDeviceInfo(Handle, u32, usize, *mut c_void, *mut usize) -> Status;
    clCreateContext(*const c_void, u32, *const Handle, *const c_void, *mut c_void, *mut Status) -> Handle;
    clCreateCommandQueue(Handle, Handle, u64, *mut Status) -> Handle;
    clCreateProgramWithSource(Handle, u32, *const *const c_char, *const usize, *mut Status) -> Handle;
    clCreateProgramWithIL(Handle, *const c_void, usize, *mut Status) -> Handle;
    clBuildProgram(Handle, u32, *const Handle, *const c_char, *const c_void, *mut c_void) -> Status;
    clGetProgramBuildInfo(Handle, Handle, u32, usize, *mut c_void, *mut usize) -> Status;
    clCreateKernel(Handle, *const c_char, *mut Status) -> Handle;
    clSetKernelArg(Handle, u32, usize, *const c_void) -> Status;
    clEnqueueNDRangeKernel(Handle, Handle, u32, *const usize, *const usize, *const usize, u32, *const Handle,
        *mut Handle) -> Status;
    clCreateBuffer(Handle, u64, usize, *mut c_void, *mut Status) -> Handle;
    clReleaseMemObject(Handle) -> Status;
    clEnqueueReadBuffer(Handle, Handle, u32, usize, usize, *mut c_void, u32, *const Handle, *mut Handle) -> Status;
    clEnqueueWriteBuffer(Handle, Handle, u32, usize, usize, *const c_void, u32, *const Handle, *mut Handle) -> Status;
    clFinish(Handle) -> Status;
    clSVMAlloc(Handle, u64, usize, u32) -> *mut c_void;
    clSVMFree(Handle, *mut c_void) -> ();
    clSetKernelArgSVMPointer(Handle, u32, *const c_void) -> Status;
    clEnqueueSVMMemcpy(Handle, u32, *mut c_void, *const c_void, usize, u32, *const Handle, *mut Handle) -> Status;
    clGetExtensionFunctionAddressForPlatform(Handle, *const c_char) -> *mut c_void;
}

type UsmAlloc = unsafe extern "system" fn(Handle, Handle, *const c_void, usize, u32, *mut Status) -> *mut c_void;
type UsmFree = unsafe extern "system" fn(Handle, *mut c_void) -> Status;
type UsmCopy = unsafe extern "system" fn(
    Handle,
    u32,
    *mut c_void,
    *const c_void,
    usize,
    u32,
    *const Handle,
    *mut Handle,
) -> Status;
type UsmSetArg = unsafe extern "system" fn(Handle, u32, *const c_void) -> Status;

/// Functions of `cl_intel_unified_shared_memory`.
#[derive(Clone, Copy)]
struct Usm {
    alloc: UsmAlloc,
    free: UsmFree,
    copy: UsmCopy,
    set_arg: UsmSetArg,
}

/// The kinds of memory that a place can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Buffer objects.
    Buffer,
    /// Shared virtual memory, coarse-grained.
    Svm,
    /// Device memory by address.
    Usm,
}

/// A device with a context and a queue of its own. They live as long as the process.
pub(crate) struct Device {
    api: Arc<Api>,
    device: Handle,
    context: Handle,
    queue: Handle,
    usm: Option<Usm>,
}

fn ok(status: Status, what: &str) {
    assert_eq!(status, 0, "{what} failed");
}

/// Every device of every platform, or why there is none.
pub(crate) fn devices() -> Result<Vec<Device>, String> {
    let api = Arc::new(Api::load()?);
    let mut count = 0;
    // SAFETY: T1, T2.
    let status = unsafe { (api.clGetPlatformIDs)(0, null_mut(), &mut count) };
    if status != 0 || count == 0 {
        return Err(format!("there is no OpenCL platform (status {status})"));
    }
    let mut platforms = vec![null_mut(); count as usize];
    // SAFETY: T1, T2.
    ok(unsafe { (api.clGetPlatformIDs)(count, platforms.as_mut_ptr(), null_mut()) }, "clGetPlatformIDs");
    let mut devices = Vec::new();
    for platform in platforms {
        const ALL: u64 = 0xffff_ffff;
        let mut ids = [null_mut(); 16];
        let mut count = 0;
        // SAFETY: T1, T2.
        let status = unsafe { (api.clGetDeviceIDs)(platform, ALL, 16, ids.as_mut_ptr(), &mut count) };
        // Sub-devices of one CPU are alike: the first is enough.
        if status == 0 && count > 0 {
            devices.push(Device::open(Arc::clone(&api), platform, ids[0]));
        }
    }
    if devices.is_empty() { Err("no OpenCL platform has a device".into()) } else { Ok(devices) }
}

impl Device {
    fn open(api: Arc<Api>, platform: Handle, device: Handle) -> Device {
        let mut status = 0;
        // SAFETY: T1, T2.
        let context = unsafe { (api.clCreateContext)(null(), 1, &device, null(), null_mut(), &mut status) };
        ok(status, "clCreateContext");
        // SAFETY: T1, T2.
        let queue = unsafe { (api.clCreateCommandQueue)(context, device, 0, &mut status) };
        ok(status, "clCreateCommandQueue");
        let mut opened = Device { api, device, context, queue, usm: None };
        if opened.text(0x1030).contains("cl_intel_unified_shared_memory") {
            let find = |name: &str| {
                let name = CString::new(name).expect("a name without zeros");
                // SAFETY: T1, T2.
                let address = unsafe { (opened.api.clGetExtensionFunctionAddressForPlatform)(platform, name.as_ptr()) };
                assert!(!address.is_null(), "{name:?} is missing");
                address
            };
            // SAFETY: T1, of the extension that the device says it has.
            opened.usm = Some(unsafe {
                Usm {
                    alloc: std::mem::transmute::<Handle, UsmAlloc>(find("clDeviceMemAllocINTEL")),
                    free: std::mem::transmute::<Handle, UsmFree>(find("clMemFreeINTEL")),
                    copy: std::mem::transmute::<Handle, UsmCopy>(find("clEnqueueMemcpyINTEL")),
                    set_arg: std::mem::transmute::<Handle, UsmSetArg>(find("clSetKernelArgMemPointerINTEL")),
                }
            });
        }
        opened
    }

    fn info(&self, what: u32) -> Vec<u8> {
        let mut bytes = vec![0; 16 << 10];
        let mut len = 0;
        // SAFETY: T1, T2.
        let status =
            unsafe { (self.api.clGetDeviceInfo)(self.device, what, bytes.len(), bytes.as_mut_ptr().cast(), &mut len) };
        // A device that does not know a question has nothing of the kind.
        bytes.truncate(if status == 0 { len } else { 0 });
        bytes
    }

    fn number(&self, what: u32) -> u64 {
        self.info(what).iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    fn text(&self, what: u32) -> String {
        String::from_utf8_lossy(&self.info(what)).trim_end_matches('\0').to_owned()
    }

    pub(crate) fn name(&self) -> String {
        format!("{} ({})", self.text(0x102b), self.text(0x102d))
    }

    pub(crate) fn max_threads(&self) -> u32 {
        self.number(0x1004) as u32
    }

    pub(crate) fn features(&self) -> Features {
        // "OpenCL 3.0 ..."
        let version = self.text(0x102f);
        let mut numbers = version.split([' ', '.']).skip(1).map_while(|part| part.parse().ok());
        Features {
            version: (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)),
            little_endian: self.number(0x1026) != 0,
            single_fp_config: self.number(0x101b),
            double_fp_config: self.number(0x1032),
            local_memory: self.number(0x1023),
        }
    }

    /// Whether it takes SPIR-V.
    pub(crate) fn spirv(&self) -> bool {
        // CL_DEVICE_IL_VERSION, such as "SPIR-V_1.0 SPIR-V_1.2".
        self.text(0x105b).contains("SPIR-V_1.")
    }

    /// The kinds of memory that it has.
    pub(crate) fn memories(&self) -> Vec<Memory> {
        // CL_DEVICE_SVM_CAPABILITIES, coarse-grained buffers.
        let svm = self.number(0x1053) & 1 != 0;
        let all = [(Memory::Buffer, true), (Memory::Svm, svm), (Memory::Usm, self.usm.is_some())];
        all.into_iter().filter(|&(_, there)| there).map(|(memory, _)| memory).collect()
    }

    pub(crate) fn build(&self, source: &[&str], options: &str) -> Built<'_> {
        let strings: Vec<*const c_char> = source.iter().map(|part| part.as_ptr().cast()).collect();
        let lens: Vec<usize> = source.iter().map(|part| part.len()).collect();
        let mut status = 0;
        // SAFETY: T1, T2.
        let program = unsafe {
            (self.api.clCreateProgramWithSource)(
                self.context,
                strings.len() as u32,
                strings.as_ptr(),
                lens.as_ptr(),
                &mut status,
            )
        };
        ok(status, "clCreateProgramWithSource");
        self.built(program, options)
    }

    pub(crate) fn build_spirv(&self, code: &[u8]) -> Built<'_> {
        let mut status = 0;
        // SAFETY: T1, T2.
        let program =
            unsafe { (self.api.clCreateProgramWithIL)(self.context, code.as_ptr().cast(), code.len(), &mut status) };
        ok(status, "clCreateProgramWithIL");
        self.built(program, "")
    }

    fn built(&self, program: Handle, options: &str) -> Built<'_> {
        let options = CString::new(options).expect("options without zeros");
        // SAFETY: T1, T2.
        let status =
            unsafe { (self.api.clBuildProgram)(program, 1, &self.device, options.as_ptr(), null(), null_mut()) };
        if status != 0 {
            let mut log = vec![0_u8; 64 << 10];
            // SAFETY: T1, T2.
            unsafe {
                (self.api.clGetProgramBuildInfo)(
                    program,
                    self.device,
                    0x1183,
                    log.len(),
                    log.as_mut_ptr().cast(),
                    null_mut(),
                )
            };
            panic!("{}: status {status}: {}", self.name(), String::from_utf8_lossy(&log).trim_end_matches('\0'));
        }
        Built { device: self, program, kernels: Default::default() }
    }
}

/// A program.
pub(crate) struct Built<'a> {
    device: &'a Device,
    program: Handle,
    kernels: std::cell::RefCell<HashMap<Builtin, Handle>>,
}

/// Memory that a place is in.
enum Block<'a> {
    Buffer(&'a Device, Handle),
    Svm(&'a Device, *mut c_void),
    Usm(&'a Device, Usm, *mut c_void),
}

impl<'a> Block<'a> {
    fn new(device: &'a Device, memory: Memory, bytes: &[u8]) -> Block<'a> {
        let (api, len) = (&device.api, bytes.len().max(1));
        let mut status = 0;
        let block = match (memory, device.usm) {
            (Memory::Usm, Some(usm)) => {
                // SAFETY: T1, T2.
                let address = unsafe { (usm.alloc)(device.context, device.device, null(), len, 0, &mut status) };
                ok(status, "clDeviceMemAllocINTEL");
                Block::Usm(device, usm, address)
            }
            (Memory::Svm, _) => {
                // SAFETY: T1, T2.
                let address = unsafe { (api.clSVMAlloc)(device.context, 1, len, 0) };
                assert!(!address.is_null(), "clSVMAlloc failed");
                Block::Svm(device, address)
            }
            _ => {
                // SAFETY: T1, T2.
                let buffer = unsafe { (api.clCreateBuffer)(device.context, 1, len, null_mut(), &mut status) };
                ok(status, "clCreateBuffer");
                Block::Buffer(device, buffer)
            }
        };
        // Some drivers refuse copies of nothing.
        if bytes.is_empty() {
            return block;
        }
        let (from, len) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: T1, T2; the copies block.
        let status = unsafe {
            match block {
                Block::Buffer(_, buffer) => {
                    (api.clEnqueueWriteBuffer)(device.queue, buffer, 1, 0, len, from, 0, null(), null_mut())
                }
                Block::Svm(_, address) => {
                    (api.clEnqueueSVMMemcpy)(device.queue, 1, address, from, len, 0, null(), null_mut())
                }
                Block::Usm(_, usm, address) => (usm.copy)(device.queue, 1, address, from, len, 0, null(), null_mut()),
            }
        };
        ok(status, "a write");
        block
    }

    fn read(&self, bytes: &mut [u8]) {
        if bytes.is_empty() {
            return;
        }
        let (to, len) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: T1, T2; the copies block.
        let status = unsafe {
            match *self {
                Block::Buffer(device, buffer) => {
                    (device.api.clEnqueueReadBuffer)(device.queue, buffer, 1, 0, len, to, 0, null(), null_mut())
                }
                Block::Svm(device, address) => {
                    (device.api.clEnqueueSVMMemcpy)(device.queue, 1, to, address, len, 0, null(), null_mut())
                }
                Block::Usm(device, usm, address) => {
                    (usm.copy)(device.queue, 1, to, address, len, 0, null(), null_mut())
                }
            }
        };
        ok(status, "a read");
    }

    /// Sets the two arguments of a place.
    fn set(&self, kernel: Handle, index: u32, offset: u64) {
        // SAFETY: T1, T2.
        let status = unsafe {
            match *self {
                Block::Buffer(device, buffer) => {
                    (device.api.clSetKernelArg)(kernel, index, size_of::<Handle>(), (&raw const buffer).cast())
                }
                Block::Svm(device, address) => (device.api.clSetKernelArgSVMPointer)(kernel, index, address),
                Block::Usm(_, usm, address) => (usm.set_arg)(kernel, index, address),
            }
        };
        ok(status, "setting a pointer");
        let (Block::Buffer(device, _) | Block::Svm(device, _) | Block::Usm(device, ..)) = *self;
        // SAFETY: T1, T2.
        let status = unsafe { (device.api.clSetKernelArg)(kernel, index + 1, 8, (&raw const offset).cast()) };
        ok(status, "setting an offset");
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        // SAFETY: T1, T2; every launch is waited for.
        unsafe {
            match *self {
                Block::Buffer(device, buffer) => drop((device.api.clReleaseMemObject)(buffer)),
                Block::Svm(device, address) => (device.api.clSVMFree)(device.context, address),
                Block::Usm(device, usm, address) => drop((usm.free)(device.context, address)),
            }
        }
    }
}

impl Built<'_> {
    fn kernel(&self, builtin: Builtin) -> Handle {
        *self.kernels.borrow_mut().entry(builtin).or_insert_with(|| {
            let name = CString::new(builtin.name()).expect("a name without zeros");
            let mut status = 0;
            // SAFETY: T1, T2.
            let kernel = unsafe { (self.device.api.clCreateKernel)(self.program, name.as_ptr(), &mut status) };
            ok(status, "clCreateKernel");
            kernel
        })
    }

    /// Launches a case and waits for its end.
    pub(crate) fn launch(&self, memory: Memory, case: &Case, plan: &Plan, dst: &mut [u8], src: &[u8]) {
        let (device, api) = (self.device, &self.device.api);
        let kernel = self.kernel(case.builtin);
        let to = Block::new(device, memory, dst);
        let from = Block::new(device, memory, src);
        let places = [(&to, case.dst_at), (&from, case.src_at)];
        let count = case.builtin.places();
        for (index, (block, at)) in places.iter().take(count).enumerate() {
            block.set(kernel, 2 * index as u32, *at as u64);
        }
        if !case.params.is_empty() {
            let (len, params) = (case.params.len(), case.params.as_ptr().cast());
            // SAFETY: T1, T2.
            ok(unsafe { (api.clSetKernelArg)(kernel, 2 * count as u32, len, params) }, "setting the parameters");
        }
        let (threads, all) = (plan.threads as usize, plan.threads as usize * plan.groups as usize);
        // SAFETY: T1, T2; the kernel keeps to its places.
        let status = unsafe {
            (api.clEnqueueNDRangeKernel)(device.queue, kernel, 1, null(), &all, &threads, 0, null(), null_mut())
        };
        ok(status, "clEnqueueNDRangeKernel");
        // SAFETY: T1.
        ok(unsafe { (api.clFinish)(device.queue) }, "clFinish");
        to.read(dst);
    }
}
