//! A backend that does nothing yet: copy this folder and fill it in.
//!
//! It compiles, it is a plugin (`export!` below), the suite runs on it, and every case that needs a device says "not yet".
//! `docs/add-a-backend.md` goes through it step by step. The contract is the documentation of `anyaccel-hal`, whose rules
//! H1 to H33 the comments here cite.
//!
//! | file | subject |
//! |---|---|
//! | `driver` | what there is: counting, describing and opening devices |
//! | `device` | what a device does: memory, streams, order, time, work |
//! | `tests/suite.rs` | what is known to be missing; shrinks as the backend grows |

mod device;
mod driver;

use anyaccel_hal::Driver;
use std::sync::Arc;

/// A new driver. Starts nothing (H22, H24): no thread, no file, no library loaded, no lock.
pub fn driver() -> Arc<dyn Driver> {
    Arc::new(driver::TemplateDriver::default())
}

// The library is a plugin: `anyaccel cts target/debug/libanyaccel_template.so`.
anyaccel_abi::export!(driver);
