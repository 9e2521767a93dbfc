"""Children of a process that has used the device."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from backends import CUDA, OPENCL, XPU, Backend


def python(code: str, **environment: str) -> None:
    env = dict(os.environ, **environment)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


IN_A_CHILD = """
import os, sys, torch
name = torch._C._get_privateuse1_backend_name()
x = torch.ones(4, device=name)
stream = torch.Stream()
event = stream.record_event()
generator = torch.Generator(name).manual_seed(4)
pinned = torch.ones(4).pin_memory()
child = os.fork()
if child == 0:
    try:
{body}
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert x.sum().item() == 4
"""


def in_a_child(body: str) -> str:
    return IN_A_CHILD.format(body="\n".join("        " + line for line in body.strip().splitlines()))


on_the_host = pytest.mark.skipif(os.environ["ANYACCEL_BACKEND"] != "host", reason="of the host device")


@on_the_host
def test_the_host_device_starts_again() -> None:
    python(
        in_a_child(
            """
torch.manual_seed(5)
y = torch.full((3,), 2.0, device=name)
assert (y * 2).sum().item() == 12
assert torch.get_device_module(name).is_initialized()
try:
    x.sum()
except RuntimeError as error:
    assert 'lies in no live device memory' in str(error), error
else:
    raise AssertionError("the parent's memory was read")
del x, event, stream, generator, pinned
assert torch.rand(3, device=name).sum().item() > 0
"""
        )
    )


@on_the_host
def test_what_a_child_makes_is_not_what_its_parent_made() -> None:
    python(
        in_a_child(
            """
own = torch.Stream(name).record_event()
drawn = torch.Generator(name).manual_seed(5)
for stale in (event.query, event.synchronize, generator.initial_seed):
    try:
        stale()
    except RuntimeError as error:
        assert 'from before this process was forked' in str(error), error
    else:
        raise AssertionError("the parent's was used")
del event, generator
own.synchronize()
assert own.query() and drawn.initial_seed() == 5
"""
        )
    )


# What a child does that may not: everything that needs the device.
TOUCHES = """
torch.ones(2, device=name)
torch.ones(2).to(name)
torch.ones(2).pin_memory()
torch.randn(2, device=name)
torch.Stream(name)
torch.accelerator.current_stream()
torch.get_device_module(name).init()
x + 1
x.cpu()
x[0].item()
stream.synchronize()
event.query()
event.synchronize()
"""

READS = """
class Touching(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return torch.ones(1, device=name)

try:
    next(iter(torch.utils.data.DataLoader(Touching(), num_workers=1)))
except RuntimeError as error:
    assert 'DataLoader worker' in str(error) and "use the 'spawn' start method" in str(error), error
else:
    raise AssertionError('a worker used the device')
data = torch.utils.data.TensorDataset(torch.arange(64.0))
total = 0.0
for values, in torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True):
    assert values.is_pinned()
    total += values.to(name, non_blocking=True).sum().item()
assert total == sum(range(64))
"""


@on_the_host
@pytest.mark.parametrize("backend", [CUDA, XPU, OPENCL], ids=lambda backend: backend.kind)
def test_where_a_driver_cannot_start_again_there_is_one_error(backend: Backend) -> None:
    body = f"""
assert torch.get_device_module(name)._is_in_bad_fork()
for line in {TOUCHES.strip().splitlines()!r}:
    try:
        eval(line)
    except RuntimeError as error:
        assert "in forked subprocess" in str(error) and "'spawn' start method" in str(error), f'{{line}}: {{error}}'
    else:
        raise AssertionError(line)
assert torch.rand(3).sum().item() > 0 and pinned.sum().item() == 4
torch.manual_seed(3)
del x, stream, event, generator, pinned
"""
    absent = "if torch._C._get_privateuse1_backend_name() == 'privateuseone': import sys; sys.exit('no device')"
    done = backend.run("-c", f"import torch\n{absent}\n{in_a_child(body)}{READS}")
    if done.stderr.endswith("no device\n"):
        backend.is_absent("no device")
    assert done.returncode == 0, done.stdout + done.stderr


def test_workers_of_a_data_loader(device: torch.device) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(64.0), torch.arange(64))
    assert torch.ones(1, device=device).item() == 1
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)
    total = 0.0
    for values, _labels in loader:
        assert values.is_pinned()
        total += values.to(device, non_blocking=True).sum().item()
    assert total == sum(range(64))
