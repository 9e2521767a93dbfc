//! Intel GPUs, over the Level Zero loader that the machine has.
//!
//! Nothing is linked: the loader is loaded at run time, from a table of symbols ([`sys`]). A library, symbol or device that is
//! missing is an answer with a reason. Loaders of 1.8 and newer.

mod conv;
pub mod probe;
pub mod sys;
pub mod telemetry;

pub use conv::Failed;
