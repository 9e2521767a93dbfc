//! Functions that no loader exports: a driver hands them out by name (`zeDriverGetExtensionFunctionAddress`).
//!
//! They are the driver's own, so they take the driver's handles: a loader with several drivers hands out others, which
//! [`Ze::native_driver`] and its like translate.

#![allow(non_snake_case, reason = "methods are named as the functions that they call")]

use super::codes::{ABSENT, Code, ZE_RESULT_SUCCESS};
use super::table::Ze;
use super::types::*;
use crate::conv::Failed;
use std::ffi::c_void;

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

macro_rules! extensions {
    ($($name:ident ( $($arg:ident : $type:ty),* $(,)? );)*) => {
        /// What a driver has beside the published interface, each `None` where it has it not.
        #[derive(Clone, Copy, Default)]
        pub struct Extensions {
            $($name: Option<unsafe extern "system" fn($($type),*) -> Code>,)*
        }

        impl std::fmt::Debug for Extensions {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut list = f.debug_list();
                $(if self.$name.is_some() { list.entry(&stringify!($name)); })*
                list.finish()
            }
        }

        impl Extensions {
            /// Names of them all.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Asks a driver.
            pub fn of(ze: &Ze, driver: ZeDriver) -> Self {
                let address = |name: &str| {
                    let mut address: *mut c_void = std::ptr::null_mut();
                    // SAFETY: a live driver, a C string, a valid place for the answer.
                    let asked = unsafe {
                        ze.zeDriverGetExtensionFunctionAddress(driver, name.as_ptr().cast(), &raw mut address)
                    };
                    asked.ok().map(|()| address).filter(|address| !address.is_null())
                };
                Self {
                    $($name: address(concat!(stringify!($name), "\0")).map(|address| {
                        // SAFETY: the driver's function of that name has that signature.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "system" fn($($type),*) -> Code>(address)
                        }
                    }),)*
                }
            }

            /// Whether the driver has the function of that name.
            pub fn has(&self, name: &str) -> bool {
                $(if name == stringify!($name) { return self.$name.is_some(); })*
                false
            }

            $(
                #[doc = concat!("`", stringify!($name), "`, as the driver's documentation has it.")]
                ///
                /// # Errors
                /// Its code, or [`ABSENT`].
                ///
                /// # Safety
                /// What that documentation asks of its arguments.
                #[inline]
                pub unsafe fn $name(&self, $($arg: $type),*) -> Result<(), Failed> {
                    let Some(function) = self.$name else {
                        return Err(Failed { api: stringify!($name), code: ABSENT });
                    };
                    // SAFETY: as this function's caller promises.
                    match unsafe { function($($arg),*) } {
                        ZE_RESULT_SUCCESS => Ok(()),
                        code => Err(Failed { api: stringify!($name), code }),
                    }
                }
            )*
        }
    };
}

extensions! {
    zexDriverImportExternalPointer(driver: ZeDriver, pointer: *mut c_void, size: usize);
    zexDriverReleaseImportedPointer(driver: ZeDriver, pointer: *mut c_void);
    zeGraphCreateExp(context: ZeContext, graph: *mut ZeGraph, next: *const c_void);
    zeGraphCreateExt(context: ZeContext, next: *const c_void, graph: *mut ZeGraph);
    zeCommandListBeginCaptureIntoGraphExp(list: ZeCommandList, graph: ZeGraph, next: *const c_void);
    zeCommandListBeginCaptureIntoGraphExt(list: ZeCommandList, graph: ZeGraph, next: *const c_void);
    zeCommandListEndGraphCaptureExp(list: ZeCommandList, graph: *mut ZeGraph, next: *const c_void);
    zeCommandListEndGraphCaptureExt(list: ZeCommandList, next: *const c_void, graph: *mut ZeGraph);
    zeCommandListInstantiateGraphExp(graph: ZeGraph, executable: *mut ZeExecutableGraph, next: *const c_void);
    zeGraphInstantiateExt(graph: ZeGraph, next: *const c_void, executable: *mut ZeExecutableGraph);
    zeCommandListAppendGraphExp(
        list: ZeCommandList,
        graph: ZeExecutableGraph,
        next: *const c_void,
        signal: ZeEvent,
        waits: u32,
        events: *mut ZeEvent,
    );
    zeCommandListAppendGraphExt(
        list: ZeCommandList,
        graph: ZeExecutableGraph,
        next: *const c_void,
        signal: ZeEvent,
        waits: u32,
        events: *mut ZeEvent,
    );
    zeGraphDestroyExp(graph: ZeGraph);
    zeGraphDestroyExt(graph: ZeGraph);
    zeExecutableGraphDestroyExp(graph: ZeExecutableGraph);
    zeExecutableGraphDestroyExt(graph: ZeExecutableGraph);
}
