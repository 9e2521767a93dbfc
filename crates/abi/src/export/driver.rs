//! The functions of an exported driver.

use super::{Construct, Create, device, size};
use crate::convert;
use crate::fault::{answer, contained};
use crate::raw;
use crate::text;
use anyaccel_hal::{Absence, Check, Driver, Probe};
use std::ffi::c_void;
use std::sync::Arc;

/// What a driver's pointer points to.
struct Exported(Arc<dyn Driver>);

/// The table, with the function that makes drivers of one backend.
pub(super) fn table(create: Create) -> raw::DriverTable {
    raw::DriverTable {
        struct_size: size::<raw::DriverTable>(),
        reserved: 0,
        create: Some(create),
        destroy: Some(destroy),
        probe: Some(probe),
        describe: Some(describe),
        start: Some(start),
        open: Some(open),
        close: Some(device::close),
        checks: Some(checks),
    }
}

/// Makes a driver for the host.
///
/// # Safety
/// `driver` and `fault` are what the host passed.
pub unsafe fn create(construct: Construct, driver: *mut *mut raw::Driver, fault: *mut raw::Fault) -> u32 {
    // SAFETY: what the host passed is valid for the call.
    unsafe {
        answer(fault, || {
            driver.write(Box::into_raw(Box::new(Exported(construct()))).cast());
            Ok(())
        })
    }
}

/// # Safety
/// From `create`, and not destroyed.
unsafe fn exported<'a>(driver: *mut raw::Driver) -> &'a dyn Driver {
    // SAFETY: as this function.
    unsafe { &*(*driver.cast::<Exported>()).0 }
}

unsafe extern "C" fn destroy(driver: *mut raw::Driver) {
    // SAFETY: from `create`; the host destroys it once.
    contained((), || drop(unsafe { Box::from_raw(driver.cast::<Exported>()) }));
}

unsafe extern "C" fn probe(driver: *mut raw::Driver, to: *mut raw::Probe) {
    contained((), || {
        // SAFETY: what the host passed is valid for the call.
        let (Probe { visible, present, absence, started }, to) = unsafe { (exported(driver).probe(), &mut *to) };
        to.visible = visible;
        to.present = present.unwrap_or(0);
        to.present_known = present.is_some().into();
        to.started = started.into();
        // SAFETY: the buffers are the host's own.
        unsafe {
            match absence {
                None => to.absence = raw::ABSENCE_NONE,
                Some(Absence::Missing { layer, subject, found }) => {
                    to.absence = raw::ABSENCE_MISSING;
                    to.layer = layer as u32;
                    text::put(&mut to.subject, &subject);
                    text::put(&mut to.found, &found);
                }
                Some(Absence::BadVariable { name, value, expected }) => {
                    to.absence = raw::ABSENCE_BAD_VARIABLE;
                    text::put(&mut to.subject, name);
                    text::put(&mut to.found, &value);
                    text::put(&mut to.expected, expected);
                }
                Some(Absence::Masked { name, value }) => {
                    to.absence = raw::ABSENCE_MASKED;
                    text::put(&mut to.subject, name);
                    text::put(&mut to.found, &value);
                }
            }
        }
    });
}

unsafe extern "C" fn describe(driver: *mut raw::Driver, ordinal: u32, info: *mut raw::DeviceInfo) -> u32 {
    contained(0, || {
        // SAFETY: what the host passed is valid for the call.
        unsafe {
            let Some(found) = exported(driver).describe(ordinal) else { return 0 };
            convert::put_info(info, &found);
        }
        1
    })
}

unsafe extern "C" fn start(driver: *mut raw::Driver, count: *mut u32, fault: *mut raw::Fault) -> u32 {
    // SAFETY: what the host passed is valid for the call.
    unsafe {
        answer(fault, || {
            count.write(exported(driver).start()?);
            Ok(())
        })
    }
}

unsafe extern "C" fn open(
    driver: *mut raw::Driver,
    ordinal: u32,
    device: *mut *mut raw::Device,
    fault: *mut raw::Fault,
) -> u32 {
    // SAFETY: what the host passed is valid for the call.
    unsafe {
        answer(fault, || {
            device.write(device::exported(exported(driver).open(ordinal)?));
            Ok(())
        })
    }
}

unsafe extern "C" fn checks(driver: *mut raw::Driver, context: *mut c_void, report: raw::Report) {
    contained((), || {
        // SAFETY: what the host passed is valid for the call.
        for Check { layer, verdict, subject, found } in unsafe { exported(driver).checks() } {
            let check = raw::Check {
                struct_size: size::<raw::Check>(),
                layer: layer as u32,
                verdict: verdict as u32,
                reserved: 0,
                subject: raw::ConstText::of(&subject),
                found: raw::ConstText::of(&found),
            };
            // SAFETY: the host's function, with the host's context; the texts live until it returns.
            unsafe { report(context, &raw const check) }
        }
    });
}
