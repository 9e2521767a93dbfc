"""Tensors: memory with a shape."""

import copy
import gc
import math
import pickle
import weakref

import pytest

import anyaccel
from anyaccel import accelerator

DTYPES = [getattr(anyaccel, n) for n in "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex32 complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu".split()]


def test_shapes():
    for size, shape in (((), ()), ((3,), (3,)), ((2, 3), (2, 3)), (((2, 3),), (2, 3)), (([2, 3],), (2, 3)), ((0, 5), (0, 5)), (((),), ())):
        for device in ("cpu", "meta", 0):
            x = anyaccel.empty(*size, device=device)
            assert x.shape == shape and x.ndim == x.dim() == len(shape) and x.numel() == math.prod(shape)
            assert x.size() == shape and x.nbytes == 4 * x.numel() and x.is_contiguous() and x.dtype is anyaccel.float32
    x = anyaccel.empty(2, 3, 4)
    assert x.stride() == (12, 4, 1) and x.size(-1) == 4 and len(x) == 2 and x.element_size() == x.itemsize == 4
    assert x.view(6, -1).shape == (6, 4) and x.reshape((24,)).shape == (24,) and x.reshape(-1).shape == (24,)
    with pytest.raises(IndexError):
        x.size(3)
    with pytest.raises(TypeError):
        len(anyaccel.empty(()))
    for wrong in ((-1,), (2**62, 2**62), (2**70,)):
        with pytest.raises(RuntimeError):
            anyaccel.empty(*wrong)
    for wrong in ("3", 1.5, None, True):
        with pytest.raises(TypeError):
            anyaccel.empty(wrong)
    for wrong in ((5,), (-1, -1), (7, -1)):
        with pytest.raises(RuntimeError):
            x.view(*wrong)
    with pytest.raises(anyaccel.OutOfMemoryError):
        anyaccel.empty(2**59)
    with pytest.raises(anyaccel.OutOfMemoryError):
        anyaccel.empty(2**46, device=0)


@pytest.mark.parametrize("device", ["cpu", "host:0"])
@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_every_dtype(device, dtype):
    if dtype is not anyaccel.float8_e8m0fnu:
        assert not any(anyaccel.zeros(3, dtype=dtype, device=device).tolist())
    ones = anyaccel.ones(3, dtype=dtype, device=device)
    assert ones.dtype is dtype and ones.tolist() == [1, 1, 1]
    assert ones.to(anyaccel.float64).tolist() == [1.0] * 3
    assert anyaccel.full((2, 2), 2, dtype=dtype, device=device).to(anyaccel.bool).tolist() == [[True, True]] * 2
    assert ones.clone().equal(ones) and ones.to("cpu").tolist() == [1, 1, 1]
    assert pickle.loads(pickle.dumps(ones)).equal(ones)
    assert ones.view(anyaccel.uint8).nbytes == ones.nbytes


def test_values():
    x = anyaccel.tensor([[1, 2], [3, 4]], device="host:1")
    assert x.dtype is anyaccel.int64 and x.tolist() == [[1, 2], [3, 4]] and x.device == anyaccel.device("host:1")
    assert anyaccel.tensor([1, 2.5]).dtype is anyaccel.float32 and anyaccel.tensor(True).dtype is anyaccel.bool
    assert anyaccel.tensor(1j).item() == 1j and anyaccel.tensor([]).shape == (0,) and anyaccel.tensor(7).item() == 7
    assert anyaccel.tensor(2**64 - 1, dtype=anyaccel.uint64).item() == 2**64 - 1
    assert anyaccel.tensor([1, 2], pin_memory=True).is_pinned()
    for wrong in ([[1], [2, 3]], [1, [2]], [[1], 2]):
        with pytest.raises(ValueError):
            anyaccel.tensor(wrong)
    with pytest.raises(TypeError):
        anyaccel.tensor("text")
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        x.item()
    for dtype, wrong in ((anyaccel.uint8, 256), (anyaccel.uint8, -1), (anyaccel.int64, 2**63), (anyaccel.int32, math.inf), (anyaccel.int8, 1e30)):
        with pytest.raises(RuntimeError):
            anyaccel.zeros(1, dtype=dtype).fill_(wrong)
    with pytest.raises(RuntimeError):
        anyaccel.zeros(1).fill_(1j)
    for wrong in ("1", None, [1]):
        with pytest.raises(TypeError):
            anyaccel.zeros(1).fill_(wrong)
    assert anyaccel.zeros(2, dtype=anyaccel.int32).fill_(2.9).tolist() == [2, 2]
    assert not anyaccel.tensor([math.nan]).equal(anyaccel.tensor([math.nan]))
    assert anyaccel.tensor([0.0]).equal(anyaccel.tensor([-0.0]))


def test_copies_between_all_places():
    def places():
        return {
            "host": anyaccel.empty(100),
            "pinned": anyaccel.empty(100, pin_memory=True),
            "device": anyaccel.empty(100, device=0),
            "other": anyaccel.empty(100, device=1),
            "narrow": anyaccel.empty(100, dtype=anyaccel.float16),
            "narrow device": anyaccel.empty(100, dtype=anyaccel.bfloat16, device=0),
            "narrow other": anyaccel.empty(100, dtype=anyaccel.bfloat16, device=1),
            "narrow pinned": anyaccel.empty(100, dtype=anyaccel.float64, pin_memory=True),
        }

    for from_name, source in places().items():
        source.fill_(3.0)
        for to_name, target in places().items():
            assert target.copy_(source) is target
            assert target.tolist() == [3.0] * 100, (from_name, to_name)
    with pytest.raises(RuntimeError, match="shapes differ"):
        anyaccel.empty(2).copy_(anyaccel.empty(3))
    with pytest.raises(TypeError):
        anyaccel.empty(2).copy_([1, 2])


def test_copies_are_ordered_between_streams():
    x, y = anyaccel.zeros(1 << 16, device=0), anyaccel.zeros(1 << 16, device=1)
    for value in range(1, 20):
        x.fill_(value)
        y.copy_(x)
        x.fill_(-1)
        assert set(y.tolist()) == {float(value)}


def test_non_blocking():
    pinned, x = anyaccel.ones(1 << 18, pin_memory=True), anyaccel.zeros(1 << 18, device=0)
    stream = anyaccel.Stream()
    stream.wait_stream(accelerator.current_stream())  # the zeros
    with stream:
        x.copy_(pinned, non_blocking=True)
        back = anyaccel.zeros(1 << 18, pin_memory=True)
        back.copy_(x, non_blocking=True)
        stream.synchronize()
    assert back.equal(pinned)
    assert x.to("cpu", non_blocking=True).equal(pinned)


def test_to():
    x = anyaccel.ones(3, device=0)
    assert x.to("host:0") is x and x.to("host") is x and x.to(0) is x and x.to(anyaccel.float32) is x and x.to(None) is x
    assert x.to(x) is x and x.to("host", copy=True) is not x
    y = x.to("cpu", anyaccel.float64, False, True)
    assert y.dtype is anyaccel.float64 and y.device.type == "cpu" and y.cpu() is y
    assert x.to(y).dtype is anyaccel.float64 and x.to(dtype=anyaccel.int8).device == x.device
    assert y.to(device=1, dtype=anyaccel.float32).device.index == 1
    for wrong in ([], 1.5):
        with pytest.raises(TypeError):
            x.to(wrong)
    with pytest.raises(TypeError):
        x.to(colour=1)
    with pytest.raises(ValueError):
        x.to("cuda")
    assert x.to("meta").device.type == "meta"


def test_meta():
    x = anyaccel.empty(10**6, 10**6, device="meta")
    assert x.fill_(1.0) is x and x.normal_() is x and x.data_ptr() == 0
    assert x.copy_(anyaccel.empty_like(x)) is x
    for call in (x.tolist, x.cpu, lambda: anyaccel.empty(2).copy_(anyaccel.empty(2, device="meta"))):
        with pytest.raises(NotImplementedError):
            call()


def test_pinning():
    x = anyaccel.ones(10)
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned() and pinned.pin_memory() is pinned and pinned.equal(x)
    assert pinned.device.type == "cpu" and "pinned" in repr(pinned) and pinned.clone().is_pinned()
    with pytest.raises(RuntimeError):
        anyaccel.ones(3, device=0).pin_memory()
    with pytest.raises(RuntimeError):
        anyaccel.empty(3, device=0, pin_memory=True)


def test_like_and_views_share_memory():
    x = anyaccel.zeros(2, 4, dtype=anyaccel.int32, device=0)
    assert anyaccel.empty_like(x).device == x.device and anyaccel.zeros_like(x, device="cpu").tolist() == [[0] * 4] * 2
    view = x.view(8)
    view.fill_(5)
    assert x.tolist() == [[5] * 4] * 2 and view.data_ptr() == x.data_ptr()
    assert x.view(anyaccel.int64).shape == (2, 2) and x.view(anyaccel.int8).shape == (2, 16)
    with pytest.raises(RuntimeError):
        anyaccel.empty(3, dtype=anyaccel.int8).view(anyaccel.int32)
    shallow, deep = copy.copy(x), copy.deepcopy(x)
    x.fill_(6)
    assert shallow.equal(x) and not deep.equal(x) and x.detach() is x.contiguous() is x


def test_lifetimes():
    x = anyaccel.ones(4, device=0)
    gone = weakref.ref(x)
    view = x.view(2, 2)
    del x
    gc.collect()
    assert gone() is None and view.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    stream = anyaccel.Stream()
    view.record_stream(stream)
    with pytest.raises(NotImplementedError):
        anyaccel.ones(4).record_stream(stream)
    with pytest.raises(TypeError):
        view.record_stream(None)


def test_repr():
    assert repr(anyaccel.empty(2, 3, device=0)) == "Tensor(shape=(2, 3), dtype=anyaccel.float32, device='host:0')"


def test_what_a_device_agnostic_program_does():
    """One program for any device, as written for torch.accelerator."""
    torch = anyaccel
    if not torch.accelerator.is_available():
        pytest.fail("the built-in device is always available")
    device = torch.accelerator.current_accelerator()
    module = torch.get_device_module(device)
    assert module.device_count() == torch.accelerator.device_count()
    torch.manual_seed(0)
    for index in range(torch.accelerator.device_count()):
        with torch.accelerator.device_index(index):
            start, end = torch.Event(enable_timing=True), torch.Event(enable_timing=True)
            side = torch.Stream(device=device, priority=-1)
            side.wait_stream(torch.accelerator.current_stream())
            host = torch.ones(1000).pin_memory()
            with side:
                start.record()
                x = host.to(device, non_blocking=True)
                end.record(side)
            torch.accelerator.current_stream().wait_event(end)
            x.record_stream(torch.accelerator.current_stream())
            torch.accelerator.synchronize()
            assert start.elapsed_time(end) >= 0 and x.device.index == index and x.cpu().equal(host)
            assert torch.accelerator.memory_allocated(index) >= 4000
    torch.accelerator.empty_cache()
    if torch.float16 in torch.accelerator.get_device_capability(device)["supported_dtypes"]:
        x.to(torch.float16)
