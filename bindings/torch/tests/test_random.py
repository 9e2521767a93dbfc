"""Generators, and numbers that are drawn on the device."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

N = 20_000


@pytest.fixture(autouse=True)
def portable(device: torch.device):
    module = torch.get_device_module(device)
    torch.manual_seed(0)
    yield
    module.set_random_layout("portable")


DRAWS = {
    "uniform": (lambda x: x.uniform_(2, 4), 3.0),
    "normal": (lambda x: x.normal_(1, 2), 1.0),
    "log_normal": (lambda x: x.log_normal_(0, 0.25), 1.0317),
    "exponential": (lambda x: x.exponential_(2), 0.5),
    "geometric": (lambda x: x.geometric_(0.5), 2.0),
    "bernoulli": (lambda x: x.bernoulli_(0.25), 0.25),
    "bernoulli of a tensor": (lambda x: x.bernoulli_(torch.full_like(x, 0.25)), 0.25),
    "whole numbers": (lambda x: x.random_(11), 5.0),
    "from and to": (lambda x: x.random_(-5, 6), 0.0),
    "on the cpu": (lambda x: x.cauchy_().atan_(), 0.0),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws(device: torch.device, name: str) -> None:
    draw, mean = DRAWS[name]
    x, y = torch.empty(N, device=device), torch.empty(N, device=device)
    module = torch.get_device_module(device)
    before = module.get_rng_state(device)
    draw(x)
    draw(y)
    assert not torch.equal(x, y)
    assert abs(x.mean().item() - mean) < 0.1
    module.set_rng_state(before, device)
    assert torch.equal(draw(torch.empty(N, device=device)), x)


def test_own_generators(device: torch.device) -> None:
    generator = torch.Generator(device).manual_seed(5)
    assert generator.initial_seed() == 5 and generator.device == device
    state = generator.get_state()
    x = torch.randn(100, device=device, generator=generator)
    module = torch.get_device_module(device)
    default = module.get_rng_state(device)
    generator.set_state(state)
    assert torch.equal(torch.randn(100, device=device, generator=generator), x)
    assert torch.equal(module.get_rng_state(device), default)
    copied = generator.clone_state() if hasattr(generator, "clone_state") else generator
    assert copied.initial_seed() == 5
    with pytest.raises(RuntimeError, match="generator"):
        torch.randn(3, device=device, generator=torch.Generator())
    with pytest.raises(RuntimeError, match="16"):
        generator.set_state(torch.zeros(5, dtype=torch.uint8))


@pytest.mark.skipif(not hasattr(torch.accelerator, "random"), reason="torch.accelerator.random is newer")
def test_the_generators_of_torch_accelerator_are_the_same(device: torch.device) -> None:
    module = torch.get_device_module(device)
    torch.manual_seed(9)
    assert module.initial_seed(device) == torch.accelerator.random.initial_seed() == 9
    torch.rand(3, device=device)
    assert torch.equal(module.get_rng_state(device), torch.accelerator.random.get_rng_state(device))


def test_operators_of_the_cpu_draw_from_generators_of_the_device(device: torch.device) -> None:
    weights = torch.ones(1000, device=device)
    host = torch.get_rng_state()
    torch.manual_seed(1)
    first = torch.multinomial(weights, 500)
    second = torch.multinomial(weights, 500)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(torch.multinomial(weights, 500), first)
    generator = torch.Generator(device).manual_seed(2)
    third = torch.multinomial(weights, 500, generator=generator)
    assert torch.equal(torch.multinomial(weights, 500, generator=generator.manual_seed(2)), third)
    torch.set_rng_state(host)
    torch.multinomial(weights, 5)
    assert torch.equal(torch.get_rng_state(), host), "the CPU's generator is left alone"


def test_types_and_shapes(device: torch.device) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        assert 0.4 < torch.rand(N, device=device, dtype=dtype).double().mean().item() < 0.6
    assert set(torch.randint(3, (N,), device=device, dtype=torch.uint8).tolist()) == {0, 1, 2}
    numbers = torch.empty(1000, dtype=torch.int64, device=device)
    assert numbers.random_().min().item() >= 0
    assert numbers.random_(-(1 << 63), None).min().item() < 0
    assert sorted(torch.randperm(1000, device=device).tolist()) == list(range(1000))
    assert sorted(torch.randperm(100, device=device, dtype=torch.float32).tolist()) == list(range(100))
    z = torch.randn(N, dtype=torch.complex64, device=device)
    assert abs(z.abs().square().mean().item() - 1) < 0.05
    strided = torch.zeros(100, 2, device=device)
    strided[:, 0].uniform_()
    assert strided[:, 1].abs().sum().item() == 0 < strided[:, 0].sum().item()
    torch.manual_seed(3)
    again = torch.empty(100, device=device).uniform_()
    torch.manual_seed(3)
    assert torch.equal(torch.zeros(100, 2, device=device)[:, 1].uniform_(), again)


def test_bounds_of_types(device: torch.device) -> None:
    z = torch.rand(N, dtype=torch.complex64, device=device)
    assert abs(z.real.mean().item() - 0.5) < 0.02 and abs(z.imag.mean().item() - 0.5) < 0.02
    # 65503, rounded, would be the bound.
    assert torch.randint(0, 65504, (10 * N,), dtype=torch.float16, device=device).max().item() < 65504
    for wrong, says in {
        lambda: torch.randint(0, 1000, (5,), dtype=torch.int8, device=device): "out of bounds",
        lambda: torch.empty(5, dtype=torch.uint8, device=device).random_(-3, 3): "out of bounds",
        lambda: torch.empty(5, dtype=torch.float16, device=device).uniform_(0, 1e6): "out of bounds",
        lambda: torch.randperm(1000, dtype=torch.uint8, device=device): "without overflow",
        lambda: torch.randperm(5000, dtype=torch.float16, device=device): "2049",
    }.items():
        with pytest.raises(RuntimeError, match=says):
            wrong()


def test_dropout(device: torch.device) -> None:
    x = torch.ones(N, device=device, requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.25)
    y.sum().backward()
    assert_close(y.detach().cpu(), x.grad.cpu())
    kept = (y != 0).float().mean().item()
    assert abs(kept - 0.75) < 0.02 and abs(y.max().item() - 1 / 0.75) < 1e-6
    assert torch.nn.functional.dropout(x, 0.5, training=False) is not None
    assert torch.nn.functional.dropout(x, 1.0).abs().sum().item() == 0


def test_numbers_of_torch_cuda(device: torch.device) -> None:
    """What `torch.manual_seed(0); torch.rand(5, device="cuda")` is known to print, and `torch.randn`."""
    torch.get_device_module(device).set_random_layout("torch-cuda", 108, 2048)
    torch.manual_seed(0)
    drawn = torch.rand(5, device=device)
    assert_close(drawn.cpu(), torch.tensor([0.3990, 0.5167, 0.0249, 0.9401, 0.9459]), atol=5e-5, rtol=0)
    with pytest.raises(ValueError, match="multiprocessors"):
        torch.get_device_module(device).set_random_layout("torch-cuda")
    with pytest.raises(ValueError, match="nope"):
        torch.get_device_module(device).set_random_layout("nope")


def test_states_of_all_devices(two_devices: tuple[torch.device, torch.device]) -> None:
    a, b = two_devices
    module = torch.get_device_module(a)
    torch.manual_seed(11)
    assert module.initial_seed(a) == module.initial_seed(b) == 11
    x, y = torch.rand(10, device=a), torch.rand(10, device=b)
    assert torch.equal(x.cpu(), y.cpu())
    states = module.get_rng_state_all()
    with torch.random.fork_rng(device_type=a.type):
        torch.manual_seed(12)
        torch.rand(3, device=b)
    assert all(torch.equal(s, t) for s, t in zip(states, module.get_rng_state_all(), strict=True))
    module.manual_seed_all(-1)
    assert module.initial_seed(b) == (1 << 64) - 1
    with pytest.raises(ValueError, match="64 bits"):
        module.manual_seed(1 << 64)
    assert module.seed_all() == module.initial_seed(b) == module.initial_seed(a)
