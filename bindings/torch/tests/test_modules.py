"""What PyTorch does with tensors of a device without being asked to compute: moving modules, notes, types, names."""

from __future__ import annotations

import io

import pytest
import torch


def test_a_module_that_is_moved_keeps_its_parameters(device: torch.device) -> None:
    module = torch.nn.Linear(2, 3)
    parameters = list(module.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    module.to(device)
    assert all(now is before for now, before in zip(module.parameters(), parameters, strict=True))
    before = module.weight.detach().cpu()
    module(torch.ones(1, 2, device=device)).sum().backward()
    optimizer.step()
    assert torch.equal(module.weight.detach().cpu(), before - 1)
    module.to("cpu")
    assert all(now is before for now, before in zip(module.parameters(), parameters, strict=True))


def test_the_data_of_a_tensor_may_be_of_the_other_side(device: torch.device) -> None:
    ours, theirs = torch.ones(2, device=device), torch.zeros(2)
    theirs.data = ours
    assert theirs.device == device and theirs.data_ptr() == ours.data_ptr()
    sparse = torch.eye(2).to_sparse()
    with pytest.raises(RuntimeError, match="set_data"):
        ours.data = sparse


def test_notes_on_a_tensor_are_saved_with_it(device: torch.device) -> None:
    tensor = torch.ones(2, device=device)
    torch._utils.set_tensor_metadata(tensor, {"folded": True})
    file = io.BytesIO()
    torch.save({"noted": tensor, "plain": torch.ones(2, device=device)}, file)
    file.seek(0)
    loaded = torch.load(file)
    assert torch._utils.get_tensor_metadata(loaded["noted"]) == {"folded": True}
    assert torch._utils.get_tensor_metadata(loaded["plain"]) == {}


@pytest.mark.filterwarnings("ignore:BComplex32", "ignore:ComplexHalf", "ignore:Casting complex")
def test_every_type_that_is_promised_converts_into_every_other(device: torch.device) -> None:
    promised = sorted(torch.accelerator.get_device_capability(device)["supported_dtypes"], key=str)
    assert torch.float32 in promised
    for dtype in promised:
        for other in promised:
            assert torch.empty(2, dtype=dtype, device=device).to(other).dtype == other


def test_a_device_out_of_range_is_named(device: torch.device) -> None:
    count = torch.accelerator.device_count()
    with pytest.raises(RuntimeError, match=rf"\[0, {count}\), but is {count}"):
        torch.accelerator.set_device_index(count)
    assert torch.ones(1, device=device).item() == 1


def test_numbers_and_functions_that_are_none(device: torch.device) -> None:
    module = torch.get_device_module(device)
    for wrong in (-1, 1 << 70):
        with pytest.raises(ValueError, match="bytes: expected None or a number"):
            module.set_memory_budget(wrong)
    with pytest.raises(TypeError, match="'str' object"):
        module.set_memory_budget("1GiB")
    with pytest.raises(ValueError, match="max_entries: expected"):
        module.record_memory_history("all", max_entries=-1)
    with pytest.raises(TypeError, match="function: expected something to call, got 3"):
        module.host_function(3)
    for wrong in ((), (108,), (-1, 2048), (1 << 40, 2048)):
        with pytest.raises(ValueError, match="'torch-cuda' needs the numbers"):
            module.set_random_layout("torch-cuda", *wrong)
    assert torch.rand(2, device=device).sum().item() > 0
