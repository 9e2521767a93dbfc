"""Tensors on their way to other processes. Each test is a program with a time limit: one that hangs fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from backends import CUDA, NPU, SIM, Backend

on_the_host = pytest.mark.skipif(os.environ["ANYACCEL_BACKEND"] != "host", reason="of the host device")

START = """
import os, sys, warnings
import torch, torch.multiprocessing as mp
from multiprocessing.reduction import ForkingPickler
from pickle import loads

name = torch._C._get_privateuse1_backend_name()
if name == "privateuseone" and __name__ == "__main__":
    sys.exit("no device")

def fails(call, *parts):
    try:
        call()
    except Exception as error:
        assert all(part in str(error) for part in parts), repr(error)
    else:
        raise AssertionError(parts)
"""


def write(directory: Path, program: str) -> Path:
    path = directory / "program.py"
    path.write_text(START + program)
    return path


def run(directory: Path, program: str, *arguments: str, **environment: str) -> None:
    """Runs a program from a file, which processes that are spawned can import."""
    command = [sys.executable, str(write(directory, program)), *arguments]
    with subprocess.Popen(
        command,
        env=dict(os.environ, **environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=200)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its children too, which hold the pipe
            raise
    assert process.returncode == 0, said


# Sent as arguments, by queues and by a pipe, there and back.
THERE_AND_BACK = """
def make(name):
    last = torch.accelerator.device_count() - 1
    whole = torch.arange(24.0, device=name).view(4, 6)
    waves = torch.tensor([1 + 2j, 3 - 4j], device=name)
    odd = torch.nn.Linear(2, 2, device=name)
    odd.bias.requires_grad_(False)
    noted = torch.zeros(1, device=name)
    torch._utils.set_tensor_metadata(noted, {"noted": True})
    return {
        "whole": whole, "transposed": whole[1:, 2:4].t(), "every": whole[::2, ::3], "expanded": whole[:1].expand(3, 6),
        "conjugated": waves.conj(), "negated": waves.conj().imag, "real": torch.view_as_real(waves),
        "leaf": torch.ones(2, device=name, requires_grad=True),
        "numbers": torch.nn.Parameter(torch.arange(3, device=name), requires_grad=False),
        "half": torch.full((), 0.5, dtype=torch.bfloat16, device=name), "flags": torch.tensor([True, False], device=name),
        "nothing": torch.empty(0, 3, device=name), "scalar": torch.tensor(7, device=name)[None].expand(4)[:0],
        "large": torch.arange(1 << 20, device=name),  # more than a pipe holds
        "there": torch.full((5,), 3.0, device=torch.device(name, last)),
        "module": odd, "storage": whole.untyped_storage(), "typed": whole.view(-1).storage(), "noted": noted,
        "packed": torch.nn.utils.rnn.pack_sequence([whole[0], whole[1, :2]]),
        "jagged": torch.nested.nested_tensor([whole[0], whole[1, :2]], layout=torch.jagged, device=name),
        "shared": torch.zeros(3).share_memory_(), "host": torch.arange(4),
    }

def is_what_was_made(got, name):
    last = torch.accelerator.device_count() - 1
    made = make(name)
    assert got.keys() == made.keys()
    for key, value in made.items():
        if isinstance(value, torch.Tensor) and key not in ("shared", "jagged"):
            here = got[key]
            assert type(here) is type(value) and here.device == value.device and here.dtype == value.dtype, key
            assert here.stride() == value.stride() and here.storage_offset() == value.storage_offset(), key
            assert here.requires_grad == value.requires_grad and here.is_leaf, key
            assert here.is_conj() == value.is_conj() and here.is_neg() == value.is_neg(), key
            assert torch.equal(here, value), (key, here, value)
    assert got["conjugated"].tolist() == [1 - 2j, 3 + 4j] and got["negated"].tolist() == [-2, 4]
    assert got["there"].device.index == last and got["host"].device.type == "cpu"
    assert torch._utils.get_tensor_metadata(got["noted"]) == {"noted": True}
    # Views of one memory are that again, and of none besides.
    for view in ("transposed", "every", "expanded"):
        assert got[view].untyped_storage().data_ptr() == got["whole"].data_ptr(), view
    assert got["storage"].data_ptr() == got["whole"].data_ptr() == got["typed"].data_ptr()
    got["whole"].mul_(2)
    assert got["every"].tolist() == [[0, 6], [24, 30]], got["every"]
    got["whole"].div_(2)
    assert got["real"].tolist() == [[1, 2], [3, -4]]
    assert got["module"].weight.requires_grad and not got["module"].bias.requires_grad
    assert got["module"](torch.ones(1, 2, device=name)).shape == (1, 2)
    assert got["packed"].data.device.type == name and got["packed"].batch_sizes.tolist() == [2, 2, 1, 1, 1, 1]
    assert [part.tolist() for part in got["jagged"].unbind()] == [[0, 1, 2, 3, 4, 5], [6, 7]]

def child(arguments, queue, simple, pipe):
    torch.set_num_threads(1)  # GNU's OpenMP doesn't survive a fork
    name = torch._C._get_privateuse1_backend_name()
    got = queue.get()
    if arguments is not None:
        is_what_was_made(arguments, name)
        assert arguments["whole"].data_ptr() != got["whole"].data_ptr()  # another message
    is_what_was_made(got, name)
    got["whole"].zero_()
    got["shared"].fill_(5)
    simple.put(make(name))
    pipe.send(make(name))
    pipe.send(got["whole"])
    assert pipe.recv() == "got them all"

def main(method, strategy):
    mp.set_sharing_strategy(strategy)
    context = mp.get_context(method)
    queue, simple, (near, far) = context.Queue(), context.SimpleQueue(), context.Pipe()
    made = make(name)
    # In a forked child arguments are the parent's own.
    process = context.Process(target=child, args=(None if method == "fork" else made, queue, simple, far))
    process.start()
    far.close()
    queue.put(made)
    is_what_was_made(simple.get(), name)
    is_what_was_made(near.recv(), name)
    assert near.recv().tolist() == torch.zeros(4, 6).tolist()
    is_what_was_made(made, name)  # copies, so that the child's writes are its own, but for the CPU's
    assert made["shared"].tolist() == [5, 5, 5]
    near.send("got them all")
    process.join()
    assert process.exitcode == 0

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
"""


@on_the_host
@pytest.mark.parametrize(
    ("method", "strategy", "name"),
    [
        ("fork", "file_descriptor", "anyaccel"),
        ("fork", "file_system", "anyaccel"),
        ("spawn", "file_descriptor", "board"),
        ("forkserver", "file_system", "anyaccel"),
    ],
)
def test_all_kinds_arrive(method: str, strategy: str, name: str, tmp_path: Path) -> None:
    run(tmp_path, THERE_AND_BACK, method, strategy, ANYACCEL_TORCH_NAME=name)


@pytest.mark.parametrize("backend", [SIM, NPU, CUDA], ids=lambda backend: backend.kind)
def test_on_other_backends(backend: Backend, tmp_path: Path) -> None:
    done = backend.run(write(tmp_path, THERE_AND_BACK), "spawn", "file_descriptor")
    if done.stderr.endswith("no device\n"):
        backend.is_absent("no device")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_copy_waits_for_all_streams(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
import queue, threading
opened = threading.Event()
x = torch.ones(1 << 16, device=name)
torch.accelerator.synchronize()
side = torch.Stream(name)
with side:
    torch.get_device_module(name).host_function(opened.wait, side)
    x.copy_(torch.full((1 << 16,), 2.0).pin_memory(), non_blocking=True)
between = mp.Queue()
between.put(x)  # pickled on a thread with streams of its own
fails(lambda: between.get(timeout=2))
opened.set()
assert between.get().unique().tolist() == [2]
""",
    )


def test_what_cannot_be_sent_is_an_error_of_who_waits_for_it(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
queue = mp.Queue()
x = torch.ones(3, device=name, requires_grad=True) * 2
for what, why in (
    (x, "Cowardly refusing"),
    ([torch.ones(2), {"deep": x}], "Cowardly refusing"),
    (torch.Stream(name), "belongs to the process that made it"),
    (torch.Event(name), "belongs to the process that made it"),
    (torch.get_device_module(name).Event(), "belongs to the process that made it"),
    (torch.accelerator.Graph(), "belongs to the process that made it"),
):
    queue.put(what)
    fails(lambda: queue.get(timeout=100), f"not sent by process {os.getpid()}", why)
    # Where sending is the caller's own work, so is the error.
    fails(lambda: mp.SimpleQueue().put(what), why)
    fails(lambda: mp.Pipe()[0].send(what), why)
queue.put(x.detach())
assert queue.get(timeout=100).tolist() == [2, 2, 2]
""",
    )


def test_pools_say_what_they_could_not_send(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
from concurrent.futures import ProcessPoolExecutor

def twice(x):
    return x * 2

def graph_of(x):
    return x.clone().requires_grad_() * 2

if __name__ == "__main__":
    x = torch.ones(3, device=name)
    unsent = x.clone().requires_grad_() * 2
    spawn = mp.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        assert pool.submit(twice, x).result(100).tolist() == [2, 2, 2]
        fails(lambda: pool.submit(graph_of, x).result(100), "Cowardly refusing")
        fails(lambda: pool.submit(twice, unsent).result(100), "Cowardly refusing")
        assert pool.submit(twice, x).result(100).tolist() == [2, 2, 2]
    with spawn.Pool(1) as pool:
        assert [y.tolist() for y in pool.map(twice, [x, x + 1])] == [[2, 2, 2], [4, 4, 4]]
        fails(lambda: pool.apply_async(graph_of, (x,)).get(100), "Cowardly refusing")
        fails(lambda: pool.apply_async(twice, (unsent,)).get(100), "Cowardly refusing")
""",
    )


LOADERS = """
class Data(torch.utils.data.Dataset):
    def __init__(self, what, at=None):
        self.what, self.at = what, at
    def __len__(self):
        return 4
    def __getitem__(self, index):
        name = torch._C._get_privateuse1_backend_name()
        if self.what == "values":
            return {"x": torch.full((2,), float(index), device=name), "y": index}
        if self.what == "with a graph":
            return torch.ones(2, device=name, requires_grad=True) * index
        if self.what == "event":
            return torch.Event(name)
        return self.at[index]

def loader(data, num_workers=1, **options):
    return torch.utils.data.DataLoader(data, num_workers=num_workers, timeout=100, **options)

if __name__ == "__main__":
    method = sys.argv[1]
    batches = list(loader(Data("values"), 2, batch_size=2, multiprocessing_context=method))
    assert [batch["x"].tolist() for batch in batches] == [[[0, 0], [1, 1]], [[2, 2], [3, 3]]]
    assert batches[0]["x"].device.type == name and batches[0]["y"].device.type == "cpu"
    pinning = loader(Data("values"), batch_size=2, multiprocessing_context=method, pin_memory=True)
    fails(lambda: list(pinning), "only dense CPU tensors can be pinned")
    bad = loader(Data("with a graph"), batch_size=None, multiprocessing_context=method)
    fails(lambda: list(bad), "not sent by process", "Cowardly refusing")
    fails(lambda: list(loader(Data("event"), batch_size=None, multiprocessing_context=method)), "belongs to the process")
    # Of the parent's: copied into processes that are spawned, and no memory of those that are forked.
    own = loader(Data("own", torch.arange(4.0, device=name).view(4, 1)), batch_size=None, multiprocessing_context=method)
    if method == "spawn":
        assert [x.tolist() for x in own] == [[0], [1], [2], [3]]
    else:
        fails(lambda: list(own), "not sent by process", "lies in no live device memory")
"""


@on_the_host
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader_return_tensors_of_the_device(method: str, tmp_path: Path) -> None:
    run(tmp_path, LOADERS, method)


def test_what_cannot_be_received_is_an_error_there(tmp_path: Path) -> None:
    program = """
def child(pipe, limit):
    if limit:
        torch.get_device_module().set_memory_budget(limit)
    try:
        pipe.recv()
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
    pipe.send("nothing")

if __name__ == "__main__":
    context = mp.get_context("spawn")
    def told_by_a_child(tensor, limit=0, **environment):
        os.environ.update(environment)
        near, far = context.Pipe()
        process = context.Process(target=child, args=(far, limit))
        process.start()
        far.close()
        near.send(tensor)
        told = near.recv()
        process.join()
        return told
    x = torch.ones(1 << 20, device=torch.device(name, torch.accelerator.device_count() - 1))
    told = told_by_a_child(torch.ones(1 << 20, device=torch.device(name, 0)), 1 << 20)
    assert told.startswith("OutOfMemoryError: "), told
    if torch.accelerator.device_count() == 2 and os.environ["ANYACCEL_BACKEND"] == "host":
        told = told_by_a_child(x, ANYACCEL_HOST_DEVICES="1")
        assert told == "RuntimeError: a tensor of device 1 arrived, and this process has 1 of them", told
        told = told_by_a_child(x, ANYACCEL_BACKEND="absent")
        assert told.startswith("RuntimeError: a tensor of device 1 arrived, and this process has no device: "), told
"""
    run(tmp_path, program)


def test_where_a_driver_cannot_start_again_the_error_arrives(tmp_path: Path) -> None:
    program = """
x = torch.ones(3, device=name)
queue, pipe = mp.Queue(), mp.Pipe()
def child():
    queue.put(x)
    try:
        pipe[1].recv()
    except Exception as error:
        pipe[1].send(str(error))
process = mp.get_context("fork").Process(target=child)
process.start()
fails(lambda: queue.get(timeout=100), "not sent by process", "in forked subprocess")
pipe[0].send(x)
told = pipe[0].recv()
assert "in forked subprocess" in told and "'spawn' start method" in told, told
process.join()
"""
    done = CUDA.run(write(tmp_path, program))
    if done.stderr.endswith("no device\n"):
        CUDA.is_absent("no device")
    assert done.returncode == 0, done.stdout + done.stderr


def test_memory_of_the_device_is_not_shared(device: torch.device) -> None:
    x = torch.ones(3, device=device)
    module = torch.nn.Linear(2, 2)
    for share in (x.share_memory_, x.untyped_storage().share_memory_, module.to(device).share_memory):
        with pytest.raises(RuntimeError, match="can't be shared with other processes: a tensor that is sent is copied"):
            share()
    assert not x.is_shared() and not x.untyped_storage().is_shared()
    y = torch.ones(3)
    assert not y.is_shared() and y.share_memory_() is y and y.is_shared()
    assert module.cpu().share_memory() is module and module.weight.is_shared()


def test_without_a_device_nothing_changes() -> None:
    program = """
import torch, torch_anyaccel
from torch.multiprocessing import reductions
assert not torch_anyaccel.is_registered()
picklers = reductions.reduction.ForkingPickler._extra_reducers
assert picklers[torch.Tensor] is picklers[torch.nn.Parameter] is reductions.reduce_tensor
assert picklers[torch.UntypedStorage] is reductions.reduce_storage and torch.Event not in picklers
assert torch.UntypedStorage.share_memory_.__module__ == "torch.storage" and "is_shared" not in vars(torch.UntypedStorage)
"""
    env = dict(os.environ, ANYACCEL_BACKEND="absent")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
