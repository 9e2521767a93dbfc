"""Memory: statistics, caches, budgets, pools."""

from collections import OrderedDict

import pytest

import anyaccel
from anyaccel import accelerator

GROUPS = """allocation segment active inactive_split allocated_bytes reserved_bytes active_bytes inactive_split_bytes
requested_bytes allocated""".split()
SINGLE = "num_alloc_retries num_ooms num_sync_all_streams num_device_alloc num_device_free max_split_size".split()


def test_keys():
    anyaccel.empty(1, device=0)
    stats = accelerator.memory_stats()
    assert type(stats) is OrderedDict and list(stats) == sorted(stats)
    expected = {f"{g}.{p}.{m}" for g in GROUPS for p in ("all", "small_pool", "large_pool") for m in METRICS}
    expected |= {f"{g}.{m}" for g in ("oversize_allocations", "oversize_segments") for m in METRICS} | set(SINGLE)
    assert set(stats) == expected and stats["max_split_size"] == -1
    assert all(type(value) is int for value in stats.values())


METRICS = ("current", "peak", "allocated", "freed")


def test_a_kib_is_1024_active_bytes():
    accelerator.empty_cache()
    before = accelerator.memory_stats()
    x = anyaccel.empty(256, device=0)
    after = accelerator.memory_stats()
    assert after["active_bytes.all.current"] - before["active_bytes.all.current"] == 1024
    assert after["allocation.all.current"] - before["allocation.all.current"] == 1
    assert accelerator.memory_allocated() == after["allocated_bytes.all.current"]
    assert accelerator.memory_reserved() == after["reserved_bytes.all.current"] >= 1024
    peak = accelerator.max_memory_allocated()
    del x
    assert accelerator.memory_allocated() == before["allocated_bytes.all.current"]
    assert accelerator.max_memory_allocated() == peak
    accelerator.reset_peak_memory_stats()
    accelerator.reset_accumulated_memory_stats()
    stats = accelerator.memory_stats(0)
    assert stats["allocated_bytes.all.peak"] == stats["allocated_bytes.all.current"] == accelerator.max_memory_allocated(0)
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 0
    assert accelerator.max_memory_reserved() == accelerator.memory_reserved()
    accelerator.empty_cache()
    assert accelerator.memory_reserved() <= stats["reserved_bytes.all.current"]


def test_per_device():
    x = anyaccel.empty(1 << 10, device=1)
    before = accelerator.memory_allocated(0)
    assert accelerator.memory_allocated("host:1") >= x.nbytes
    with accelerator.device_index(1):
        assert accelerator.memory_allocated() >= x.nbytes
    assert accelerator.memory_allocated() == before


def test_info():
    free, total = accelerator.get_memory_info()
    assert 0 < free <= total and accelerator.mem_get_info(0)[1] == accelerator.get_memory_info("host")[1] == total


def test_summary_and_host_statistics():
    pinned = anyaccel.empty(1000, pin_memory=True)
    assert pinned.is_pinned()
    stats = accelerator.host_memory_stats()
    assert stats["active_bytes.current"] >= 4000
    accelerator.memory.reset_peak_host_memory_stats()
    accelerator.memory.reset_accumulated_host_memory_stats()
    assert "allocated" in accelerator.memory_summary().lower()
    assert len(accelerator.memory_summary(abbreviated=True)) <= len(accelerator.memory_summary())
    del pinned
    accelerator.empty_host_cache()
    assert set(accelerator.memory._snapshot()) >= {"segments", "device_traces"}


def test_out_of_memory(script):
    script(
        """
        import anyaccel, pytest
        from anyaccel import accelerator as a
        seen = []
        a.attach_out_of_memory_observer(lambda *told: seen.append(told))
        a.attach_out_of_memory_observer(lambda *told: 1 / 0)
        a.set_memory_budget(8 << 20)
        kept = anyaccel.empty(1 << 20, dtype=anyaccel.uint8, device=0)
        with pytest.raises(anyaccel.OutOfMemoryError, match="^host:0 is out of memory: 64.00 MiB .* on stream 0, ") as failed:
            anyaccel.empty(64 << 20, dtype=anyaccel.uint8, device=0)
        assert not isinstance(failed.value, anyaccel.AcceleratorError)
        assert len(seen) == 1 and seen[0][:2] == (0, 64 << 20) and a.memory_stats()["num_ooms"] == 1
        a.set_memory_budget(None)
        anyaccel.empty(64 << 20, dtype=anyaccel.uint8, device=0)
        a.set_per_process_memory_fraction(0.5)
        a.set_per_process_memory_fraction(1)
        for wrong in (1.5, -0.1, float("nan")):
            with pytest.raises(ValueError): a.set_per_process_memory_fraction(wrong)
        with pytest.raises(TypeError): a.set_memory_budget(1.5)
        with pytest.raises(ValueError): a.set_memory_budget(-1)
        """
    )


def test_settings():
    with pytest.raises(ValueError, match="foo"):
        accelerator.memory.set_allocator_settings("foo:1")
    accelerator.memory.set_allocator_settings("")


def test_pool():
    pool = anyaccel.MemPool()
    reserved = accelerator.memory_reserved()
    with pool as entered:
        assert entered is pool
        x = anyaccel.empty(1 << 10, device=0)
        with pytest.raises(RuntimeError), pool:
            pass
    with accelerator.memory.use_mem_pool(pool):
        y = anyaccel.empty(1 << 10, device=0)
    assert accelerator.memory_reserved() > reserved and pool.device.index == 0 and len(pool.id) == 2
    assert "MemPool" in repr(pool)
    del x, y, pool
    with pytest.raises(TypeError):
        accelerator.memory.use_mem_pool(None)
