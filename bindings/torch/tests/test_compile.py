"""What is compiled does what it did before, whichever of PyTorch's backends compiles it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from unittest import mock

import pytest
import torch

BACKENDS = ["eager", "aot_eager", "inductor"]

pytestmark = pytest.mark.filterwarnings("ignore:torch.compile. Inductor makes no code")


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 16)
        self.norm = torch.nn.BatchNorm1d(16)
        self.last = torch.nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.dropout(self.norm(self.first(x)).relu(), 0.25, self.training)
        if x.sum() > 1e9:  # a graph break
            x = x * 2
        return self.last(x)


def train(device: torch.device, compiled: Callable[[torch.nn.Module], Callable[..., torch.Tensor]]) -> list[torch.Tensor]:
    """The losses of some steps, and the parameters and buffers after them."""
    torch.manual_seed(3)
    net = Net().to(device)
    model = compiled(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    left = []
    for _ in range(4):
        x, wanted = torch.randn(8, 6, device=device), torch.randint(3, (8,), device=device)
        loss = torch.nn.functional.cross_entropy(model(x), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        left.append(loss.detach())
    return left + [value.detach() for value in net.state_dict().values()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_training_is_the_same(backend: str, device: torch.device) -> None:
    want = train(device, lambda net: net)
    got = train(device, lambda net: torch.compile(net, backend=backend))
    for a, b in zip(want, got, strict=True):
        assert b.device == device
        torch.testing.assert_close(b, a)


def on_a_stream(x: torch.Tensor) -> torch.Tensor:
    stream = torch.Stream(x.device)
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        y = x + 1
    torch.accelerator.current_stream().wait_stream(stream)
    return y * 2


def with_an_event(x: torch.Tensor) -> torch.Tensor:
    module = torch.get_device_module(x.device)
    event, stream = module.Event(), module.Stream()
    y = x * 3
    event.record()
    with module.stream(stream):
        event.wait(stream)
        z = y - 1
    module.current_stream().wait_stream(stream)
    return z


def in_between(x: torch.Tensor) -> torch.Tensor:
    y = x.cos()
    torch._dynamo.graph_break()
    torch.accelerator.synchronize()
    return y + y.sum().item()


def in_half(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        return x @ x.t()


def on_another(x: torch.Tensor) -> torch.Tensor:
    with torch.get_device_module(x.device).device(torch.accelerator.device_count() - 1):
        return torch.ones(2, device=x.device.type) + 1


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[1:].mul_(2)
    return y.view(-1)[::2]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [on_a_stream, with_an_event, in_between, in_half, on_another, in_place])
def test_results_are_the_same(function: Callable[[torch.Tensor], torch.Tensor], backend: str, device: torch.device) -> None:
    x = torch.randn(3, 4, device=device)
    want = function(x)
    got = torch.compile(function, backend=backend)(x)
    assert got.device == want.device and got.dtype == want.dtype and torch.equal(got, want)


def test_streams_and_events_of_torch_break_no_graph(device: torch.device) -> None:
    x = torch.randn(3, 4, device=device)
    assert torch.equal(torch.compile(on_a_stream, backend="aot_eager", fullgraph=True)(x), (x + 1) * 2)


@pytest.mark.parametrize(
    "options", [{"mode": "max-autotune"}, {"mode": "reduce-overhead"}, {"dynamic": True}, {"fullgraph": True}]
)
def test_modes_of_the_default_backend_change_nothing(options: dict[str, object], device: torch.device) -> None:
    made = torch.compile(lambda n: torch.arange(n, device=device) * 2, **options)  # no tensor goes in
    assert made(5).tolist() == [0, 2, 4, 6, 8]
    assert made(3).tolist() == [0, 2, 4]


def test_graphs_of_other_devices_are_inductors() -> None:
    seen = []

    def compile_fx(graph: torch.fx.GraphModule, inputs: object, **_options: object) -> Callable[..., object]:
        seen.append(graph)
        return graph.forward

    with mock.patch("torch._inductor.compile_fx.compile_fx", compile_fx):
        assert torch.compile(lambda x: x + 1)(torch.ones(2)).tolist() == [2, 2]
    assert len(seen) == 1


def test_inductor_itself_says_what_to_do_instead(device: torch.device) -> None:
    from torch._dynamo.backends.registry import lookup_backend

    inductors = lookup_backend("inductor")
    with pytest.raises(Exception, match=f'Inductor makes no code for {device.type}: torch.compile.*backend="aot_eager"'):
        torch.compile(lambda x: x.sin() + 1, backend=inductors)(torch.ones(2, device=device))


def test_one_warning_says_so_and_nothing_is_loaded_before() -> None:
    program = """
import sys, warnings, torch
assert "torch._dynamo" not in sys.modules and "torch._inductor" not in sys.modules
name = torch._C._get_privateuse1_backend_name()
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for more in 1, 2:
        assert torch.compile(lambda x: x + more)(torch.ones(2, device=name)).tolist() == [1 + more] * 2
assert [w.category for w in said if f"Inductor makes no code for {name}" in str(w.message)] == [RuntimeWarning], said
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=dict(os.environ), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
