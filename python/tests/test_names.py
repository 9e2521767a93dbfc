"""Names and signatures are those of torch.accelerator 2.14, letter for letter."""

import inspect

import anyaccel
from anyaccel import accelerator

NAMES = """
Graph current_accelerator current_device_idx current_device_index get_device_capability current_stream device_count
device_index empty_cache empty_host_cache get_memory_info is_available max_memory_allocated max_memory_reserved
memory_allocated memory_reserved memory_stats reset_accumulated_memory_stats reset_peak_memory_stats set_device_idx
set_device_index set_stream synchronize
""".split()

SIGNATURES = {
    "accelerator.Graph": "(keep_graph=False, *, pool=None, capture_error_mode='default')",
    "accelerator.current_accelerator": "(check_available=False)",
    "accelerator.current_device_idx": "()",
    "accelerator.current_device_index": "()",
    "accelerator.get_device_capability": "(device=None, /)",
    "accelerator.current_stream": "(device=None, /)",
    "accelerator.device_count": "()",
    "accelerator.device_index": "(device, /)",
    "accelerator.empty_cache": "()",
    "accelerator.empty_host_cache": "()",
    "accelerator.get_memory_info": "(device_index=None, /)",
    "accelerator.is_available": "()",
    "accelerator.max_memory_allocated": "(device_index=None, /)",
    "accelerator.max_memory_reserved": "(device_index=None, /)",
    "accelerator.memory_allocated": "(device_index=None, /)",
    "accelerator.memory_reserved": "(device_index=None, /)",
    "accelerator.memory_stats": "(device_index=None, /)",
    "accelerator.reset_accumulated_memory_stats": "(device_index=None, /)",
    "accelerator.reset_peak_memory_stats": "(device_index=None, /)",
    "accelerator.set_device_idx": "(device, /)",
    "accelerator.set_device_index": "(device, /)",
    "accelerator.set_stream": "(stream)",
    "accelerator.synchronize": "(device=None, /)",
    "accelerator.mem_get_info": "(device_index=None, /)",
    "accelerator.random.initial_seed": "(device=None, /)",
    "accelerator.random.get_rng_state": "(device=None, /)",
    "accelerator.random.get_rng_state_all": "()",
    "accelerator.random.manual_seed": "(seed)",
    "accelerator.random.manual_seed_all": "(seed)",
    "accelerator.random.seed": "()",
    "accelerator.random.seed_all": "()",
    "accelerator.random.set_rng_state": "(new_state, device=None)",
    "accelerator.random.set_rng_state_all": "(new_states)",
    "accelerator.random._lazy_call": "(callable, **kwargs)",
    "Stream": "(device=None, *, priority=0)",
    "Stream.record_event": "(self, /, event=None)",
    "Stream.wait_event": "(self, /, event)",
    "Stream.wait_stream": "(self, /, stream)",
    "Event": "(device=None, *, enable_timing=False, blocking=False, interprocess=False)",
    "Event.record": "(self, /, stream=None)",
    "Event.wait": "(self, /, stream=None)",
    "Event.elapsed_time": "(self, end_event, /)",
    "accelerator.Graph.debug_dump": "(self, path)",
}


def plain(signature: inspect.Signature) -> str:
    """Names, kinds and defaults, without annotations."""
    parameters = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def test_the_23_names():
    assert len(NAMES) == 23
    assert sorted(accelerator.__all__) == sorted(NAMES)
    assert all(hasattr(accelerator, name) for name in NAMES)


def test_signatures():
    for path, expected in SIGNATURES.items():
        found = anyaccel
        for name in path.split("."):
            found = getattr(found, name)
        assert plain(inspect.signature(found)) == expected, path


def test_submodules_and_extras():
    for name in ("memory", "random", "graphs", "_utils"):
        assert inspect.ismodule(getattr(accelerator, name))
    for name in ("manual_seed", "seed", "initial_seed", "get_rng_state"):
        assert not hasattr(accelerator, name), "random's names stay out of the top level"
    extras = "get_device_name get_device_properties can_device_access_peer utilization memory_usage temperature power_draw"
    extras += " clock_rate memory_summary set_per_process_memory_fraction host_memory_stats attach_out_of_memory_observer"
    for name in extras.split():
        assert hasattr(accelerator, name) and name not in accelerator.__all__
    assert hasattr(accelerator.memory, "_snapshot")
    assert all(hasattr(anyaccel, name) for name in anyaccel.__all__)


def test_everything_has_a_docstring():
    for module in (anyaccel, accelerator, accelerator.memory, accelerator.random, accelerator.graphs, anyaccel.random):
        assert module.__doc__
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value):
                assert value.__doc__, name


def test_exceptions_are_siblings():
    assert issubclass(anyaccel.AcceleratorError, RuntimeError)
    assert issubclass(anyaccel.OutOfMemoryError, RuntimeError)
    assert not issubclass(anyaccel.OutOfMemoryError, anyaccel.AcceleratorError)
    assert not issubclass(anyaccel.AcceleratorError, anyaccel.OutOfMemoryError)
