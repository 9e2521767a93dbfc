//! `anyaccel._anyaccel`: the runtime for Python. The package `anyaccel` arranges what is here under the names of
//! `torch.accelerator`.
//!
//! Everything acts on the process-wide runtime. Whatever may start it, enqueue, allocate or wait gives the interpreter to
//! other threads meanwhile ([`gate`]), and its waits look for signals every 50 ms. Objects are frozen: what changes is behind the
//! runtime's own locks.

mod device;
mod dtype;
mod error;
mod event;
mod functions;
mod gate;
mod graph;
mod history;
mod history_replay;
mod history_stacks;
mod memory;
mod plugin;
mod random;
mod scope;
mod simulate;
mod stream;
mod tensor;

use pyo3::prelude::*;

#[pymodule]
fn _anyaccel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    gate::install();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("AcceleratorError", py.get_type::<error::AcceleratorError>())?;
    module.add("OutOfMemoryError", py.get_type::<error::OutOfMemoryError>())?;
    dtype::register(module)?;
    module.add_class::<dtype::PyDType>()?;
    module.add_class::<device::PyDevice>()?;
    module.add_class::<stream::PyStream>()?;
    module.add_class::<event::PyEvent>()?;
    module.add_class::<graph::_Graph>()?;
    module.add_class::<memory::PyMemPool>()?;
    module.add_class::<random::PyGenerator>()?;
    module.add_class::<random::_ForkRng>()?;
    module.add_class::<tensor::Tensor>()?;
    module.add_class::<functions::PyDeviceIndex>()?;
    module.add_class::<functions::PyProperties>()?;
    macro_rules! add {
        ($($area:ident :: { $($function:ident),* $(,)? };)*) => {$($(
            module.add_function(wrap_pyfunction!($area::$function, module)?)?;
        )*)*};
    }
    add! {
        gate::{_close};
        graph::{_check_capture_error_mode};
        functions::{
            is_available, device_count, current_accelerator, current_device_index, set_device_index, current_stream,
            default_stream, set_stream, synchronize, empty_cache, empty_host_cache, _supported_dtypes, get_device_name,
            get_device_properties, can_device_access_peer, utilization, memory_usage, temperature, power_draw, clock_rate,
            is_initialized,
        };
        memory::{
            get_memory_info, memory_stats, host_memory_stats, memory_allocated, max_memory_allocated, memory_reserved,
            max_memory_reserved, reset_peak_memory_stats, reset_accumulated_memory_stats, reset_peak_host_memory_stats,
            reset_accumulated_host_memory_stats, memory_summary, set_per_process_memory_fraction, set_memory_budget,
            set_allocator_settings, attach_out_of_memory_observer,
        };
        random::{
            initial_seed, get_rng_state, get_rng_state_all, get_rng_state_offset, manual_seed, manual_seed_all, seed,
            seed_all, set_rng_state, set_rng_state_all, set_rng_state_offset, _lazy_call, _host_generator, _checked_seed,
        };
        simulate::{_simulate};
        tensor::{_rebuild_tensor};
        plugin::{load_plugin};
    }
    add! {
        history::{
            _record_memory_history, _memory_snapshot, _dump_snapshot, _history_status, _enter_annotation, _leave_annotation,
        };
        history_replay::{_replay, _recorded_settings, _tune, _findings};
    }
    use tensor::{consumer, factory};
    add! {
        consumer::{_dlpack_order, _typestr};
        factory::{empty, zeros, ones, full, tensor, empty_like, zeros_like, from_numpy, frombuffer, from_dlpack};
    }
    Ok(())
}
