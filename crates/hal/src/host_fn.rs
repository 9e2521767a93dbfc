//! Host code in streams: functions called in stream order, and kernels that are functions of this process.

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a host function is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum HostStatus {
    /// Its turn has come.
    Run = 0,
    /// Its turn can't come; clean up and wake whoever waits for it.
    Cancelled = 1,
}

/// A function of the host that runs in stream order (H13): a C callback, its data and the data's destructor.
///
/// Eager: called once, then dropped. In a graph: called once a replay, dropped with the graph. In memory it is what crosses
/// the C ABI: the callback, the destructor, the data.
#[repr(C)]
pub struct HostFn {
    call: unsafe extern "C" fn(*mut c_void, HostStatus),
    free: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

// SAFETY: whoever builds a HostFn promises (from_raw, or the Send bound of new) that its data may be used on any
// thread, one at a time.
unsafe impl Send for HostFn {}

impl HostFn {
    /// Wraps a closure. A panic in it is contained and lost: who wants to know catches it inside.
    pub fn new<F: FnMut(HostStatus) + Send + 'static>(function: F) -> Self {
        unsafe extern "C" fn call<F: FnMut(HostStatus)>(data: *mut c_void, status: HostStatus) {
            // SAFETY: data is the box made below, used by one thread at a time (H13).
            let function = unsafe { &mut *data.cast::<F>() };
            let _contained = catch_unwind(AssertUnwindSafe(|| function(status)));
        }
        unsafe extern "C" fn free<F>(data: *mut c_void) {
            // SAFETY: data is the box made below, and free is called once, by Drop.
            let function = unsafe { Box::from_raw(data.cast::<F>()) };
            let _contained = catch_unwind(AssertUnwindSafe(|| drop(function)));
        }
        Self { call: call::<F>, free: free::<F>, data: Box::into_raw(Box::new(function)).cast() }
    }

    /// Wraps a C callback.
    ///
    /// # Safety
    /// `call(data, _)` is sound from any thread until `free(data)`, neither unwinds, and `free` is sound once.
    #[inline]
    pub const unsafe fn from_raw(
        call: unsafe extern "C" fn(*mut c_void, HostStatus),
        free: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> Self {
        Self { call, free, data }
    }

    /// Calls it. Never under a lock.
    pub fn call(&mut self, status: HostStatus) {
        // SAFETY: the promise of from_raw; `&mut` makes it one thread at a time.
        unsafe { (self.call)(self.data, status) }
    }
}

impl Drop for HostFn {
    fn drop(&mut self) {
        // SAFETY: the promise of from_raw; Drop runs once.
        unsafe { (self.free)(self.data) }
    }
}

impl fmt::Debug for HostFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostFn").field(&self.data).finish()
    }
}

/// An argument as a host kernel sees it: a pointer and how many bytes may be used from there on.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelArg {
    /// The first byte. For group-local memory: fresh for each group, contents undefined.
    pub ptr: *mut u8,
    /// Bytes that the argument named: of the place, of the value, or of the local memory.
    pub len: u64,
}

/// Which group of a launch a host kernel is called for. It loops over the group's threads itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct WorkGroup {
    /// This group's index along x, y, z.
    pub index: [u32; 3],
    /// How many groups there are.
    pub groups: [u32; 3],
    /// How many threads a group has.
    pub threads: [u32; 3],
    /// Bytes of [`Launch::shared`](crate::Launch::shared).
    pub shared: u32,
}

/// A kernel that is a function of this process: called once a group, for several groups at a time.
pub struct HostKernel {
    call: unsafe extern "C" fn(*const c_void, *const WorkGroup, *const KernelArg, usize),
    free: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

// SAFETY: the promise of from_raw, or the Send + Sync bounds of new.
unsafe impl Send for HostKernel {}
// SAFETY: as above; call takes the data by shared reference.
unsafe impl Sync for HostKernel {}

impl HostKernel {
    /// Wraps a closure. Groups run concurrently, so writes of different groups must not meet unless they are atomic.
    /// A panic in it is contained and lost.
    pub fn new<F: Fn(&WorkGroup, &[KernelArg]) + Send + Sync + 'static>(function: F) -> Self {
        unsafe extern "C" fn call<F: Fn(&WorkGroup, &[KernelArg])>(
            data: *const c_void,
            group: *const WorkGroup,
            args: *const KernelArg,
            count: usize,
        ) {
            // SAFETY: data is the box made below and only shared; group and args are valid for the call by `run`.
            let (function, group, args) =
                unsafe { (&*data.cast::<F>(), &*group, std::slice::from_raw_parts(args, count)) };
            let _contained = catch_unwind(AssertUnwindSafe(|| function(group, args)));
        }
        unsafe extern "C" fn free<F>(data: *mut c_void) {
            // SAFETY: data is the box made below, and free is called once, by Drop.
            let function = unsafe { Box::from_raw(data.cast::<F>()) };
            let _contained = catch_unwind(AssertUnwindSafe(|| drop(function)));
        }
        Self { call: call::<F>, free: free::<F>, data: Box::into_raw(Box::new(function)).cast() }
    }

    /// Wraps a C function.
    ///
    /// # Safety
    /// `call` is sound from any thread, concurrently, until `free(data)`, neither unwinds, and `free` is sound once.
    #[inline]
    pub const unsafe fn from_raw(
        call: unsafe extern "C" fn(*const c_void, *const WorkGroup, *const KernelArg, usize),
        free: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> Self {
        Self { call, free, data }
    }

    /// Takes it apart, for a backend behind a C interface: what [`HostKernel::from_raw`] was given or would be. Whoever has the
    /// parts now owes the data its destructor.
    #[allow(clippy::type_complexity, reason = "three pointers, each used once")]
    #[inline]
    pub fn into_raw(
        self,
    ) -> (
        unsafe extern "C" fn(*const c_void, *const WorkGroup, *const KernelArg, usize),
        unsafe extern "C" fn(*mut c_void),
        *mut c_void,
    ) {
        let kernel = ManuallyDrop::new(self);
        (kernel.call, kernel.free, kernel.data)
    }

    /// Runs one group.
    ///
    /// # Safety
    /// H15: the arguments are what the kernel expects, and their memory may be used now.
    pub unsafe fn run(&self, group: &WorkGroup, args: &[KernelArg]) {
        // SAFETY: the promise of from_raw and of this function's caller.
        unsafe { (self.call)(self.data, group, args.as_ptr(), args.len()) }
    }
}

impl Drop for HostKernel {
    fn drop(&mut self) {
        // SAFETY: the promise of from_raw; Drop runs once.
        unsafe { (self.free)(self.data) }
    }
}

impl fmt::Debug for HostKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostKernel").field(&self.data).finish()
    }
}
