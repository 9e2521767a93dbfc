"""The programs of examples/torch, run as a user runs them, on two devices of the host, beside the CPU."""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "torch"


def run(name, *arguments, **settings):
    environment = {**os.environ, "ANYACCEL_BACKEND": "host", "ANYACCEL_HOST_DEVICES": "2", **settings}
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], env=environment, text=True, capture_output=True, timeout=600
    )
    assert done.returncode == 0, f"{name}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def columns(out):
    """The columns of the table a program printed."""
    rows = re.findall(r"^ *\d+ ((?: +\d+\.\d+)+)$", out, re.MULTILINE)
    assert rows, out
    return list(zip(*[[float(value) for value in row.split()] for row in rows]))


def assert_same(out, count, steps):
    found = columns(out)
    assert len(found) == count and len(found[0]) == steps, out
    for other in found[1:]:
        assert other == pytest.approx(found[0], abs=2e-4), out
    return found


@pytest.mark.parametrize("name", ["train_gpt.py", "train_cnn.py"])
def test_training_over_two_devices_has_the_losses_of_the_cpu(name):
    out = run(name)
    assert "anyaccel:0, anyaccel:1" in out
    here, _ = assert_same(out, 2, 10)
    assert min(here[-3:]) < here[0]


def test_a_data_loader_with_workers_and_pinned_memory():
    out = run("data_loader.py")
    assert "6 of 6 batches pinned" in out
    assert_same(out, 2, 6)


def test_saved_on_one_device_loaded_on_another():
    assert_same(run("save_load.py"), 4, 8)


def test_a_training_step_as_a_graph():
    assert_same(run("graph.py"), 2, 8)


def test_out_of_memory_is_caught_and_survived():
    out = run("out_of_memory.py", ANYACCEL_HOST_MEMORY="64MiB")
    batch, peak = re.search(r"batch that fits: (\d+), which takes ([\d.]+) MiB", out).groups()
    assert 64 <= int(batch) < 1 << 16
    # Twice the batch takes about twice the memory, so the largest power of two fills at least a good quarter.
    assert 64 / 4 < float(peak) <= 64
    assert "out of memory" in out.splitlines()[1]


def anyaccel(*arguments):
    command = os.environ.get("ANYACCEL") or Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"), "release", "anyaccel")
    assert Path(command).exists(), f"{command} is missing: cargo build --release -p anyaccel-cli, or set ANYACCEL"
    done = subprocess.run([command, *map(str, arguments)], text=True, capture_output=True, timeout=600)
    assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_memory_history_is_recorded_replayed_and_viewed(tmp_path):
    file, page = tmp_path / "memory.pickle", tmp_path / "memory.html"
    out = run("memory_history.py", "--out", str(file), ANYACCEL_HOST_MEMORY="64MiB")
    assert "ran out of memory" in out
    assert re.search(r"MiB  _conv_forward for small.py:\d+: return self.head\(", out), out
    (device, *_) = json.loads(anyaccel("memory", "--json", file))["devices"]
    assert device["peak_reserved"] <= 64 << 20 and device["holders"]
    in_words = anyaccel("memory", file)
    assert re.search(r"forward \(\S*small.py:\d+\) < step", in_words) and "out_of_memory.py:" in in_words, in_words
    # The allocator that recorded it replays it to the byte; with more memory the request that failed is granted.
    recorded = json.loads(anyaccel("replay", "--json", file).splitlines()[0])
    assert recorded["peak_requested"] == device["peak_allocated"]
    assert recorded["num_ooms"] == 1
    roomy = json.loads(anyaccel("replay", "--json", "--memory", "1GiB", file).splitlines()[0])
    assert roomy["num_ooms"] == 0
    anyaccel("view", file, "-o", page)
    assert page.stat().st_size > 10_000 and "out_of_memory.py" in page.read_text()


def test_arguments_that_are_none(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import small

    for name in ("nope", "anyaccel:99", ""):
        with pytest.raises(argparse.ArgumentTypeError, match=f"there is no device '{name}': "):
            small.device_name(name)
    for steps in ("0", "-1", "many"):
        with pytest.raises(argparse.ArgumentTypeError, match="from 1 on"):
            small.at_least_one(steps)
    assert [str(device) for device in small.all_of("cpu")] == ["cpu"]
    assert [str(device) for device in small.all_of("anyaccel:1")] == ["anyaccel:1"]
