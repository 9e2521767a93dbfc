//! What the fake drivers of the tests share: kernels that run by their names ([`kernels`]), calls that fail by order
//! ([`failures`]), and the way to a library that was built beside a test ([`library`]). And what the tests of backends on
//! them share: processes of their own ([`scenario`]), and calls of a device ([`lab`]).

pub mod failures;
pub mod kernels;
pub mod lab;
pub mod library;
pub mod scenario;
