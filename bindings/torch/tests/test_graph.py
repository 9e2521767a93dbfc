"""torch.accelerator.Graph."""

from __future__ import annotations

import pytest
import torch
from conftest import draw_or_skip
from torch.testing import assert_close

pytestmark = pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="torch.accelerator.Graph is newer")


@pytest.fixture
def stream(device: torch.device):
    with torch.Stream(device) as stream:
        yield stream


def test_replays_compute_anew(device: torch.device, stream: torch.Stream) -> None:
    x = torch.arange(6.0, device=device).view(2, 3)
    graph = torch.accelerator.Graph()
    with graph:
        y = (x.t() * 2 + 1).softmax(0)
        x.add_(1)
        z = torch.cat([x, x]).sum(dim=1)
    assert x.sum().item() == 15, "nothing runs while it is captured"
    for replay in range(1, 4):
        before = x.cpu()
        graph.replay()
        stream.synchronize()
        assert_close(y.cpu(), (before.t() * 2 + 1).softmax(0))
        assert x.sum().item() == 15 + 6 * replay
        assert_close(z.cpu(), torch.cat([x.cpu(), x.cpu()]).sum(dim=1))


def test_new_inputs(device: torch.device, stream: torch.Stream) -> None:
    x, index = torch.zeros(4, 4, device=device), torch.zeros(2, dtype=torch.int64, device=device)
    graph = torch.accelerator.Graph()
    with graph:
        y = x[index] / 2
    x.copy_(torch.arange(16.0).view(4, 4))
    index.copy_(torch.tensor([3, 1]))
    graph.replay()
    assert y.tolist() == [[6, 6.5, 7, 7.5], [2, 2.5, 3, 3.5]]


def test_a_training_step(device: torch.device, stream: torch.Stream) -> None:
    def build(on: torch.device):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.Flatten(), torch.nn.Linear(12, 2)).to(on)
        data = torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(1)).to(on)
        target = torch.tensor([0, 1, 1, 0, 1]).to(on)
        for parameter in net.parameters():
            parameter.grad = torch.zeros_like(parameter)
        return net, data, target

    def step(net, data, target) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(net(data), target)
        for parameter in net.parameters():
            parameter.grad.zero_()
        loss.backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= 0.1 * parameter.grad
        return loss.detach()

    ours, theirs = build(device), build(torch.device("cpu"))
    graph = torch.accelerator.Graph()
    with graph:
        loss = step(*ours)
    for _ in range(5):
        graph.replay()
        assert_close(loss.cpu(), step(*theirs))
    for a, b in zip(ours[0].parameters(), theirs[0].parameters(), strict=True):
        assert_close(a.detach().cpu(), b.detach())


def test_random_numbers_are_drawn_at_each_replay(device: torch.device, stream: torch.Stream) -> None:
    x, y = torch.empty(1000, device=device), torch.empty(20, dtype=torch.int64, device=device)
    weights = torch.ones(100, device=device)
    graph = torch.accelerator.Graph()
    torch.manual_seed(4)
    with graph:
        draw_or_skip(x.normal_)
        y.copy_(torch.multinomial(weights, 20))
    seen = []
    for _ in range(2):
        graph.replay()
        seen.append((x.cpu(), y.cpu()))
    assert not torch.equal(seen[0][0], seen[1][0]) and not torch.equal(seen[0][1], seen[1][1])
    torch.manual_seed(4)
    graph.replay()
    assert torch.equal(x.cpu(), seen[0][0]) and torch.equal(y.cpu(), seen[0][1])
    torch.manual_seed(4)
    assert torch.equal(torch.empty(1000, device=device).normal_().cpu(), seen[0][0]), "as without a graph"


def test_what_cannot_be_captured_is_named(device: torch.device, stream: torch.Stream) -> None:
    x = torch.ones(3, device=device)
    graph = torch.accelerator.Graph()
    with graph:
        with pytest.raises(RuntimeError, match=r"_local_scalar_dense.*item\(\)"):
            x[0].item()
        with pytest.raises(RuntimeError, match="aten::nonzero"):
            torch.nonzero(x)
        with pytest.raises(RuntimeError, match=r"Tensor\.cpu\(\)"):
            x.cpu()
        with pytest.raises(RuntimeError):
            stream.synchronize()
        x.add_(1)
    graph.replay()
    assert x.tolist() == [2, 2, 2], "the capture went on"


def test_copies_from_and_to_the_host(device: torch.device, stream: torch.Stream) -> None:
    given, taken = torch.ones(4).pin_memory(), torch.zeros(4).pin_memory()
    large = torch.full((100_000,), 2.0)
    x, y = torch.zeros(4, device=device), torch.zeros(100_000, device=device)
    graph = torch.accelerator.Graph()
    with graph:
        x.copy_(given, non_blocking=True)
        x.mul_(3)
        taken.copy_(x, non_blocking=True)
        y.copy_(large)
    large.zero_()
    for value in (1.0, 5.0):
        given.fill_(value)
        graph.replay()
        stream.synchronize()
        assert taken.tolist() == [3 * value] * 4
    assert y.sum().item() == 200_000, "ordinary memory is taken as it was at the capture"


def test_pools_keeping_and_resetting(device: torch.device, stream: torch.Stream, tmp_path) -> None:
    x = torch.ones(8, device=device)
    first = torch.accelerator.Graph(keep_graph=True)
    first.enable_debug_mode()
    with first:
        y = x + 1
    first.debug_dump(str(tmp_path / "graph.dot"))
    assert "digraph" in (tmp_path / "graph.dot").read_text()
    second = torch.accelerator.Graph(pool=first.pool())
    with second:
        z = y * 2
    assert second.pool() == first.pool() != (0, 0)
    first.instantiate()
    first.replay()
    second.replay()
    assert z.tolist() == [4] * 8
    first.reset()
    with first:
        w = x - 1
    first.replay()
    assert w.tolist() == [0] * 8


def test_a_replay_that_fails_is_told(device: torch.device, stream: torch.Stream) -> None:
    x, index = torch.ones(3, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    graph = torch.accelerator.Graph()
    with graph:
        x[index]
    index.fill_(99)
    graph.replay()
    with pytest.raises(Exception, match="out of bounds|out of range"):
        stream.synchronize()
    stream.synchronize()


def test_devices_that_take_no_part(two_devices: tuple[torch.device, torch.device]) -> None:
    a, b = two_devices
    x, y = torch.ones(2, device=a), torch.ones((), device=b)
    graph = torch.accelerator.Graph()
    with torch.Stream(a), graph:
        with pytest.raises(RuntimeError):
            torch.add(x, y)
        x += 1
    graph.replay()
    assert x.tolist() == [2, 2]
