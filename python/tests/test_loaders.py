"""Loops as torch.utils.data.DataLoader runs them: workers prepare batches, the parent pins them and copies them over."""

import os
import subprocess
import sys

import pytest

import anyaccel

PROGRAM = """
import multiprocessing as mp
import os
import queue
import sys
import anyaccel
from anyaccel import accelerator

BATCHES, SIZE = 12, 1000

def setup(kind):
    if kind != "host":
        anyaccel._anyaccel._simulate(kind, devices=2)

def batch(at):
    return anyaccel.full((SIZE,), float(at)).to(anyaccel.float64)

def worker(kind, method, wanted, made):
    if method != "fork":
        setup(kind)
    # What a device-agnostic worker asks: none of it may start anything.
    accelerator.is_available(), accelerator.device_count(), accelerator.current_accelerator()
    anyaccel.manual_seed(7), accelerator.synchronize(), accelerator.empty_cache()
    for at in iter(wanted.get, None):
        made.put((at, batch(at), accelerator.is_initialized()))

def epoch(kind, method):
    context = mp.get_context(method)
    wanted, made = context.Queue(), context.Queue()
    workers = [context.Process(target=worker, args=(kind, method, wanted, made)) for _ in range(2)]
    for process in workers: process.start()
    for at in range(BATCHES): wanted.put(at)
    for _ in workers: wanted.put(None)
    stream = anyaccel.Stream()
    sums = {}
    held = []
    for _ in range(BATCHES):
        at, host, started = made.get(timeout=50)
        assert not started, "a worker started the accelerator"
        with stream:
            pinned = host.pin_memory()
            device = anyaccel.empty(SIZE, dtype=anyaccel.float64, device=stream.device)
            device.copy_(pinned, non_blocking=True)
        held.append((at, pinned, device))
    stream.synchronize()
    for at, _, device in held:
        assert device.tolist() == [float(at)] * SIZE
    for process in workers:
        process.join(50)
        assert process.exitcode == 0, process.exitcode
    assert sorted(at for at, *_ in held) == list(range(BATCHES))

if __name__ == "__main__":
    kind, method, state = sys.argv[1:]
    setup(kind)
    if state == "started":
        anyaccel.ones(3, device=0).tolist()
    epoch(kind, method)
    epoch(kind, method)
"""


@pytest.mark.parametrize("state", ["fresh", "started"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("kind", ["host", "npu"])
def test_an_epoch(tmp_path, kind, method, state):
    (tmp_path / "loader.py").write_text(PROGRAM)
    environment = {**os.environ, "ANYACCEL_BACKEND": kind}
    done = subprocess.run(
        [sys.executable, "loader.py", kind, method, state], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


TORCH = """
import anyaccel, sys, torch
from anyaccel import accelerator
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, at):
        return torch.from_dlpack(anyaccel.full((8,), float(at)))

if __name__ == "__main__":
    anyaccel.ones(3, device=0).tolist()
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1])
    for _ in range(2):
        seen = []
        for batch in loader:
            ours = anyaccel.from_dlpack(batch.contiguous()).to(accelerator.current_accelerator())
            seen += [row[0] for row in ours.tolist()]
        assert seen == [float(at) for at in range(32)]
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_loader_of_torch(tmp_path, method):
    pytest.importorskip("torch", reason="SKIPPED ALOUD: torch is not installed; its DataLoader was not tried")
    (tmp_path / "loader.py").write_text(TORCH)
    done = subprocess.run([sys.executable, "loader.py", method], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def test_pickled_tensors_of_workers_are_values():
    assert anyaccel.ones(3).__reduce__()[1][0] == anyaccel.ones(3).numpy().tobytes()
