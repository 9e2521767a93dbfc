"""Random numbers: seeds, states, deferral."""

import copy
import pickle
import struct

import pytest

import anyaccel
from anyaccel import accelerator

random = accelerator.random
DEFAULT_SEED = 67280421310721


def test_state_is_16_bytes():
    random.manual_seed(7)
    state = random.get_rng_state()
    assert state.dtype is anyaccel.uint8 and state.device.type == "cpu" and state.shape == (16,)
    assert bytes(state) == struct.pack("<Qq", 7, 0) and state.tolist() == list(struct.pack("<Qq", 7, 0))
    assert state.clone().equal(state) and random.initial_seed() == 7
    anyaccel.empty(10, device=0).normal_()
    assert random.get_rng_state_offset() > 0 and random.initial_seed("host") == 7
    assert not random.get_rng_state().equal(state)


def test_setting_states():
    numpy = pytest.importorskip("numpy")
    state = struct.pack("<Qq", 5, 8)
    for given in (state, bytearray(state), memoryview(state), numpy.frombuffer(state, numpy.uint8), anyaccel.frombuffer(state, dtype=anyaccel.uint8)):
        random.manual_seed(1)
        random.set_rng_state(given)
        assert bytes(random.get_rng_state()) == state
        random.manual_seed(1)
        random.set_rng_state(given, device="host:0")
        assert (random.initial_seed(), random.get_rng_state_offset(0)) == (5, 8)
    random.set_rng_state(struct.pack("<Q", 9))
    assert (random.initial_seed(), random.get_rng_state_offset()) == (9, 0)
    for wrong in ("text", 3, None, [1, 2], numpy.zeros(16), anyaccel.zeros(16), anyaccel.zeros(16, dtype=anyaccel.uint8, device=0)):
        with pytest.raises(TypeError, match="RNG state must be"):
            random.set_rng_state(wrong)
    for length in (0, 7, 15, 17, 5056):
        with pytest.raises(RuntimeError, match=rf"16 .* 8 .* not {length}"):
            random.set_rng_state(bytes(length))
    assert (random.initial_seed(), random.get_rng_state_offset()) == (9, 0)
    states = random.get_rng_state_all()
    assert len(states) == 2
    random.manual_seed_all(3)
    random.set_rng_state_all(states)
    assert all(a.equal(b) for a, b in zip(states, random.get_rng_state_all()))
    with pytest.raises(ValueError, match="1 states for 2 generators"):
        random.set_rng_state_all(states[:1])
    with pytest.raises(TypeError):
        random.set_rng_state_all(None)


def test_seeds():
    for given, seed in ((0, 0), (-1, 2**64 - 1), (2**64 - 1, 2**64 - 1), (-(2**63), 2**63)):
        random.manual_seed(given)
        assert random.initial_seed() == seed
    for wrong in (2**64, -(2**63) - 1, 10**60, -(10**60)):
        for call in (random.manual_seed, random.manual_seed_all, anyaccel.manual_seed, anyaccel.Generator().manual_seed):
            with pytest.raises(ValueError):
                call(wrong)
    assert random.initial_seed() == 2**63
    for wrong in (None, 1.5, "1", [], True):
        for call in (random.manual_seed, random.manual_seed_all, anyaccel.manual_seed):
            with pytest.raises(TypeError):
                call(wrong)
    drawn = random.seed_all()
    assert [random.initial_seed(i) for i in range(2)] == [drawn, drawn] and drawn < 2**53
    assert random.seed() == random.initial_seed()
    random.set_rng_state_offset(12)
    assert random.get_rng_state_offset() == 12
    with pytest.raises(RuntimeError):
        random.set_rng_state_offset(3)


def test_package_seed():
    generator = anyaccel.manual_seed(11)
    assert generator is anyaccel.random.default_generator and anyaccel.initial_seed() == 11
    assert [random.initial_seed(i) for i in range(2)] == [11, 11]
    state = anyaccel.random.get_rng_state()
    a = anyaccel.empty(5).uniform_()
    anyaccel.random.set_rng_state(state)
    assert a.equal(anyaccel.empty(5).uniform_())
    assert anyaccel.random.seed() == anyaccel.initial_seed()


def test_fork_rng():
    anyaccel.manual_seed(1)
    with anyaccel.random.fork_rng() as entered:
        assert entered is None
        anyaccel.manual_seed(2)
        with random.fork_rng(devices=[1]):
            random.manual_seed_all(3)
        assert [random.initial_seed(i) for i in range(2)] == [3, 2]
    assert anyaccel.initial_seed() == 1 and [random.initial_seed(i) for i in range(2)] == [1, 1]
    with anyaccel.random.fork_rng(enabled=False):
        random.manual_seed(4)
    assert random.initial_seed() == 4
    with pytest.raises(anyaccel.AcceleratorError), anyaccel.random.fork_rng(devices=[9]):
        pass
    with pytest.raises(ValueError):
        anyaccel.random.fork_rng(device_type="cuda")


def test_generator():
    generator = anyaccel.Generator()
    assert generator.initial_seed() == DEFAULT_SEED and generator.device.type == "cpu"
    assert generator.manual_seed(3) is generator and "seed=3" in repr(generator)
    a = anyaccel.empty(100, device=0).normal_(generator=generator)
    assert generator.get_offset() > 0
    generator.set_state(struct.pack("<Q", 3))
    assert a.equal(anyaccel.empty(100, device=1).normal_(generator=generator).to("host:0"))
    generator.set_offset(0)
    assert a.cpu().equal(anyaccel.empty(100).normal_(generator=generator)), "the host draws the same numbers"
    assert generator.seed() == generator.initial_seed()
    with pytest.raises(TypeError):
        anyaccel.empty(3, device=0).normal_(generator=3)


def test_distributions():
    anyaccel.manual_seed(5)
    for device in ("cpu", "host:0"):
        x = anyaccel.empty(1000, device=device)
        assert all(2.0 <= v < 3.0 for v in x.uniform_(2.0, 3.0).tolist())
        assert 9.5 < sum(x.normal_(10.0, 2.0).tolist()) / 1000 < 10.5
        assert all(v > 0 for v in x.log_normal_().tolist() + x.exponential_(2.0).tolist())
        assert set(x.bernoulli_(0.25).tolist()) == {0.0, 1.0}
        assert min(x.geometric_(0.5).tolist()) == 1.0
        i = anyaccel.empty(1000, dtype=anyaccel.int64, device=device)
        assert set(i.random_(3, 6).tolist()) == {3, 4, 5} and set(i.random_(2).tolist()) == {0, 1}
        assert min(i.random_().tolist()) >= 0
        with pytest.raises(ValueError):
            x.uniform_(3.0, 2.0)
        with pytest.raises(ValueError):
            x.normal_(0.0, -1.0)
        with pytest.raises(NotImplementedError):
            i.normal_()
        with pytest.raises(TypeError):
            x.uniform_("a")


def test_deferral_in_program_order(script):
    script(
        """
        import anyaccel, struct
        from anyaccel import accelerator as a
        r = a.random
        order = []
        r.manual_seed_all(1)
        r._lazy_call(lambda: order.append(r.initial_seed()), seed=True)
        r.set_rng_state(struct.pack("<Qq", 2, 4))
        r._lazy_call(lambda: order.append((r.initial_seed(), r.get_rng_state_offset())), seed_all=True)
        a.set_device_index(-1)
        drawn = r.seed_all()
        r.manual_seed(3)
        assert order == [] and not a.is_initialized()
        a.current_stream()
        assert order == [1, (2, 4)]
        assert r.initial_seed(0) == 3 and r.initial_seed(1) == drawn
        r._lazy_call(lambda: order.append("now"))
        assert order[-1] == "now"
        """
    )


def test_deferral_is_bounded_and_errors_tell_where(script):
    script(
        """
        import anyaccel, pytest
        from anyaccel import accelerator as a
        for seed in range(200_000): a.random.manual_seed(seed)
        with pytest.raises(TypeError): a.random._lazy_call(3)
        with pytest.raises(TypeError): a.random._lazy_call(print, other=1)
        def fails(): raise KeyError("inner")
        a.random._lazy_call(fails)
        with pytest.raises(RuntimeError, match=r"deferred at <string>:\\d+ failed.*inner") as failed:
            a.current_stream()
        assert isinstance(failed.value.__cause__, KeyError)
        a.current_stream()
        assert a.random.initial_seed() == 199_999
        """
    )
    out = script(
        """
        from anyaccel import accelerator as a
        try:
            for _ in range(70_000): a.random._lazy_call(int)
        except RuntimeError as error:
            print(error)
        """
    )
    assert "65536" in out


def test_other_threads_wait_for_the_start(script):
    script(
        """
        import anyaccel, threading, time
        from anyaccel import accelerator as a
        seen = []
        def slow():
            time.sleep(0.2)
            a.current_stream()  # the starting thread itself goes on
            seen.append("started")
        a.random._lazy_call(slow)
        def other():
            a.current_stream()
            seen.append("other")
        threads = [threading.Thread(target=other) for _ in range(4)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert seen == ["started"] + ["other"] * 4
        """
    )


def test_generators_are_pickled_with_their_state():
    g = anyaccel.Generator("host:1").manual_seed(9)
    g.set_offset(8)
    for other in (pickle.loads(pickle.dumps(g)), copy.copy(g), copy.deepcopy(g)):
        assert other.initial_seed() == 9 and other.get_offset() == 8 and other.device == g.device
        other.manual_seed(1)
    assert g.initial_seed() == 9


def test_what_names_a_driver_s_objects_is_not_pickled():
    for thing in (anyaccel.Stream(), anyaccel.Event(), accelerator.Graph(), anyaccel.MemPool(), accelerator.device_index(0)):
        for refused in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot pickle"):
                refused(thing)
