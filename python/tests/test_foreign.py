"""Memory shared with PyTorch's CPU tensors and JAX's arrays, where they are installed."""

import gc
import threading

import pytest

import anyaccel
from anyaccel import accelerator

NUMPY = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 complex64 complex128".split()
NARROW = "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu".split()


def imported(name):
    try:
        return __import__(name)
    except ImportError:
        pytest.skip(f"SKIPPED ALOUD: {name} is not installed; its tensors were not tried")


@pytest.fixture(scope="module")
def torch():
    return imported("torch")


@pytest.fixture(scope="module")
def jax():
    jax = imported("jax")
    jax.config.update("jax_enable_x64", True)
    return jax


def bits(tensor):
    return tensor.view(anyaccel.uint8).tolist()


def of_bytes(name, *shape):
    """A tensor of that type whose bytes are small numbers."""
    tensor = anyaccel.zeros(*shape, dtype=getattr(anyaccel, name))
    flat = tensor.view(-1).view(anyaccel.uint8)
    flat.copy_(anyaccel.tensor([at % 2 for at in range(flat.numel())], dtype=anyaccel.uint8))
    return tensor


# PyTorch


@pytest.mark.parametrize("name", [*NUMPY, "bfloat16", "complex32", *NARROW])
def test_every_type_to_torch_and_back(torch, name):
    x = of_bytes(name, 2, 3)
    theirs = torch.from_dlpack(x)
    assert theirs.dtype is getattr(torch, name) and tuple(theirs.shape) == (2, 3) and theirs.data_ptr() == x.data_ptr()
    assert theirs.view(torch.uint8).flatten().tolist() == x.view(-1).view(anyaccel.uint8).tolist()
    theirs.view(torch.uint8)[1, 1] = 9
    assert x.view(anyaccel.uint8).tolist()[1][1] == 9
    back = anyaccel.from_dlpack(theirs)
    assert back.dtype is x.dtype and back.shape == x.shape and back.data_ptr() == x.data_ptr()
    back.zero_()
    assert not any(x.view(-1).view(anyaccel.uint8).tolist())
    ours = anyaccel.from_dlpack(torch.zeros(4, 2, dtype=getattr(torch, name)))
    assert ours.dtype is x.dtype and ours.shape == (4, 2)


def test_torch_offsets_strides_and_empty(torch):
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    part = anyaccel.from_dlpack(base[2:])
    assert part.shape == (2, 6) and part.tolist() == base[2:].tolist() and part.data_ptr() == base[2:].data_ptr()
    part.fill_(0.0)
    assert base[2:].sum() == 0 and base[1].sum() > 0
    for wrong in (base.t(), base[:, ::2], base.expand(3, 4, 6)):
        with pytest.raises(BufferError, match="contiguous"):
            anyaccel.from_dlpack(wrong)
    assert anyaccel.from_dlpack(base[:1].t()[:1]).shape == (1, 1)
    for shape in ((0,), (0, 3), (2, 0, 4), ()):
        assert anyaccel.from_dlpack(torch.zeros(shape)).shape == shape
        for device in ("cpu", 0):
            theirs = torch.from_dlpack(anyaccel.zeros(shape, device=device))
            assert tuple(theirs.shape) == shape
    assert torch.from_dlpack(anyaccel.zeros(2, 3, 4)).stride() == (12, 4, 1)


def test_torch_pinned_device_and_other_views(torch):
    pinned = anyaccel.ones(5, pin_memory=True)
    torch.from_dlpack(pinned)[2] = 7.0
    assert pinned.tolist() == [1.0, 1.0, 7.0, 1.0, 1.0]
    device = anyaccel.ones(5, device=0)
    torch.from_dlpack(device).mul_(3)
    assert device.tolist() == [3.0] * 5
    assert torch.from_numpy(device.cpu().numpy()).sum() == 15
    assert torch.frombuffer(anyaccel.ones(3), dtype=torch.float32).tolist() == [1.0] * 3
    assert anyaccel.from_numpy(torch.ones(3).numpy()).tolist() == [1.0] * 3
    assert torch.as_tensor(anyaccel.ones(2, 2)).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    with pytest.raises((BufferError, RuntimeError, TypeError)):
        anyaccel.from_dlpack(torch.ones(3, requires_grad=True))


def test_torch_read_only(torch):
    frozen = anyaccel.from_numpy(b"abcd")
    with pytest.raises(BufferError, match="read-only"):
        frozen.__dlpack__()
    assert torch.utils.dlpack.to_dlpack(torch.zeros(3)) is not None
    capsule = frozen.__dlpack__(max_version=(1, 0))
    assert "dltensor_versioned" in repr(capsule)


def test_torch_arguments(torch):
    accelerator.random.set_rng_state(torch.full((16,), 4, dtype=torch.uint8))
    assert accelerator.random.get_rng_state().tolist() == [4] * 16
    accelerator.random.set_rng_state_all([torch.zeros(16, dtype=torch.uint8)] * 2)
    for wrong in (torch.zeros(16), torch.zeros(7, dtype=torch.uint8)):
        with pytest.raises((TypeError, RuntimeError)):
            accelerator.random.set_rng_state(wrong)
    dtypes = accelerator.get_device_capability()["supported_dtypes"]
    assert torch.float32 in dtypes and torch.bfloat16 in dtypes and torch.float8_e5m2 in dtypes
    assert torch.quint8 not in dtypes
    assert anyaccel.empty(1, device=torch.device("cpu")).device.type == "cpu"
    assert anyaccel.empty(1, device=torch.device("meta")).device.type == "meta"
    with pytest.raises(ValueError, match="cuda:0 doesn't match the current accelerator host."):
        accelerator.current_stream(torch.device("cuda:0"))


@pytest.mark.parametrize("order", ["ours first", "theirs first"])
def test_torch_lifetimes(torch, order):
    for make in (lambda: anyaccel.full((1000,), 7.0), lambda: anyaccel.full((1000,), 7.0, device=0), lambda: anyaccel.full((1000,), 7.0).pin_memory()):
        x = make()
        y = torch.from_dlpack(x)
        z = anyaccel.from_dlpack(y)
        w = torch.from_dlpack(z)
        if order == "ours first":
            del x, z
            gc.collect()
            junk = [make().zero_() for _ in range(20)]
            assert y.eq(7).all() and w.eq(7).all() and junk
        else:
            del y, w
            gc.collect()
            junk = [make().zero_() for _ in range(20)]
            assert set(x.tolist()) == {7.0} and set(z.tolist()) == {7.0} and junk
    capsules = [anyaccel.ones(10).__dlpack__(max_version=version) for version in (None, (1, 0)) for _ in range(100)]
    del capsules


def test_torch_threads(torch):
    failed = []

    def work(seed):
        try:
            for at in range(100):
                x = anyaccel.full((64,), float(seed), device=at % 2)
                y = torch.from_dlpack(x)
                del x
                z = anyaccel.from_dlpack(y.clone())
                del y
                assert set(z.tolist()) == {float(seed)}
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_torch_keeps_what_it_got_in_another_thread(torch):
    kept = []
    thread = threading.Thread(target=lambda: kept.append(torch.from_dlpack(anyaccel.full((100,), 4.0, device=0))))
    thread.start()
    thread.join()
    gc.collect()
    assert kept.pop().eq(4).all()


def test_names_and_signatures_are_those_of_torch_accelerator(torch):
    """Of the installed release, which may know more names."""
    import inspect

    def plain(function):
        signature = inspect.signature(function)
        parameters = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
        return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))

    theirs = torch.accelerator
    if not hasattr(theirs, "Graph"):
        pytest.skip(f"SKIPPED ALOUD: PyTorch {torch.__version__} is older than 2.14")
    assert set(accelerator.__all__) <= set(theirs.__all__)
    for name in accelerator.__all__:
        assert plain(getattr(accelerator, name)) == plain(getattr(theirs, name)), name
    for name in ("initial_seed", "get_rng_state", "get_rng_state_all"):
        assert plain(getattr(accelerator.random, name)) == plain(getattr(theirs.random, name)), name
    for owner, here in ((torch.Stream, anyaccel.Stream), (torch.Event, anyaccel.Event), (theirs.Graph, accelerator.Graph), (torch.device, anyaccel.device)):
        missing = [name for name in dir(owner) if not name.startswith("_") and not hasattr(here, name)]
        assert not missing, (owner, missing)


# JAX


@pytest.mark.parametrize("name", [*NUMPY, "bfloat16", *NARROW])
def test_every_type_to_jax_and_back(jax, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    numpy = pytest.importorskip("numpy")
    x = of_bytes(name, 2, 3)
    dtype = numpy.dtype(name) if name in NUMPY else numpy.dtype(getattr(ml_dtypes, name))
    assert dtype in accelerator.get_device_capability()["supported_dtypes"]
    try:
        theirs = jax.dlpack.from_dlpack(x)
    except Exception as error:
        # JAX reads no 8-bit floats from DLPack yet.
        assert name in NARROW, error
    else:
        assert theirs.dtype == dtype and theirs.shape == (2, 3)
        assert numpy.asarray(theirs).view("u1").ravel().tolist() == x.view(-1).view(anyaccel.uint8).tolist()
    array = jax.numpy.ones((4, 2), dtype=dtype)
    try:
        back = anyaccel.from_dlpack(array)
    except Exception as error:
        assert name in NARROW, error
    else:
        assert back.dtype is x.dtype and back.shape == (4, 2)
        assert bits(back) == numpy.asarray(array).view("u1").tolist()


def test_jax_arrays_do_not_change(jax):
    array = jax.numpy.arange(6.0).reshape(2, 3)
    x = anyaccel.from_dlpack(array)
    assert x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    copied = anyaccel.from_dlpack(array, copy=True)
    copied.fill_(0.0)
    assert array.sum() == 15
    del array
    gc.collect()
    assert x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert anyaccel.from_dlpack(jax.numpy.zeros((0, 2))).shape == (0, 2)
    assert anyaccel.from_dlpack(jax.numpy.ones(3), device=0).device == anyaccel.device("host:0")


def test_jax_keeps_ours(jax):
    for device in ("cpu", 0):
        x = anyaccel.full((1000,), 5.0, device=device)
        theirs = jax.dlpack.from_dlpack(x)
        del x
        gc.collect()
        junk = [anyaccel.zeros(1000, device=device) for _ in range(20)]
        assert (theirs == 5).all() and junk
    assert jax.numpy.asarray(anyaccel.ones(2, 2)).sum() == 4
