"""``torch.compile`` on the device: what its default backend does with graphs that are for it.

Inductor writes code for processors that it knows, and ours isn't one. Its graphs are differentiated ahead of time instead, and
their operators run one by one, as the backend ``aot_eager`` has it: a program that compiles its model runs as it is.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import torch

# What Inductor looks for in the module of a device that it can write code for.
ASKED_BY_INDUCTOR = ("Scheduling", "PythonWrapperCodegen", "CppWrapperCodegen", "WrapperFxCodegen")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Compile = Callable[..., Callable[..., Any]]


def register() -> None:
    """Takes graphs of the device from the default backend. Loads nothing: the compiler is loaded when something is compiled."""
    inductor = getattr(torch, "_TorchCompileInductorWrapper", None)
    if inductor is not None:
        inductor.__call__ = _by_operators(inductor.__call__)


def _by_operators(inductors: Compile) -> Compile:
    def compile(self: Any, graph: Any, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
        name = torch._C._get_privateuse1_backend_name()
        if not any(tensor.device.type == name for tensor in _tensors(graph, inputs)):
            return inductors(self, graph, inputs, **options)
        _warn(name)
        from torch._dynamo.backends.registry import lookup_backend

        return lookup_backend("aot_eager")(graph, inputs)

    return compile


def _tensors(graph: Any, inputs: Sequence[Any]) -> Iterator[torch.Tensor]:
    """All that a graph takes and makes: what is on the device may be made there."""
    values = list(inputs)
    if isinstance(graph, torch.nn.Module):
        values += [*graph.parameters(), *graph.buffers()]
        for module in graph.modules():
            if isinstance(module, torch.fx.GraphModule):
                values += [node.meta.get("example_value") for node in module.graph.nodes]
    return (leaf for leaf in torch.utils._pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor))


@cache
def _warn(name: str) -> None:
    warnings.warn(
        f"torch.compile: Inductor makes no code for {name}: the operators of its graphs run one by one, as with "
        'backend="aot_eager"; modes and options change nothing.',
        RuntimeWarning,
        stacklevel=2,
    )


@cache
def no_code() -> type:
    """What Inductor gets to write code with, where it wasn't asked by ``torch.compile``: something that says why it can't."""
    from torch._inductor.codegen.common import DeviceOpOverrides, register_device_op_overrides
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    name = torch._C._get_privateuse1_backend_name()
    register_device_op_overrides(name, DeviceOpOverrides())  # else it stumbles on their absence, and says no more than a name

    class NoCode(PythonWrapperCodegen):
        def __init__(self, *_arguments: Any) -> None:
            self.create()

        @staticmethod
        def create(*_arguments: Any) -> NoReturn:
            raise NotImplementedError(f'Inductor makes no code for {name}: torch.compile(..., backend="aot_eager") needs none')

    return NoCode
