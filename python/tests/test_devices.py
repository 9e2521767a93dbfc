"""Devices: naming, choosing, asking."""

import copy
import pickle
import threading
import warnings

import pytest

import anyaccel
from anyaccel import accelerator


def test_counting_and_naming():
    assert accelerator.is_available() is True
    assert accelerator.device_count() == 2
    assert accelerator.current_accelerator() == anyaccel.device("host")
    assert accelerator.current_accelerator(True) == anyaccel.device("host")
    assert accelerator.current_accelerator(check_available=True).index is None


def test_naming_and_asking_start_nothing(script):
    out = script(
        """
        import anyaccel
        from anyaccel import accelerator as a
        a.is_available(), a.device_count(), a.current_accelerator(), a.current_accelerator(True), a.current_device_index()
        a.get_device_capability(), a.get_device_capability("host:0"), a.get_device_name()
        anyaccel.Event(), anyaccel.Event("host:0", enable_timing=True).query(), a.Graph(), anyaccel.Generator()
        a.synchronize(), a.synchronize(0), a.synchronize("host")
        a.set_device_index(-1), a.device_index(0)
        with a.device_index(None): pass
        assert a.memory_stats() == {} and a.memory_stats(0) == {} and len(a.host_memory_stats()) == 0
        assert a.memory_allocated() == a.max_memory_allocated() == a.memory_reserved() == a.max_memory_reserved() == 0
        a.reset_peak_memory_stats(), a.reset_accumulated_memory_stats(), a.empty_cache(), a.empty_host_cache()
        a.random.manual_seed(1), a.random.manual_seed_all(2), a.random.seed(), a.random.seed_all()
        a.random.set_rng_state(bytes(16)), a.random.set_rng_state_offset(8), anyaccel.manual_seed(3)
        anyaccel.empty(3), anyaccel.zeros(2, device="meta")
        assert not a.is_initialized()
        a.current_stream()
        assert a.is_initialized()
        """
    )
    assert out == ""


def test_without_an_accelerator(script):
    script(
        """
        import anyaccel, pytest
        from anyaccel import accelerator as a
        assert a.is_available() is False and a.device_count() == 0 and a.current_accelerator(True) is None
        for call in (a.current_device_index, a.current_stream, anyaccel.Stream, a.get_memory_info):
            with pytest.raises(RuntimeError): call()
        # A device without a kind is of the kind that the build knows first, as in a build of PyTorch with CUDA.
        assert str(anyaccel.device(0)) == "cuda:0" and a.current_accelerator() == anyaccel.device("cuda")
        a.empty_cache(), a.empty_host_cache(), a.synchronize()
        assert a.memory_stats() == {} and a.memory_allocated() == 0
        a.random.manual_seed(1), a.random.seed_all(), a.random.set_rng_state(bytes(16)), a.random._lazy_call(print)
        assert a.random.get_rng_state_all() == []
        with anyaccel.random.fork_rng(): pass
        assert anyaccel.zeros(3).tolist() == [0.0, 0.0, 0.0]
        with pytest.raises(RuntimeError, match="Cannot access accelerator device when none is available."):
            a.current_device_index()
        """,
        ANYACCEL_BACKEND="unset",
    )


def test_bad_environment(script):
    script(
        """
        import anyaccel, pytest
        from anyaccel import accelerator as a
        assert a.is_available() is False and a.device_count() == 0 and a.current_accelerator() is None
        with pytest.raises(RuntimeError, match="nonsense.*ANYACCEL_BACKEND"): a.current_stream()
        """,
        ANYACCEL_BACKEND="nonsense",
    )
    script(
        """
        import anyaccel, pytest
        from anyaccel import accelerator as a
        assert a.is_available() is False and a.device_count() == 0
        with pytest.raises(RuntimeError, match="ANYACCEL_HOST_DEVICES='many'"): a.current_stream()
        """,
        ANYACCEL_HOST_DEVICES="many",
    )


def test_device_index_of_a_thread():
    assert accelerator.current_device_index() == 0
    accelerator.set_device_index(1)
    assert accelerator.current_device_index() == 1
    seen = []
    thread = threading.Thread(target=lambda: seen.append(accelerator.current_device_index()))
    thread.start()
    thread.join()
    assert seen == [0]
    for same in ("host:0", anyaccel.device("host:0"), 0):
        accelerator.set_device_index(same)
        assert accelerator.current_device_index() == 0
    for negative in (-1, -128, -129, -(2**70)):
        accelerator.set_device_index(negative)


def test_set_device_index_refuses():
    for given in (None, "host", anyaccel.device("host"), 0.0, [], object()):
        with pytest.raises(ValueError, match="Expected a anyaccel.device with a specified index or an integer, but got:"):
            accelerator.set_device_index(given)
    with pytest.raises(ValueError, match="but got:None$"):
        accelerator.set_device_index(None)
    with pytest.raises(TypeError):
        accelerator.set_device_index(True)
    with pytest.raises(ValueError, match="cpu doesn't match the current accelerator host."):
        accelerator.set_device_index("cpu")
    with pytest.raises(anyaccel.AcceleratorError, match="Device index 2 is out of range: there are 2 devices"):
        accelerator.set_device_index(2)
    with pytest.raises(RuntimeError, match="Invalid device string: 'host:-1'"):
        accelerator.set_device_index("host:-1")
    with pytest.raises(RuntimeError, match="Expected one of cpu, .* device type at start of device string: foo"):
        accelerator.set_device_index("foo")


def test_device_index_context():
    one = accelerator.device_index(1)
    with one as entered:
        assert entered is None and accelerator.current_device_index() == 1
        with accelerator.device_index(0):
            assert accelerator.current_device_index() == 0
            with one:
                assert accelerator.current_device_index() == 1
            assert accelerator.current_device_index() == 0
        assert accelerator.current_device_index() == 1
    assert accelerator.current_device_index() == 0
    with pytest.raises(ZeroDivisionError), one:
        1 / 0
    assert accelerator.current_device_index() == 0
    with accelerator.device_index(None):
        assert accelerator.current_device_index() == 0
    for wrong in ("host:0", anyaccel.device("host:0"), 0.0, True, []):
        with pytest.raises(TypeError):
            accelerator.device_index(wrong)
    for index in (-1, 2, 2**70):
        with pytest.raises(anyaccel.AcceleratorError, match="out of range"), accelerator.device_index(index):
            pass
    assert accelerator.current_device_index() == 0


def test_device_index_of_one_object_in_two_threads():
    shared = accelerator.device_index(1)
    inside, leave, seen = threading.Event(), threading.Event(), []

    def other():
        with shared:
            inside.set()
            leave.wait()
        seen.append(accelerator.current_device_index())

    thread = threading.Thread(target=other)
    accelerator.set_device_index(1)
    thread.start()
    inside.wait()
    with shared:
        leave.set()
        thread.join()
        assert accelerator.current_device_index() == 1
    assert accelerator.current_device_index() == 1
    assert seen == [0]


def test_deprecated_pair():
    with pytest.warns(FutureWarning, match="Use `set_device_index` instead.") as seen:
        accelerator.set_device_idx(1)
    assert seen[0].filename == __file__
    with pytest.warns(FutureWarning, match="Use `current_device_index` instead."):
        assert accelerator.current_device_idx() == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accelerator.set_device_index(0)
    with pytest.warns(FutureWarning):
        accelerator.set_device_idx(-1)


def test_capability():
    capability = accelerator.get_device_capability()
    dtypes = capability["supported_dtypes"]
    assert isinstance(dtypes, frozenset) and anyaccel.float32 in dtypes and "float32" not in dtypes and None not in dtypes
    assert accelerator.get_device_capability()["supported_dtypes"] == dtypes
    assert accelerator.get_device_capability() is not capability
    numpy = pytest.importorskip("numpy")
    assert numpy.float32 in dtypes and numpy.dtype("int64") in dtypes and numpy.bool_ in dtypes
    assert numpy.dtype("U3") not in dtypes
    source = anyaccel.ones(4, dtype=anyaccel.float32, device="host:0")
    for dtype in dtypes:
        assert source.to(dtype).to(anyaccel.float32).tolist() == [1.0] * 4, dtype
    for device in ("host", "host:1", 0, anyaccel.device("host:0")):
        assert accelerator.get_device_capability(device)["supported_dtypes"]
    with pytest.raises(TypeError):
        accelerator.get_device_capability([])


def test_properties():
    properties = accelerator.get_device_properties()
    assert properties.name == accelerator.get_device_name() == accelerator.get_device_name("host:0")
    assert properties.total_memory > 0 and properties.max_allocation > 0
    assert properties.uuid is None or len(properties.uuid) == 36
    assert properties.name in repr(properties)
    assert accelerator.can_device_access_peer(0, 0) is False
    assert isinstance(accelerator.can_device_access_peer(0, 1), bool)
    for sensor in ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate"):
        with pytest.raises(NotImplementedError):
            getattr(accelerator, sensor)()


def test_device_object():
    device = anyaccel.device("host", 1)
    assert device == anyaccel.device("host:1") == anyaccel.device(1) == anyaccel.device(device)
    assert hash(device) == hash(anyaccel.device(1)) and device != anyaccel.device("host")
    assert device != "host:1" and device is not None
    assert (device.type, device.index) == ("host", 1)
    assert repr(device) == "device(type='host', index=1)" and str(device) == "host:1"
    assert repr(anyaccel.device("cpu")) == "device(type='cpu')" and str(anyaccel.device("meta")) == "meta"
    assert anyaccel.device(type="cuda", index=0) == anyaccel.device("cuda:0")
    for copied in (pickle.loads(pickle.dumps(device)), copy.copy(device), copy.deepcopy(device)):
        assert copied == device
    with anyaccel.device("host:1") as entered:
        assert entered == device
        assert anyaccel.empty(2).device == device
        with anyaccel.device("cpu"):
            assert anyaccel.empty(2).device.type == "cpu"
        assert anyaccel.empty(2).device == device
    assert anyaccel.empty(2).device.type == "cpu"
    for wrong in (None, 1.5, [], True):
        with pytest.raises(TypeError):
            anyaccel.device(wrong)
    for wrong in ("foo", "host:x", "host:01", "host: 1", "", "host:"):
        with pytest.raises(RuntimeError):
            anyaccel.device(wrong)
    with pytest.raises(RuntimeError):
        anyaccel.device("host:0", 1)
    with pytest.raises(RuntimeError):
        anyaccel.device("host", -1)
    with pytest.raises(anyaccel.AcceleratorError):
        anyaccel.device(-1)


def test_dtype_object():
    assert anyaccel.float is anyaccel.float32 and repr(anyaccel.bfloat16) == "anyaccel.bfloat16"
    assert pickle.loads(pickle.dumps(anyaccel.uint16)) is anyaccel.uint16
    assert anyaccel.complex64.is_complex and not anyaccel.uint8.is_signed and anyaccel.half.itemsize == 2
    assert anyaccel.float8_e4m3fn.is_floating_point


def test_get_device_module():
    assert anyaccel.get_device_module() is accelerator
    assert anyaccel.get_device_module("host") is anyaccel.get_device_module(anyaccel.device("host:1")) is accelerator
    with pytest.raises(RuntimeError):
        anyaccel.get_device_module("cuda")
    with pytest.raises(RuntimeError):
        anyaccel.get_device_module(3)


def test_get_device_index():
    resolve = accelerator._utils._get_device_index
    assert resolve(3) == 3 and resolve("host:1") == 1 and resolve(None, optional=True) == 0
    assert resolve("host", optional=True) == 0
    with pytest.raises(ValueError, match="but got:host"):
        resolve("host")
    with pytest.raises(ValueError, match="cpu doesn't match the current accelerator host."):
        resolve("cpu")
    with pytest.raises(TypeError):
        resolve(True)
