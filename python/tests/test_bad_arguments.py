"""Every argument of every function, given what it does not take: a documented exception, never a panic or a crash."""

import numpy
import pytest

import anyaccel
from anyaccel import accelerator

BAD = {
    "None": None,
    "bool": True,
    "float": 1.5,
    "nan": float("nan"),
    "list": [],
    "huge": 2**100,
    "negative": -1,
    "-huge": -(2**100),
    "foreign": anyaccel.device("cuda:0"),
    "cpu": "cpu",
    "no device": "no such device",
    "negative device": "host:-1",
    "empty": "",
    "surrogate": "\udcff",
    "object": object(),
    "bytes": b"host",
    "array": numpy.zeros(3),
    "function": len,
}

# What a call may raise. AcceleratorError and OutOfMemoryError are RuntimeErrors.
ALLOWED = (TypeError, ValueError, RuntimeError, OverflowError, BufferError)

GRAPH, STREAM, EVENT, TENSOR = accelerator.Graph(), anyaccel.Stream(), anyaccel.Event(), anyaccel.ones(4, device=0)
HOST, GENERATOR, POOL = anyaccel.ones(4), anyaccel.Generator(), anyaccel.MemPool()


def test_device_arguments_before_the_start(script):
    script(
        """
        import anyaccel, pytest
        from anyaccel import accelerator as a
        for f in (a.synchronize, a.memory_stats, a.memory_allocated, a.reset_peak_memory_stats, a.current_stream,
                  a.get_memory_info, a.random.initial_seed, a.get_device_capability, anyaccel.Stream):
            for index in (-1, 2, 2**100):
                with pytest.raises(anyaccel.AcceleratorError, match="out of range: there are 2 devices"): f(index)
            with pytest.raises(TypeError): f(True)
            with pytest.raises(TypeError): f(0.0)
            with pytest.raises(ValueError): f("cpu")
            with pytest.raises(RuntimeError): f("nothing")
        assert not a.is_initialized()
        """
    )


def test_index_objects():
    class Index:
        def __index__(self):
            return 1

    class Bad:
        def __index__(self):
            raise KeyError

    for one in (Index(), numpy.int64(1), numpy.uint8(1)):
        assert accelerator.current_stream(one).device_index == 1
        accelerator.set_device_index(one)
        assert accelerator.current_device_index() == 1
        accelerator.set_device_index(0)
    with pytest.raises(KeyError):
        accelerator.current_stream(Bad())
    accelerator.set_device_index(numpy.int8(-1))


def everything():
    """All callables with the number of arguments that is theirs."""
    for owner in (accelerator, accelerator.memory, accelerator.random, anyaccel, anyaccel.random):
        for name in dir(owner):
            value = getattr(owner, name)
            if name.startswith("__") or not callable(value) or name in ("_close",):
                continue
            yield f"{owner.__name__}.{name}", value
    for label, value in {"Stream": STREAM, "Event": EVENT, "Tensor": TENSOR, "host Tensor": HOST, "Generator": GENERATOR, "Graph": GRAPH, "device": anyaccel.device("host"), "MemPool": POOL, "device_index": accelerator.device_index(0)}.items():
        for name in dir(value):
            if name in ("__class__", "__init_subclass__", "__subclasshook__", "__new__", "__init__", "__getattribute__", "__setattr__", "__delattr__", "__dir__", "__sizeof__", "__getstate__", "debug_dump", "__enter__", "__exit__", "__reduce_ex__", "__format__"):
                continue
            member = getattr(value, name, None)
            if callable(member):
                yield f"{label}.{name}", member


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name, function", list(everything()), ids=lambda v: v if isinstance(v, str) else "")
def test_no_argument_makes_it_panic(name, function):
    calls = [()] + [(bad,) for bad in BAD.values()] + [(a, b) for a in BAD.values() for b in (None, 1.5, -1, "x", 2**100)]
    calls += [(1, 2, 3, 4), (None,) * 7, (STREAM,), (EVENT,), (TENSOR,), (HOST,), (GENERATOR,), (anyaccel.float32,), (TENSOR, TENSOR)]
    for arguments in calls:
        for keywords in ({},) if len(arguments) > 1 else ({}, {"nothing": 1}, {"device": []}, {"device": "cpu"}, {"dtype": 3}, {"generator": 3}, {"priority": 1.5}):
            if arguments and arguments[0] is len and name.endswith(("_lazy_call", "host_fn", "attach_out_of_memory_observer")):
                continue
            try:
                function(*arguments, **keywords)
            except Exception as error:
                # A PanicException is no Exception, so it would fail the test by itself.
                assert isinstance(error, (*ALLOWED, NotImplementedError, IndexError, AttributeError, UnicodeError, StopIteration)), (arguments, error)
    GRAPH.reset()
    accelerator.synchronize()


def test_constructors_refuse():
    for wrong in BAD.values():
        if wrong is not None:
            with pytest.raises((TypeError, ValueError)):
                accelerator.Graph(capture_error_mode=wrong)
        for option in ("enable_timing", "blocking", "interprocess"):
            if not isinstance(wrong, bool):
                with pytest.raises(TypeError):
                    anyaccel.Event(**{option: wrong})
    for klass in (anyaccel.Tensor, anyaccel.dtype, accelerator.DeviceProperties):
        with pytest.raises(TypeError):
            klass()
