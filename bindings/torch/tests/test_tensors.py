"""Tensors there and back, views, and operators that the CPU computes: the same as on the CPU."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch.testing import assert_close

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.uint16,
]  # fmt: skip


def sample(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    bits = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(7))
    return bits.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_there_and_back(device: torch.device, dtype: torch.dtype) -> None:
    there = sample(7, 5, dtype=dtype)
    assert torch.equal(there.to(device).cpu().view(torch.uint8), there.view(torch.uint8))


def test_sizes_of_nothing(device: torch.device) -> None:
    for shape in [(0,), (3, 0), ()]:
        made = torch.ones(shape, device=device)
        assert made.cpu().shape == torch.Size(shape)
    assert torch.ones((), device=device).item() == 1.0


@pytest.mark.parametrize(
    "look",
    [
        lambda t: t.t(), lambda t: t[1:5, 2], lambda t: t[:, ::2], lambda t: t[0].expand(4, -1), lambda t: t[::3, 1::2],
        lambda t: t.unfold(0, 2, 1), lambda t: t[2, 3], lambda t: t.reshape(2, 3, 8), lambda t: t.diagonal(),
        lambda t: t[:, 1:2].expand(6, 3),
    ],
)  # fmt: skip
def test_views_are_copied_element_by_element(device: torch.device, look) -> None:
    whole = torch.arange(48, dtype=torch.int16).view(6, 8)
    there = whole.to(device)
    assert torch.equal(look(there).cpu(), look(whole))
    assert look(there)._base is not None or look(there).data_ptr() == there.data_ptr()
    # Between tensors of the device, and with a conversion.
    assert torch.equal(look(there).clone().cpu(), look(whole))
    assert torch.equal(look(there).to(torch.float64).cpu(), look(whole).double())


@pytest.mark.parametrize("look", [lambda t: t.t(), lambda t: t[1:5, 2], lambda t: t[:, ::2], lambda t: t[::3, 1::2]])
def test_writes_to_views_leave_the_rest_alone(device: torch.device, look) -> None:
    ours, theirs = torch.zeros(6, 8).to(device), torch.zeros(6, 8)
    values = torch.arange(look(theirs).numel(), dtype=torch.float32).view(look(theirs).shape)
    look(ours).copy_(values)
    look(theirs).copy_(values)
    assert torch.equal(ours.cpu(), theirs)
    look(ours).add_(1)
    look(theirs).add_(1)
    assert torch.equal(ours.cpu(), theirs)
    look(ours).copy_(look(ours).clone() * 2)
    look(theirs).mul_(2)
    assert torch.equal(ours.cpu(), theirs)


def test_bits_of_conjugates_and_negatives(device: torch.device) -> None:
    values = torch.tensor([1 + 2j, 3 - 4j])
    there = values.to(device)
    assert torch.equal(there.conj().cpu(), values.conj())
    assert torch.equal((there.conj() * 2).cpu(), values.conj() * 2)
    assert torch.equal(there.conj().imag.cpu(), values.conj().imag)
    target = torch.zeros(2, dtype=torch.complex64, device=device)
    target.conj().copy_(there)
    assert torch.equal(target.cpu(), values.conj())
    assert torch.equal(torch.view_as_real(there).cpu(), torch.view_as_real(values))


OPERATORS = {
    "add": lambda a, b: a + b,
    "scalar of the cpu first": lambda a, b: torch.tensor(2.5) * a,
    "python number": lambda a, b: 3 - a,
    "matmul": lambda a, b: a @ b.t(),
    "sum": lambda a, b: a.sum(dim=1),
    "cat": lambda a, b: torch.cat([a, b], dim=1),
    "where": lambda a, b: torch.where(a > 0, a, b),
    "index": lambda a, b: a[torch.tensor([2, 0, 1]), :2],
    "index by the device": lambda a, b: a[(b > 0).any(dim=1)],
    "topk": lambda a, b: torch.topk(a, 2).values,
    "softmax": lambda a, b: torch.softmax(a, -1),
    "norm": lambda a, b: torch.linalg.vector_norm(a),
    "split": lambda a, b: torch.stack(torch.split(a, 1)[:2]),
    "nonzero": lambda a, b: torch.nonzero(a > 0),
    "einsum": lambda a, b: torch.einsum("ij,kj->ik", a, b),
    "layer norm": lambda a, b: torch.nn.functional.layer_norm(a, (4,)),
    "attention": lambda a, b: torch.nn.functional.scaled_dot_product_attention(a[None], b[None], b[None]),
    "svd": lambda a, b: torch.linalg.svdvals(a),
    "promotion": lambda a, b: a + b.to(torch.float64),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_agree_with_the_cpu(device: torch.device, name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    a, b = torch.randn(3, 4, generator=generator), torch.randn(3, 4, generator=generator)
    ours = OPERATORS[name](a.to(device), b.to(device))
    assert ours.device == device
    assert_close(ours.cpu(), OPERATORS[name](a, b))


def test_results_of_arguments_on_two_places(device: torch.device) -> None:
    with pytest.raises(RuntimeError):
        torch.ones(3, device=device) + torch.ones(3)


def test_in_place_and_out(device: torch.device) -> None:
    x = torch.arange(6.0, device=device)
    same = x
    x += 1
    x.mul_(2).clamp_(max=8)
    assert same is x
    assert x.tolist() == [2, 4, 6, 8, 8, 8]
    out = torch.empty(0, device=device)
    assert torch.add(x, x, out=out) is out
    assert out.tolist() == [4, 8, 12, 16, 16, 16]
    column = torch.zeros(6, 2, device=device)
    torch.add(x, 1, out=column[:, 1])
    assert column.cpu()[:, 1].tolist() == [3, 5, 7, 9, 9, 9]
    assert column.cpu()[:, 0].sum() == 0


def test_lists_of_tensors(device: torch.device) -> None:
    several = [torch.ones(n, device=device) for n in (1, 2, 3)]
    torch._foreach_add_(several, 2.0)
    assert [t.sum().item() for t in several] == [3, 6, 9]
    doubled = torch._foreach_mul(several, 2.0)
    assert all(t.device == device for t in doubled)
    assert [t.sum().item() for t in doubled] == [6, 12, 18]


def test_autograd_and_convolution(device: torch.device) -> None:
    def run(on: torch.device) -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.ConvTranspose2d(4, 2, 2),
        )  # fmt: skip
        net = net.to(on)
        x = torch.randn(2, 2, 5, 5, generator=torch.Generator().manual_seed(1)).to(on).requires_grad_()
        net(x).square().mean().backward()
        return [x.grad.cpu(), *(p.grad.cpu() for p in net.parameters())]

    for ours, theirs in zip(run(device), run(torch.device("cpu")), strict=True):
        assert_close(ours, theirs)


def test_resizing_and_setting(device: torch.device) -> None:
    x = torch.arange(4.0, device=device)
    x.resize_(8)
    assert x.cpu()[:4].tolist() == [0, 1, 2, 3]
    x.untyped_storage().resize_(8)
    assert x.untyped_storage().nbytes() == 8
    y = torch.empty(0, device=device)
    base = torch.arange(6.0, device=device)
    y.set_(base.untyped_storage(), 1, (2, 2), (2, 1))
    assert y.tolist() == [[1, 2], [3, 4]]
    assert y.is_set_to(y) and not y.is_set_to(base)
    y.set_()
    assert y.numel() == 0 and y.device == device


def test_storages_and_files(device: torch.device) -> None:
    x = torch.arange(4.0, device=device)
    file = io.BytesIO()
    torch.save({"x": x, "view": x[1:3]}, file)
    for where, expected in [(None, device), ("cpu", torch.device("cpu"))]:
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert loaded["x"].device == expected
        assert loaded["x"].tolist() == [0, 1, 2, 3]
        loaded["x"][1] = 9
        assert loaded["view"].tolist() == [9, 2]
    assert copy.deepcopy(x).tolist() == x.tolist()
    assert x.untyped_storage().cpu().tolist()[:4] == [0, 0, 0, 0]


def test_copies_between_devices(two_devices: tuple[torch.device, torch.device]) -> None:
    a, b = two_devices
    x = torch.arange(12.0, device=a).view(3, 4)
    assert torch.equal(x.to(b).cpu(), x.cpu())
    assert torch.equal(x.t().to(b).cpu(), x.t().cpu())
    assert torch.equal(x.to(b, torch.int64).cpu(), x.cpu().long())
    y = torch.zeros(4, 3, device=b)
    y.t().copy_(x)
    assert torch.equal(y.cpu(), x.cpu().t())
    with torch.accelerator.device_index(1):
        assert torch.ones(2, device=b.type).device == b


def test_pinned_memory(device: torch.device) -> None:
    host = torch.arange(1000.0).pin_memory()
    assert host.is_pinned() and host[5:7].is_pinned() and not torch.ones(2).is_pinned()
    there = host.to(device, non_blocking=True)
    back = torch.empty(1000).pin_memory()
    back.copy_(there, non_blocking=True)
    torch.accelerator.synchronize()
    assert torch.equal(back, host)


# Kept: some versions of torch.compile fail on an operator that is gone.
LIBRARY = torch.library.Library("anyaccel_tests", "DEF")
LIBRARY.define("nowhere(Tensor x) -> Tensor")


def test_an_operator_that_nobody_has(device: torch.device) -> None:
    with pytest.raises(NotImplementedError, match="anyaccel_tests::nowhere"):
        torch.ops.anyaccel_tests.nowhere(torch.ones(1, device=device))


def test_autocast(device: torch.device) -> None:
    a, b = torch.randn(3, 4, device=device), torch.randn(4, 2, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert (a @ b).dtype is torch.bfloat16
        assert torch.softmax(a.bfloat16(), -1).dtype is torch.float32
    assert (a @ b).dtype is torch.float32


def test_out_of_memory_is_survived(device: torch.device) -> None:
    module = torch.get_device_module(device)
    torch.accelerator.empty_cache()
    module.set_memory_budget(64 << 20, device)
    try:
        kept = torch.ones(1 << 20, device=device)
        with pytest.raises(torch.OutOfMemoryError, match="64"):
            torch.empty(128 << 20, dtype=torch.uint8, device=device)
        assert kept.sum().item() == 1 << 20
    finally:
        module.set_memory_budget(None, device)
    assert torch.empty(128 << 20, dtype=torch.uint8, device=device).numel() == 128 << 20


def test_counting_memory(device: torch.device) -> None:
    before = torch.accelerator.memory_allocated(device)
    x = torch.empty(1000, dtype=torch.uint8, device=device)
    assert torch.accelerator.memory_allocated(device) == before + 1024
    del x
    assert torch.accelerator.memory_allocated(device) == before
    free, total = torch.accelerator.get_memory_info(device)
    assert 0 < free <= total
    stats = torch.accelerator.memory_stats(device)
    assert stats["allocation.all.allocated"] > 0
    assert torch.float32 in torch.accelerator.get_device_capability(device)["supported_dtypes"]


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("bias", [True, False])
def test_recurrent_networks(device: torch.device, kind: type[torch.nn.Module], bias: bool) -> None:
    def run(on: torch.device) -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = kind(3, 4, num_layers=2, bias=bias, bidirectional=True).to(on)
        x = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(1)).to(on).requires_grad_()
        y, _last = net(x)
        y.square().mean().backward()
        return [y.detach().cpu(), x.grad.cpu(), *(p.grad.cpu() for p in net.parameters())]

    for ours, theirs in zip(run(device), run(torch.device("cpu")), strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_filling(device: torch.device, dtype: torch.dtype) -> None:
    assert torch.full((3, 2), 1, dtype=dtype, device=device).cpu().to(torch.complex128).sum() == 6
    assert torch.zeros(5, dtype=dtype, device=device).cpu().to(torch.complex128).abs().sum() == 0
    columns = torch.zeros(4, 3, dtype=dtype, device=device)
    columns[:, 1].fill_(1)
    assert columns.cpu().to(torch.complex128).sum() == 4


def test_memory_that_nobody_wrote(device: torch.device) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        for make in (
            lambda on: torch.empty(3, device=on),
            lambda on: torch.empty_strided((2, 2), (1, 2), dtype=torch.int32, device=on),
            lambda on: torch.ones(2, device=on).resize_(4),
        ):
            assert torch.equal(make(device).cpu().nan_to_num(7), make("cpu").nan_to_num(7))
    finally:
        torch.use_deterministic_algorithms(False)


def test_filling_conjugates(device: torch.device) -> None:
    z = torch.zeros(2, dtype=torch.complex64, device=device)
    z.conj().fill_(1 + 2j)
    assert z.tolist() == [1 - 2j] * 2
    with pytest.raises(RuntimeError, match="overflow"):
        torch.zeros(2, dtype=torch.uint8, device=device).fill_(-1000)
