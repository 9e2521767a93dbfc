//! The interface of Level Zero as the fake needs it: written out here once more, from the specification, so that an error in
//! the backend's own declarations shows. A test compares all of it with the header where there is one (`tests`).

mod codes;
mod structs;
#[cfg(test)]
mod tests;

pub(crate) use codes::*;
pub(crate) use structs::*;

/// A handle of any kind; 0 is none.
pub(crate) type Handle = usize;

/// What a call answers.
pub(crate) type Code = u32;

/// A version as the interface packs it.
pub(crate) const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}
