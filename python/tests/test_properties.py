"""Copies, conversions, fills and views do what NumPy does, for whatever shapes, types and places."""

import copy
import os
import pickle

import pytest

import anyaccel

numpy = pytest.importorskip("numpy")
hypothesis = pytest.importorskip("hypothesis", reason="SKIPPED ALOUD: hypothesis is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st

settings.register_profile("here", deadline=None, max_examples=int(os.environ.get("PROPERTY_CASES", 120)))
settings.load_profile("here")

INTEGERS = "uint8 uint16 uint32 uint64 int8 int16 int32 int64".split()
FLOATS = "float16 float32 float64".split()
NAMES = ["bool", *INTEGERS, *FLOATS, "complex64", "complex128"]
PLACES = ["cpu", "pinned", "host:0", "host:1"]

names = st.sampled_from(NAMES)
places = st.sampled_from(PLACES)
shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@st.composite
def arrays(draw, names=names):
    """An array of small numbers, which every type holds."""
    shape = draw(shapes)
    count = int(numpy.prod(shape, dtype=int))
    values = draw(st.lists(st.integers(0, 100), min_size=count, max_size=count))
    return numpy.array(values, dtype="int64").reshape(shape).astype(draw(names))


def at(place, array):
    """A tensor there with these elements."""
    host = anyaccel.from_numpy(numpy.array(array, order="C"))
    if place == "pinned":
        return host.pin_memory()
    return host.to(place)


def same(tensor, array):
    found = tensor.cpu().numpy()
    assert found.dtype == array.dtype and found.shape == array.shape
    assert found.tobytes() == numpy.ascontiguousarray(array).tobytes()
    assert tensor.tolist() == array.tolist()


@given(arrays(), places, places, names)
def test_copies_convert_as_numpy_does(array, to, source, name):
    expected = array.astype(name)
    target = at(to, numpy.zeros(array.shape, name))
    assert target.copy_(at(source, array), non_blocking=True) is target
    anyaccel.accelerator.synchronize(0), anyaccel.accelerator.synchronize(1)
    same(target, expected)
    same(at(source, array).to(getattr(anyaccel, name)), expected)


@given(arrays(), places, places)
def test_to_shares_only_where_it_already_lies(array, source, to):
    x = at(source, array)
    device = "cpu" if to == "pinned" else to
    moved = x.to(device)
    assert (moved is x) == (str(x.device) == device)
    same(moved, array)
    same(x.to(device, copy=True), array)
    assert x.to(device, copy=True).data_ptr() != x.data_ptr() or x.nbytes == 0


@given(shapes, names, places, st.integers(0, 120), st.booleans())
def test_fill(shape, name, place, value, again):
    x = at(place, numpy.ones(shape, name))
    assert x.fill_(value) is x
    same(x, numpy.full(shape, value, name))
    if again:
        same(x.zero_(), numpy.zeros(shape, name))


@given(st.sampled_from(INTEGERS), st.integers(-(2**70), 2**70))
def test_integers_that_fit_and_those_that_dont(name, value):
    limits = numpy.iinfo(name)
    x = anyaccel.zeros(1, dtype=getattr(anyaccel, name))
    if limits.min <= value <= limits.max:
        assert x.fill_(value).item() == value
    else:
        with pytest.raises(RuntimeError):
            x.fill_(value)
        assert x.item() == 0


@given(arrays(), places, st.data())
def test_views_are_of_one_memory(array, place, data):
    x = at(place, array)
    factors = [array.size, *([1] * data.draw(st.integers(0, 2)))]
    shape = tuple(data.draw(st.permutations(factors)))
    open = tuple(-1 if extent == array.size and array.size > 1 else extent for extent in shape)
    view = x.view(open) if open.count(-1) < 2 else x.view(shape)
    same(view, array.reshape(shape))
    view.fill_(1)
    same(x, numpy.ones_like(array))
    flat = x.reshape(x.numel())
    same(flat.view(anyaccel.uint8), numpy.ones(array.size, array.dtype).view("uint8"))


@given(arrays(), places)
def test_values_survive_all_ways_out_and_in(array, place):
    x = at(place, array)
    for copied in (x.clone(), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        same(copied, array)
        assert copied.device == x.device and copied.equal(x)
    assert copy.copy(x).data_ptr() == x.data_ptr()
    same(anyaccel.from_dlpack(x.cpu()), array)
    same(anyaccel.tensor(array.tolist(), dtype=x.dtype).view(array.shape), array)
    assert numpy.array_equal(numpy.from_dlpack(x), array)


@given(arrays(names=st.sampled_from(["uint8", "float32"])), st.data())
def test_strided_arrays_are_refused_or_exact(array, data):
    axes = data.draw(st.permutations(range(array.ndim)))
    view = array.transpose(axes)
    steps = tuple(slice(None, None, data.draw(st.integers(1, 2))) for _ in range(array.ndim))
    view = numpy.asarray(view[steps])
    for take in (anyaccel.from_numpy, anyaccel.from_dlpack):
        try:
            shared = take(view)
        except BufferError:
            assert not view.flags.c_contiguous
        else:
            same(shared, view)


@given(arrays(), arrays())
def test_shapes_that_differ_are_refused_and_nothing_is_copied(a, b):
    x, y = at("host:0", a), at("cpu", b)
    if a.shape != b.shape:
        with pytest.raises(RuntimeError, match="shapes differ"):
            x.copy_(y)
        same(x, a)
