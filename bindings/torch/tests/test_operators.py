"""A sample of what `operator_sweep.py` does with all operators, and what programs stumbled over."""

from __future__ import annotations

import pytest
import torch
from operator_sweep import check, full_name, operators
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

# Writes without saying so, memory shared by arguments, results that have no memory, strides, kernels that look at the device.
SAMPLE = [
    "as_strided:partial_views", "cat", "cholesky_solve", "fft.rfft", "index_put", "kthvalue", "linalg.eigh", "masked_select",
    "mode", "native_batch_norm", "native_layer_norm", "nn.functional.batch_norm", "nn.functional.conv_transpose2d",
    "nn.functional.embedding", "nn.functional.group_norm", "scatter_reduce:amax", "sgn", "svd", "take", "unique", "where",
]  # fmt: skip


# What float32 doesn't show: kernels for every device that round in between, or that only this type has.
OTHERS = {
    torch.bfloat16: ["addr", "nn.functional.mish", "nn.functional.silu", "nn.functional.scaled_dot_product_attention"],
    torch.float16: ["addr", "nn.functional.mish", "nn.functional.silu", "nn.functional.scaled_dot_product_attention"],
    torch.complex64: ["conj_physical", "svd", "uniform"],
    torch.int64: ["arange", "bitwise_and", "sum"],
    torch.bool: ["where", "any", "index_put"],
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, *OTHERS], ids=str)
def test_a_sample_of_all_operators(dtype: torch.dtype) -> None:
    known = {full_name(op): op for op in operators(dtype)}
    assert len(known) > 300
    sample = OTHERS.get(dtype, SAMPLE)
    wrong = [f"{name}: {text}" for name in sample for text in check(known[name], dtype, 3)[1]]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("shape", [(2, 3, 5, 8), (3, 5, 8)], ids=["batch", "no batch"])
@pytest.mark.parametrize("mask", [None, "causal", "bool", "learned"])
def test_attention(device: torch.device, shape: tuple[int, ...], mask: str | None) -> None:
    attend = torch.nn.functional.scaled_dot_product_attention
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(shape, generator=generator) for _ in range(3)]
    bias = torch.randn(5, 5, generator=generator)
    found = []
    for on in (device, torch.device("cpu")):
        query, key, value = (x.to(on).requires_grad_() for x in given)
        inputs, added = [query, key, value], None
        if mask == "bool":
            added = (bias > -1).to(on)
        elif mask == "learned":
            added = bias.to(on).requires_grad_()
            inputs.append(added)
        out = attend(query, key, value, attn_mask=added, is_causal=mask == "causal")
        assert out.is_contiguous() or on != device
        found.append([x.cpu() for x in (out, *torch.autograd.grad(out.square().sum(), inputs))])
    assert_close(*found)


def test_attention_that_is_fused_has_a_derivative_by_its_mask(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 3, 5, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    for size in ((2, 3, 5, 5), (1, 1, 5, 5), (5, 5)):
        bias = torch.randn(size, generator=generator, dtype=torch.float64)
        theirs = bias.clone().requires_grad_()
        ours = bias.to(device).requires_grad_()
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=theirs)
        fused = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
        there = fused(query.to(device), key.to(device), value.to(device), attn_bias=ours)[0]
        assert_close(there.cpu(), out)
        out.square().sum().backward()
        there.square().sum().backward()
        assert_close(ours.grad.cpu(), theirs.grad)


def test_attention_under_transforms(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(4, 3, 5, 8, generator=generator).to(device) for _ in range(2))

    def length(one: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(one[None], key[:1], key[:1]).square().sum()

    each = torch.stack([torch.func.grad(length)(one) for one in query])
    assert_close(torch.func.vmap(torch.func.grad(length))(query), each)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics(device: torch.device, momentum: float | None) -> None:
    ours, theirs = (torch.nn.BatchNorm2d(3, momentum=momentum).to(on) for on in (device, "cpu"))
    x = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        assert_close(ours(x.to(device)).cpu(), theirs(x))
    for mine, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        assert_close(mine.cpu(), other)
    assert theirs.running_mean.abs().sum() > 0
    assert_close(ours.eval()(x.to(device)).cpu(), theirs.eval()(x))


@pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="torch.accelerator.Graph is newer")
def test_running_statistics_in_a_graph(device: torch.device) -> None:
    ours, theirs = (torch.nn.BatchNorm1d(3).to(on) for on in (device, "cpu"))
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    there, graph = x.to(device), torch.accelerator.Graph()
    with torch.Stream(device) as stream:
        with graph:
            ours(there)
        for _ in range(3):
            graph.replay()
            theirs(x)
        stream.synchronize()
    assert_close(ours.running_mean.cpu(), theirs.running_mean)
    assert_close(ours.running_var.cpu(), theirs.running_var)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_drops_the_same_again(device: torch.device, reentrant: bool) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.5)).to(device)
    x = torch.ones(4, 16, device=device, requires_grad=True)
    gradients = []
    for run in (lambda: checkpoint(net, x, use_reentrant=reentrant), lambda: net(x)):
        torch.manual_seed(3)
        net.zero_grad()
        run().sum().backward()
        gradients.append([p.grad.clone() for p in net.parameters()])
    for mine, other in zip(*gradients, strict=True):
        assert torch.equal(mine.cpu(), other.cpu())


@pytest.mark.parametrize(
    "write",
    [
        lambda v: torch.add(v[1:], 1, out=v[:-1]), lambda v: torch.cat([v[:1], v[:1]], out=v[:2]),
        lambda v: v[1:].add_(v[:-1]), lambda v: v.add_(v.t()),
    ],
)  # fmt: skip
def test_writing_over_what_is_read_is_refused(device: torch.device, write) -> None:
    for on in ("cpu", device):
        square = torch.arange(16.0).view(4, 4).to(on)
        with pytest.raises(RuntimeError, match="single memory location"):
            write(square)
        assert torch.equal(square.cpu(), torch.arange(16.0).view(4, 4))


def test_arguments_that_share_memory(device: torch.device) -> None:
    ours, theirs = (torch.arange(12.0).view(3, 4).to(on) for on in (device, "cpu"))
    for v in (ours, theirs):
        v[0].add_(v[1])
        torch.mul(v[:, 0], 2, out=v[:, 1])
        v.mul_(v)
        torch._foreach_add_([v[1], v[2]], [v[0], v[0]])
        v[:1].expand(4, 4).masked_fill_(torch.ones(4, 4, dtype=torch.bool, device=v.device), 7.0)
    assert torch.equal(ours.cpu(), theirs)


def test_zeros_without_memory(device: torch.device) -> None:
    x = torch.randn(3, device=device)
    _value, tangent = torch.func.jvp(lambda v: v.round() + torch.floor(v), (x,), (x,))
    assert tangent.device == device and tangent.tolist() == [0, 0, 0]
    zeros = torch._efficientzerotensor((2, 2), device=device)
    assert zeros.device == device and (zeros + 1).cpu().sum() == 4 and zeros.cpu().sum() == 0


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda on: torch.eye(2, device=on).to_sparse(), "_to_sparse"),
        (lambda on: torch.eye(2, device=on).to_sparse_csr(), "_to_sparse_csr"),
        (lambda on: torch.eye(2).to_sparse().to(on), "sparse"),
        (lambda on: torch.quantize_per_tensor(torch.ones(2, device=on), 0.1, 0, torch.qint8), "quantize_per_tensor"),
        (lambda on: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], device=on) * 2, "aten::mul"),
    ],
)
def test_what_there_is_not_is_refused_by_name(device: torch.device, make, name: str) -> None:
    with pytest.raises(NotImplementedError, match=rf"{name}.* is not available for"):
        make(device)


def test_generators_and_tensors_of_different_devices(device: torch.device) -> None:
    generator = torch.Generator(device)
    for draw in (torch.empty(2).uniform_, torch.empty(2).normal_, torch.empty(2).random_):
        with pytest.raises(RuntimeError, match="Expected a generator of the device cpu"):
            draw(generator=generator)
    with pytest.raises(RuntimeError, match="Expected a generator of the device cpu"):
        torch.randperm(4, generator=generator)
    with pytest.raises(RuntimeError, match="no device 99"):
        torch.Generator(torch.device(device.type, 99))


def test_dlpack(device: torch.device) -> None:
    x = torch.arange(4.0, device=device)
    assert x.__dlpack_device__() == (torch.utils.dlpack.DLDeviceType.kDLExtDev, 0)
    same = torch.from_dlpack(x)
    assert same.device == device and same.data_ptr() == x.data_ptr()
    same.add_(1)
    assert x.tolist() == [1, 2, 3, 4]
    assert torch.ones(1).__dlpack_device__()[0] == torch.utils.dlpack.DLDeviceType.kDLCPU
