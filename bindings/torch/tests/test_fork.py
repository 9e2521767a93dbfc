"""Children of a process that has used the device."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch


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


@pytest.mark.skipif(os.environ["ANYACCEL_BACKEND"] != "host", reason="of the host device")
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
del x, event, stream, pinned
assert torch.rand(3, device=name).sum().item() > 0
"""
        )
    )


def test_workers_of_a_data_loader(device: torch.device) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(64.0), torch.arange(64))
    assert torch.ones(1, device=device).item() == 1
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)
    total = 0.0
    for values, _labels in loader:
        assert values.is_pinned()
        total += values.to(device, non_blocking=True).sum().item()
    assert total == sum(range(64))
