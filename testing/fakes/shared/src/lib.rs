//! What the fake drivers of the tests share: kernels that run by their names ([`kernels`]), calls that fail by order
//! ([`failures`]), and the way to a library that was built beside a test ([`library`]).

pub mod failures;
pub mod kernels;
pub mod library;
