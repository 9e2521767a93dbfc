//! Tests of the simulated device through the hal.

mod discovery;
mod failures;
mod holds;
mod host_calls;
mod kernels;
mod memory;
mod misuse;
mod order;
mod shadow;
mod support;
