//! The cache of pinned host memory over a simulated port: named cases, injected faults, a shadow model, threads.

mod cases;
mod fake;
mod faults;
mod model;
mod threads;
