//! A backend in Rust as a plugin: what [`export!`](crate::export!) is made of.
//!
//! Each function of the tables is one call of hal's method, and a panic in it a fault: nothing unwinds into the host.

mod capability;
mod device;
mod driver;
mod graphs;

use crate::kind;
use crate::raw;
use anyaccel_hal::Driver;
use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

#[doc(hidden)]
pub use driver::create;

/// A function that makes drivers. Starts nothing (H22, H24).
pub type Construct = fn() -> Arc<dyn Driver>;

/// The function of the driver's table that depends on the backend.
#[doc(hidden)]
pub type Create = unsafe extern "C" fn(*mut *mut raw::Driver, *mut raw::Fault) -> u32;

/// Exports a backend: the library that this stands in is a plugin.
///
/// Takes a function without arguments that returns `Arc<dyn Driver>`, or a closure that captures nothing. The crate has
/// `crate-type = ["cdylib"]`, and depends on `anyaccel-abi` and the backend.
///
/// ```
/// # mod backend { pub use anyaccel_host::driver; }
/// anyaccel_abi::export!(backend::driver);
/// # // SAFETY: the entry that was exported just now, and no host.
/// # let plugin = unsafe { anyaccel_abi::Plugin::linked(anyaccel_plugin_entry(std::ptr::null())) }.unwrap();
/// # assert_eq!(plugin.kind().name(), "host");
/// ```
#[macro_export]
macro_rules! export {
    ($construct:expr) => {
        /// What a plugin exports, see `anyaccel/plugin.h`.
        ///
        /// # Safety
        /// None is asked of the caller; `host` may be null.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn anyaccel_plugin_entry(host: *const $crate::raw::Host) -> *const $crate::raw::Plugin {
            unsafe extern "C" fn create(driver: *mut *mut $crate::raw::Driver, fault: *mut $crate::raw::Fault) -> u32 {
                // SAFETY: what the host passes to a function of this type.
                unsafe { $crate::export::create($construct, driver, fault) }
            }
            static EXPORTED: $crate::export::Exported = $crate::export::Exported::new();
            let _any_host = host;
            EXPORTED.plugin($construct, create, concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")))
        }
    };
}

/// The table of an exported backend, made at the first call of its entry and kept for good.
#[doc(hidden)]
#[derive(Debug)]
pub struct Exported(AtomicPtr<raw::Plugin>);

impl Default for Exported {
    fn default() -> Self {
        Self::new()
    }
}

impl Exported {
    /// Not made yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The table. Null if the backend panics when it is constructed. No lock: threads that come at the same time each make
    /// one, and the first is kept (H24).
    pub fn plugin(&self, construct: Construct, create: Create, version: &str) -> *const raw::Plugin {
        let made = self.0.load(Ordering::Acquire);
        if !made.is_null() {
            return made;
        }
        let ours = crate::fault::contained(ptr::null_mut(), || {
            Box::into_raw(Box::new(describe(&*construct(), create, version)))
        });
        if ours.is_null() {
            return ours;
        }
        match self.0.compare_exchange(ptr::null_mut(), ours, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => ours,
            Err(first) => {
                // SAFETY: made above and not published. What it points to is leaked, once a race.
                drop(unsafe { Box::from_raw(ours) });
                first
            }
        }
    }
}

/// The plugin's struct, what it points to leaked.
fn describe(driver: &dyn Driver, create: Create, version: &str) -> raw::Plugin {
    let kept = |text: &str| -> &'static CStr { Box::leak(CString::new(text).unwrap_or_default().into_boxed_c_str()) };
    let flag = |has, bit| if has { bit } else { 0 };
    raw::Plugin {
        struct_size: size_of::<raw::Plugin>() as u32,
        abi_major: raw::ABI_MAJOR,
        abi_minor: raw::ABI_MINOR,
        kind: kind::number(driver.kind()),
        name: kept(driver.kind().name()).as_ptr(),
        version: kept(version).as_ptr(),
        flags: flag(driver.fork_safe_probe(), raw::FORK_SAFE_PROBE) | flag(driver.restartable(), raw::RESTARTABLE),
        reserved: 0,
        driver: Box::leak(Box::new(driver::table(create))),
        device: &raw const device::TABLE.0,
    }
}

/// A table in a static.
struct Constant<T>(T);

// SAFETY: tables are constant, and their functions may be called from any thread (H18).
unsafe impl<T> Sync for Constant<T> {}

/// The size of a table.
const fn size<T>() -> u32 {
    size_of::<T>() as u32
}
