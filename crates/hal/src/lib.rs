//! The contract between the engine and a backend.
mod dtype;
pub use dtype::DType;
