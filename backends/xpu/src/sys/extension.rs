//! Functions that no loader exports: a driver hands them out by name (`zeDriverGetExtensionFunctionAddress`).
//!
//! They are the driver's own, so they take the driver's handles: a loader with several drivers hands out others, which
//! [`Ze::native_driver`] and its like translate.

use super::codes::ABSENT;
use super::table::Ze;
use super::types::*;
use crate::conv::Failed;
use anyaccel_kit::native::SymbolTable;
use anyaccel_kit::symbols;
use std::ffi::{CStr, c_void};
use std::ptr;

macro_rules! translations {
    ($($(#[$doc:meta])* $name:ident: $type:ident = $kind:literal;)*) => {
        impl Ze {
            $(
                $(#[$doc])*
                pub fn $name(&self, handle: $type) -> $type {
                    let mut native = handle.0;
                    // SAFETY: a live handle of that kind, a valid place for the answer. A loader that can't translate hands out
                    // the driver's handles.
                    match unsafe { self.zelLoaderTranslateHandle($kind, handle.0, &raw mut native) } {
                        Ok(()) => $type(native),
                        Err(_) => handle,
                    }
                }
            )*
        }
    };
}

translations! {
    /// The driver's own handle of itself.
    native_driver: ZeDriver = 0;
    /// The driver's own handle of a context.
    native_context: ZeContext = 2;
    /// The driver's own handle of a command list.
    native_list: ZeCommandList = 4;
}

symbols! {
    /// What a driver has beside the published interface, which no version of that has.
    pub struct Extensions -> Result<(), Failed>;
    (0, 0) optional zexDriverImportExternalPointer(driver: ZeDriver, pointer: *mut c_void, size: usize);
    (0, 0) optional zexDriverReleaseImportedPointer(driver: ZeDriver, pointer: *mut c_void);
    (0, 0) optional zeGraphCreateExp(context: ZeContext, graph: *mut ZeGraph, next: *const c_void);
    (0, 0) optional zeGraphCreateExt(context: ZeContext, next: *const c_void, graph: *mut ZeGraph);
    (0, 0) optional zeCommandListBeginCaptureIntoGraphExp(list: ZeCommandList, graph: ZeGraph, next: *const c_void);
    (0, 0) optional zeCommandListBeginCaptureIntoGraphExt(list: ZeCommandList, graph: ZeGraph, next: *const c_void);
    (0, 0) optional zeCommandListEndGraphCaptureExp(list: ZeCommandList, graph: *mut ZeGraph, next: *const c_void);
    (0, 0) optional zeCommandListEndGraphCaptureExt(list: ZeCommandList, next: *const c_void, graph: *mut ZeGraph);
    (0, 0) optional zeCommandListInstantiateGraphExp(graph: ZeGraph, executable: *mut ZeExecutableGraph, next: *const c_void);
    (0, 0) optional zeGraphInstantiateExt(graph: ZeGraph, next: *const c_void, executable: *mut ZeExecutableGraph);
    (0, 0) optional zeCommandListAppendGraphExp(
        list: ZeCommandList,
        graph: ZeExecutableGraph,
        next: *const c_void,
        signal: ZeEvent,
        waits: u32,
        events: *mut ZeEvent,
    );
    (0, 0) optional zeCommandListAppendGraphExt(
        list: ZeCommandList,
        graph: ZeExecutableGraph,
        next: *const c_void,
        signal: ZeEvent,
        waits: u32,
        events: *mut ZeEvent,
    );
    (0, 0) optional zeGraphDestroyExp(graph: ZeGraph);
    (0, 0) optional zeGraphDestroyExt(graph: ZeGraph);
    (0, 0) optional zeExecutableGraphDestroyExp(graph: ZeExecutableGraph);
    (0, 0) optional zeExecutableGraphDestroyExt(graph: ZeExecutableGraph);
}

impl Extensions {
    /// Asks a driver.
    ///
    /// # Errors
    /// None while every line is optional.
    pub(crate) fn of(ze: &Ze, driver: ZeDriver) -> Result<Self, Failed> {
        let address = |name: &CStr| {
            let mut address = ptr::null_mut();
            // SAFETY: a live driver, a C string, a valid place for the answer.
            let asked = unsafe { ze.zeDriverGetExtensionFunctionAddress(driver, name.as_ptr(), &raw mut address) };
            asked.map_or(ptr::null_mut(), |()| address)
        };
        // SAFETY: N2: the driver's functions of these names have these signatures.
        unsafe { Self::load(&address) }.map_err(|symbol| Failed { api: symbol.name, code: ABSENT })
    }
}
