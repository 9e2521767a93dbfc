//! Nothing: what a launch costs when the kernel does no work.
//!
//! - Number: [`Builtin::Noop`](crate::Builtin::Noop), 1.
//! - Arguments: none, and no parameters.
//! - Split: one chunk.

use crate::Split;

/// The one chunk.
pub const fn split() -> Split {
    Split::new(1, 1)
}

/// Returns. Never inlined, so that a measurement of a call contains a call.
#[inline(never)]
pub fn noop() {}
