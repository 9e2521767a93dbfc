"""What training programs are made of beside operators: derivatives of derivatives, checkpoints, mixed precision, optimizers,
compiled functions. All as on the CPU."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch.func import functional_call, grad, hessian, jacfwd, jvp, vmap
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint


def batch() -> torch.Tensor:
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(1))


def network(on: torch.device | str) -> torch.nn.Module:
    made = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.uniform_(-1, 1, generator=generator)
    return made.to(on)


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "hessian": lambda x: hessian(lambda v: (v.sin() * v).sum())(x[0]),
    "forward jacobian": lambda x: jacfwd(torch.exp)(x[0]),
    "jvp": lambda x: jvp(lambda v: v.sin().sum(0), (x,), (x,))[1],
    "derivatives of samples": lambda x: vmap(grad(lambda v: v.square().prod()))(x),
    "twice": lambda x: torch.autograd.functional.hvp(lambda v: v.pow(3).sum(), x, x)[1],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_transforms(device: torch.device, name: str) -> None:
    ours = FUNCTIONS[name](batch().to(device))
    assert ours.device == device
    assert_close(ours.cpu(), FUNCTIONS[name](batch()))


def test_zeros_without_memory(device: torch.device) -> None:
    zeros = torch._efficientzerotensor((2, 3), device=device)
    assert zeros.device == device and zeros._is_zerotensor()
    ones = torch.ones(2, 3, device=device)
    assert zeros.cpu().tolist() == zeros.clone().tolist() == (zeros * 2).tolist() == [[0.0] * 3] * 2
    assert (zeros + ones).tolist() == (ones + zeros).tolist() == [[1.0] * 3] * 2
    assert ones.copy_(zeros).sum().item() == 0


def test_derivatives_of_samples_of_a_module(device: torch.device) -> None:
    def run(on: torch.device | str) -> dict[str, torch.Tensor]:
        net = network(on)

        def loss(parameters: dict[str, torch.Tensor], sample: torch.Tensor) -> torch.Tensor:
            return functional_call(net, parameters, (sample[None],)).square().sum()

        parameters = {name: parameter.detach() for name, parameter in net.named_parameters()}
        return vmap(grad(loss), in_dims=(None, 0))(parameters, batch().to(on))

    ours, theirs = run(device), run("cpu")
    for name in theirs:
        assert_close(ours[name].cpu(), theirs[name])


def test_random_numbers_of_samples(device: torch.device) -> None:
    zeros = torch.zeros(3, 100, device=device)
    for draw in (lambda v: v + torch.rand(100, device=device), lambda v: torch.nn.functional.dropout(v + 1, 0.5)):
        different = vmap(draw, randomness="different")(zeros)
        assert not torch.equal(different[0], different[1])
        same = vmap(draw, randomness="same")(zeros)
        assert torch.equal(same[0], same[1])


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_is_computed_again_draws_the_same_numbers(device: torch.device, reentrant: bool) -> None:
    seen: list[torch.Tensor] = []

    def block(x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.dropout(x * 2, 0.5)
        seen.append(y.detach().cpu())
        return y * y

    x = torch.ones(100, device=device, requires_grad=True)
    y = checkpoint(block, x, use_reentrant=reentrant)
    torch.rand(3, device=device)
    before = torch.get_device_module(device).get_rng_state(device)
    y.sum().backward()
    assert len(seen) == 2 and torch.equal(seen[0], seen[1])
    # With 4 k k x x the derivative is 8 k k x, where k is 0 or 2.
    assert_close(x.grad.cpu(), seen[0] * seen[0] * 2)
    assert torch.equal(torch.get_device_module(device).get_rng_state(device), before)


def test_scaled_losses(device: torch.device) -> None:
    net = network(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)

    def step(factor: float) -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.float16):
            loss = net(batch().to(device)).square().mean() * factor
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    before = copy.deepcopy(net.state_dict())
    step(float("inf"))
    assert scaler.get_scale() == 512
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items()), "the step is left out"
    step(1.0)
    assert not torch.equal(before["0.weight"], net.state_dict()["0.weight"])


OPTIMIZERS = [
    (kind, way)
    for kind in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta")
    for way in ("", "foreach", "fused", "capturable")
    if (way != "fused" or kind in ("SGD", "Adam", "AdamW", "Adagrad")) and (way != "capturable" or kind.startswith("Adam"))
]


@pytest.mark.parametrize(("kind", "way"), OPTIMIZERS, ids=lambda value: value or "plain")
def test_optimizers(device: torch.device, kind: str, way: str) -> None:
    def run(on: torch.device | str, **how: bool) -> list[torch.Tensor]:
        net = network(on)
        optimizer = getattr(torch.optim, kind)(net.parameters(), lr=0.05, **how)
        for _ in range(3):
            optimizer.zero_grad()
            net(batch().to(on)).square().mean().backward()
            optimizer.step()
        return [parameter.detach().cpu() for parameter in net.parameters()]

    for ours, theirs in zip(run(device, **({way: True} if way else {})), run("cpu"), strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_modules(device: torch.device, backend: str) -> None:
    def run(on: torch.device | str, change: Callable[[torch.nn.Module], object]) -> list[torch.Tensor]:
        net = network(on)
        change(net)(batch().to(on)).square().mean().backward()
        return [parameter.grad.cpu() for parameter in net.parameters()]

    ours = run(device, lambda net: torch.compile(net, backend=backend))
    for one, other in zip(ours, run("cpu", lambda net: net), strict=True):
        assert_close(one, other)


def test_where_a_file_is_loaded_to(two_devices: tuple[torch.device, torch.device]) -> None:
    here, there = two_devices
    file = io.BytesIO()
    torch.save(torch.arange(3.0, device=there), file)
    for place, expected in [
        (None, there), ("cpu", torch.device("cpu")), (str(here), here), (here, here), ({str(there): str(here)}, here),
    ]:  # fmt: skip
        file.seek(0)
        loaded = torch.load(file, map_location=place)
        assert loaded.device == expected and loaded.tolist() == [0, 1, 2]


def test_programs_that_end_with_backward() -> None:
    code = """
import torch
name = torch._C._get_privateuse1_backend_name()
x = torch.ones(100, device=name, requires_grad=True)
(x * 2).sum().backward()
"""
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0 and not done.stderr, (done.returncode, done.stderr)
