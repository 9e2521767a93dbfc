"""Memory shared with NumPy, and with whatever speaks DLPack or the buffer protocol."""

import array
import ctypes
import gc

import pytest

import anyaccel

numpy = pytest.importorskip("numpy")

SHARED = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 complex64 complex128".split()


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("pinned", [False, True])
def test_numpy_shares_memory_both_ways(name, pinned):
    x = anyaccel.zeros(2, 3, dtype=getattr(anyaccel, name), pin_memory=pinned)
    for view in (x.numpy(), numpy.asarray(x), numpy.from_dlpack(x)):
        assert view.dtype == numpy.dtype(name) and view.shape == (2, 3)
        view[1, 2] = 1
        assert x.tolist()[1][2] == 1
        x.zero_()
        assert not view.any()
    source = numpy.arange(6).reshape(2, 3).astype(name)
    for tensor in (anyaccel.from_numpy(source), anyaccel.from_dlpack(source)):
        assert tensor.dtype is getattr(anyaccel, name) and tensor.tolist() == source.tolist()
        tensor.fill_(1)
        assert (source == 1).all()
        source[...] = 0


def test_views_outlive_tensors():
    view = anyaccel.full((1000,), 7.0).numpy()
    device_view = numpy.from_dlpack(anyaccel.full((1000,), 8.0, device=0))
    tensor = anyaccel.from_numpy(numpy.full(1000, 9.0))
    gc.collect()
    junk = [anyaccel.full((1000,), 0.0, device=0) for _ in range(50)] + [anyaccel.full((1000,), 0.0) for _ in range(50)]
    assert set(view.tolist()) == {7.0} and set(device_view.tolist()) == {8.0} and set(tensor.tolist()) == {9.0} and junk


def test_memory_of_the_built_in_device_is_shared_through_dlpack():
    x = anyaccel.ones(100, device=0)
    stream = anyaccel.Stream()
    stream.wait_stream(anyaccel.accelerator.current_stream())  # the ones
    with stream:
        x.fill_(2.0)
        view = numpy.from_dlpack(x)
    assert x.__dlpack_device__() == (1, 0) and (view == 2.0).all()
    view[:] = 3.0
    assert x.tolist() == [3.0] * 100


def test_numpy_of_a_device_tensor():
    x = anyaccel.ones(3, device=0)
    with pytest.raises(TypeError, match="can't convert host:0 device type tensor to numpy"):
        x.numpy()
    assert x.numpy(force=True).tolist() == [1.0] * 3
    with pytest.raises(BufferError):
        memoryview(x)
    assert not hasattr(x, "__cuda_array_interface__")


def test_types_without_a_buffer_format():
    x = anyaccel.ones(3, dtype=anyaccel.bfloat16)
    with pytest.raises(TypeError):
        x.numpy()
    with pytest.raises(BufferError):
        memoryview(x)
    assert x.view(anyaccel.uint16).numpy().tolist() == [0x3F80] * 3


def test_what_cant_be_shared():
    a = numpy.zeros((4, 6))
    for wrong in (a.T, a[:, ::2], a.T[:2]):
        with pytest.raises(BufferError):
            anyaccel.from_numpy(wrong)
        with pytest.raises(BufferError):
            anyaccel.from_dlpack(wrong)
    for wrong in (numpy.zeros(3, ">i4"), numpy.array(["a"]), numpy.zeros(2, "i4,f8"), [1, 2], None, 3):
        with pytest.raises((TypeError, BufferError)):
            anyaccel.from_numpy(wrong)
        with pytest.raises((TypeError, BufferError)):
            anyaccel.from_dlpack(wrong)
    assert anyaccel.from_numpy(a[1:3]).shape == (2, 6) and anyaccel.from_numpy(a[:0]).shape == (0, 6)
    assert anyaccel.from_numpy(numpy.array(5)).item() == 5


def test_read_only_memory():
    a = numpy.arange(4)
    a.flags.writeable = False
    for tensor in (anyaccel.from_numpy(a), anyaccel.from_dlpack(a)):
        with pytest.raises(RuntimeError, match="read-only"):
            tensor.fill_(0)
        with pytest.raises(RuntimeError, match="read-only"):
            tensor.random_()
        with pytest.raises(RuntimeError, match="read-only"):
            tensor.copy_(anyaccel.zeros(4, device=0))
        assert memoryview(tensor).readonly and not tensor.numpy().flags.writeable
        assert tensor.clone().fill_(1).tolist() == [1] * 4
        with pytest.raises(BufferError):
            tensor.__dlpack__()
    assert anyaccel.from_numpy(b"abc").tolist() == [97, 98, 99]


def test_other_buffers():
    values = array.array("d", [1.0, 2.0])
    tensor = anyaccel.from_numpy(values)
    tensor.fill_(3.0)
    assert list(values) == [3.0, 3.0]
    with pytest.raises(BufferError):
        values.append(1.0)
    del tensor
    values.append(1.0)
    assert anyaccel.from_numpy((ctypes.c_int32 * 3)(1, 2, 3)).tolist() == [1, 2, 3]
    view = memoryview(anyaccel.zeros(2, 3, dtype=anyaccel.int16))
    assert (view.format, view.shape, view.strides, view.nbytes) == ("h", (2, 3), (6, 2), 12)
    assert anyaccel.frombuffer(bytearray(8), dtype=anyaccel.float32).shape == (2,)
    with pytest.raises(RuntimeError):
        anyaccel.frombuffer(bytearray(7), dtype=anyaccel.float32)


def test_dlpack_versions():
    x = anyaccel.ones(3)
    assert "dltensor_versioned" in repr(x.__dlpack__(max_version=(1, 0)))
    old = x.__dlpack__()
    assert '"dltensor"' in repr(old)
    del old
    assert x.__dlpack__(max_version=(0, 8)) is not None

    class Old:
        def __dlpack__(self, stream=None):
            return x.__dlpack__()

    class Twice:
        capsule = x.__dlpack__(max_version=(1, 0))

        def __dlpack__(self, **_):
            return self.capsule

    assert anyaccel.from_dlpack(Old()).data_ptr() == x.data_ptr()
    twice = Twice()
    assert anyaccel.from_dlpack(twice).data_ptr() == x.data_ptr()
    with pytest.raises(TypeError):
        anyaccel.from_dlpack(twice)
    copied = numpy.from_dlpack(anyaccel.ones(3), copy=True)
    copied[:] = 0
    assert anyaccel.from_dlpack(anyaccel.ones(3, device=0)).device.type == "cpu"
    for dtype in (anyaccel.bfloat16, anyaccel.float8_e5m2, anyaccel.bool, anyaccel.complex32):
        y = anyaccel.ones(3, dtype=dtype)
        assert anyaccel.from_dlpack(y).dtype is dtype
    with pytest.raises(BufferError):
        anyaccel.empty(3, device="meta").__dlpack__()
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(2, 0))
