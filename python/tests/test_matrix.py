"""Every argument of every function, method and class, one after the other, given what it does not take: an exception of
the allowed types or a result, never a panic, and everything works afterwards. What there is to call comes from the modules."""

import inspect

import numpy
import pytest

import anyaccel
from anyaccel import accelerator

BAD = {
    "None": None,
    "bool": True,
    "float": 1.5,
    "nan": float("nan"),
    "infinity": float("inf"),
    "complex": 1j,
    "list": [],
    "list of None": [None],
    "tuple": (),
    "dict": {},
    "huge": 2**100,
    "-huge": -(2**100),
    "2**63": 2**63,
    "negative": -1,
    "out of range": 99,
    "foreign": anyaccel.device("cuda:0"),
    "cpu": "cpu",
    "no device": "no such device",
    "negative device": "host:-1",
    "empty": "",
    "nul": "a\0b",
    "surrogate": "\udcff",
    "bytes": b"host",
    "object": object(),
    "type": int,
    "array": numpy.zeros(3),
    "array of objects": numpy.array([None]),
    "tensor": anyaccel.ones(3),
    "dtype": anyaccel.float32,
    "function": len,
}

# AcceleratorError and OutOfMemoryError are RuntimeErrors, UnicodeError is a ValueError.
ALLOWED = (TypeError, ValueError, RuntimeError, OverflowError, BufferError, IndexError, OSError)


class Raises:
    """Whatever protocol it is asked for, it raises."""

    def __getattr__(self, name):
        raise ZeroDivisionError(name)

    def _raise(self, *_):
        raise ZeroDivisionError

    __index__ = __float__ = __int__ = __bool__ = __iter__ = __len__ = __fspath__ = __str__ = __repr__ = _raise


def good():
    """An argument that fits, by the parameter's name."""
    device = anyaccel.ones(4, device=0)
    return {
        "args": (), "kwargs": {}, "exception": (), "_exception": (), "size": (2, 2), "shape": (2, 2), "stream": anyaccel.Stream(),
        "event": anyaccel.Event(), "end_event": anyaccel.Event(), "other": device, "src": device, "input": device,
        "data": [1, 2], "fill_value": 1, "value": 1, "ndarray": numpy.zeros(3), "buffer": bytearray(8),
        "ext_tensor": anyaccel.ones(3), "dtype": anyaccel.float32, "seed": 1, "offset": 4, "new_state": bytes(16),
        "new_states": [bytes(16)] * 2, "callable": int, "function": int, "observer": lambda *_: None, "fraction": 1.0,
        "bytes": None, "settings": "", "pool": None, "mode": "default", "capture_error_mode": "default", "keep_graph": False,
        "path": "graph.dot", "peer_device": 1, "p": 0.5, "handle": b"", "devices": None, "enabled": True, "type": "host",
        "dim": 0, "device_type": 1, "kind": "npu", "stream_id": 0,
    }  # fmt: skip


MODULES = (anyaccel, accelerator, accelerator.memory, accelerator.random, accelerator.graphs, accelerator._utils,
           anyaccel.random, anyaccel._anyaccel)  # fmt: skip
# What would end or change the process, and what runs what it is given on another thread or later.
SKIPPED = {"_close", "_atexit", "attach_out_of_memory_observer", "host_fn"}


def objects():
    x = anyaccel.ones(4, device=0)
    return [x, anyaccel.ones(4), anyaccel.ones(4, pin_memory=True), anyaccel.empty(4, device="meta"), anyaccel.Stream(),
            anyaccel.Event(enable_timing=True), anyaccel.Generator(), anyaccel.MemPool(), anyaccel.device("host:1"),
            anyaccel.float32, accelerator.Graph(), accelerator.device_index(0), accelerator.get_device_properties(),
            anyaccel.random.fork_rng()]  # fmt: skip


def callables():
    seen = set()
    for module in MODULES:
        for name, value in vars(module).items():
            if callable(value) and not name.startswith("__") and name not in SKIPPED and id(value) not in seen:
                seen.add(id(value))
                yield f"{module.__name__}.{name}", value
    for thing in objects():
        label = f"{type(thing).__name__}({getattr(thing, 'device', '')})"
        for name in dir(type(thing)):
            if name in SKIPPED or name.startswith("__") and name not in OPERATORS:
                continue
            member = getattr(thing, name, None)
            if callable(member) and not inspect.isclass(member):
                yield f"{label}.{name}", member


OPERATORS = """__eq__ __ne__ __lt__ __hash__ __len__ __exit__ __dlpack__ __array__ __deepcopy__ __contains__
__getitem__ __setitem__ __reduce__ __call__ __iter__ __bool__ __add__ __float__ __int__ __index__""".split()


def parameters(function):
    try:
        return list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return [inspect.Parameter("argument", inspect.Parameter.POSITIONAL_ONLY)]


def calls(function):
    """For each parameter: positional and keyword arguments with something bad in its place."""
    known = good()
    shape = parameters(function)
    for wrong in shape:
        for label, bad in {**BAD, "raises": Raises()}.items():
            positional, keywords = [], {}
            for each in shape:
                value = bad if each is wrong else known.get(each.name, None)
                if each.kind is inspect.Parameter.VAR_POSITIONAL:
                    positional += [bad] if each is wrong else list(known.get(each.name, ()))
                elif each.kind is inspect.Parameter.VAR_KEYWORD:
                    keywords.update({"nothing": bad} if each is wrong else {})
                elif each is not wrong and each.default is not inspect.Parameter.empty:
                    continue
                elif each.kind is inspect.Parameter.KEYWORD_ONLY or keywords:
                    keywords[each.name] = value
                elif each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and any(
                    before.default is not inspect.Parameter.empty for before in shape[: shape.index(each)]
                ):
                    keywords[each.name] = value
                else:
                    positional.append(value)
            yield f"{wrong.name}={label}", positional, keywords
    yield "too many", [None] * 9, {}
    yield "unknown keyword", [], {"no_such_argument": 1}


@pytest.fixture(scope="module", autouse=True)
def elsewhere(tmp_path_factory):
    """Files that are written lie in a folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("matrix"))
        yield


@pytest.fixture
def unchanged():
    """What is current, limits and settings, put back."""
    yield
    accelerator.set_per_process_memory_fraction(1.0)
    accelerator.memory.set_memory_budget(None)
    assert anyaccel.empty(1).device.type == "cpu"
    x = anyaccel.full((8,), 3.0, device=0)
    assert x.tolist() == [3.0] * 8
    accelerator.synchronize()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name, function", list(callables()), ids=lambda v: v if isinstance(v, str) else "")
def test_no_argument_makes_it_panic(unchanged, name, function):
    for label, positional, keywords in calls(function):
        try:
            function(*positional, **keywords)
        except ALLOWED:
            continue
        except ZeroDivisionError:
            assert "raises" in label
            continue
        except NotImplementedError as error:
            assert str(error), (name, label)
            continue
        except Exception as error:
            # A PanicException is none of these either.
            raise AssertionError(f"{name}({label}) raised {type(error).__name__}: {error}") from error


def test_the_matrix_is_large():
    found = [name for name, _ in callables()]
    assert len(found) > 250, len(found)
    for name in ("anyaccel.Stream", "anyaccel.accelerator.synchronize", "anyaccel.accelerator.random.seed_all", "Tensor(host:0).copy_"):
        assert any(name in each for each in found), name


# Functions that take a device of the current kind, found by their parameter.
OTHER_DEVICES = {
    # Take no index, or an index that is checked otherwise.
    "set_device_index", "set_device_idx", "device_index", "get_device_module", "_get_device_index",
    # Take the host and `meta` too.
    "empty", "zeros", "ones", "full", "tensor", "empty_like", "zeros_like", "from_dlpack", "_rebuild_tensor", "device",
    "Generator", "_ForkRng",
    # Has no history to show.
    "_snapshot",
}  # fmt: skip


def of_devices():
    seen = set()
    for module in MODULES:
        for name, value in vars(module).items():
            if not callable(value) or name in OTHER_DEVICES or id(value) in seen or name.startswith("__"):
                continue
            for parameter in parameters(value):
                if parameter.name in ("device", "device_index", "peer_device"):
                    seen.add(id(value))
                    yield f"{name}-{parameter.name}", value, parameter


@pytest.mark.parametrize("name, function, parameter", list(of_devices()), ids=lambda v: v if isinstance(v, str) else "")
def test_every_device_argument_is_refused_alike(name, function, parameter):
    known = good() | {"device": 0, "pool": anyaccel.MemPool(0)}

    def call(value):
        positional, keywords = [], {}
        for each in parameters(function):
            if each.name == parameter.name:
                if each.kind is inspect.Parameter.POSITIONAL_ONLY:
                    positional.append(value)
                else:
                    keywords[each.name] = value
            elif each.default is inspect.Parameter.empty:
                positional.append(known[each.name])
        return function(*positional, **keywords)

    for wrong in (True, 1.5, float("nan"), [], (), {}, object(), b"host", len, numpy.zeros(3)):
        with pytest.raises(TypeError):
            call(wrong)
    for index in (-1, 2, 127, 128, 2**31, 2**63, 2**100, -(2**100)):
        with pytest.raises(anyaccel.AcceleratorError, match=r"^Device index -?\d+ is out of range: there are 2 devices"):
            call(index)
    for foreign in ("cpu", "meta", "cuda:0", anyaccel.device("xpu")):
        with pytest.raises(ValueError, match=f"^{foreign} doesn't match the current accelerator host.$"):
            call(foreign)
    for wrong in ("no such device", "", "hostess", "HOST", " host"):
        with pytest.raises(RuntimeError, match="^Expected one of cpu, .* device type at start of device string"):
            call(wrong)
    with pytest.raises((UnicodeEncodeError, RuntimeError)):
        call("\udcff")
    for wrong in ("host:-1", "host:", "host:01", "host:99999999999"):
        with pytest.raises(RuntimeError, match="^Invalid device string: "):
            call(wrong)


def test_of_devices_finds_them():
    assert len({name for name, _, _ in of_devices()}) >= 28
