//! Functions of the caller's in the order of a stream.

use crate::pointer::get_struct;
use crate::result::{Failure, Result};
use crate::types::anyaccel_host_function;
use std::ffi::c_void;

/// One, with its data; dropping it destroys the data, once.
pub(crate) struct HostFunction {
    call: unsafe extern "C" fn(*mut c_void),
    _owned: Owned,
}

struct Owned {
    destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
}

// SAFETY: C4: both functions can be called from any thread with their data.
unsafe impl Send for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: C4; called once, after the last call.
            unsafe { destroy(self.data) }
        }
    }
}

impl HostFunction {
    /// # Safety
    /// C1, C3, C4.
    pub(crate) unsafe fn new(given: *const anyaccel_host_function) -> Result<Self> {
        // SAFETY: C1 and C3 are this function's conditions.
        let given: anyaccel_host_function = unsafe { get_struct(given, "function")? };
        // Made first: its data is destroyed on every way out.
        let owned = Owned { destroy: given.destroy, data: given.data };
        let call = given.call.ok_or_else(|| Failure::argument("function.call: NULL"))?;
        Ok(Self { call, _owned: owned })
    }

    /// Calls it.
    pub(crate) fn run(&self) {
        // SAFETY: C4.
        unsafe { (self.call)(self._owned.data) }
    }
}
