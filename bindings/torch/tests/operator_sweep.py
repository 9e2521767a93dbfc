"""Every operator of PyTorch's own list, on the device and on the CPU: results, derivatives, what is changed, what is refused.

    operator_sweep.py [--dtype float32] [--samples 8] [--report FILE] [NAME ...]

`test_operators.py` does a sample of it. The list is that of PyTorch's tests (`common_methods_invocations.op_db`), with its
inputs. Operators whose values are random or undefined are compared by sizes and types.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("ANYACCEL_BACKEND", "host")

import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_flatten, tree_map

# What is drawn, or what nobody wrote.
NO_VALUES = (
    "empty", "rand", "normal", "bernoulli", "multinomial", "uniform", "exponential", "geometric", "cauchy", "dropout", "rrelu",
    "fractional_max_pool", "gumbel", "svd_lowrank", "pca_lowrank",
)  # fmt: skip
# How long one operator may take, or PyTorch to load.
SECONDS = 600


def device() -> torch.device:
    return torch.device(torch._C._get_privateuse1_backend_name(), 0)


def has_values(name: str) -> bool:
    return not any(part in name for part in NO_VALUES)


def on_device(value: Any) -> Any:
    """The same input there, with what shares memory sharing it."""
    storages: dict[int, torch.Tensor] = {}

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            if leaf.is_meta:
                return leaf
            plain = leaf.detach()
            if leaf.layout != torch.strided or leaf.is_conj() or leaf.is_neg() or leaf._is_zerotensor():
                return plain.to(device()).requires_grad_(leaf.requires_grad)
            storage = plain.untyped_storage()
            key = storage._cdata
            if key not in storages:
                storages[key] = torch.empty(0, dtype=torch.uint8).set_(storage).to(device())
            there = torch.empty(0, dtype=leaf.dtype, device=device())
            there.set_(storages[key].untyped_storage(), leaf.storage_offset(), leaf.shape, leaf.stride())
            return there.requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.device) or isinstance(leaf, str) and leaf == "cpu":
            return device()
        return leaf

    return tree_map(move, value)


def here(value: Any) -> Any:
    return tree_map(lambda leaf: leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf, value)


def outcome(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return call(), None
    except Exception as error:
        return None, error


class Different(AssertionError):
    pass


def same(ours: Any, theirs: Any, values: bool, where: torch.device | None = None) -> None:
    for mine in (leaf for leaf in tree_flatten(ours)[0] if isinstance(leaf, torch.Tensor)):
        if mine.device != (where or device()):
            raise Different(f"a result is on {mine.device}")
    mine, other = tree_flatten(here(ours))[0], tree_flatten(here(theirs))[0]
    if len(mine) != len(other):
        raise Different(f"{len(mine)} results, not {len(other)}")
    for a, b in zip(mine, other, strict=True):
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                raise Different(f"{a.dtype} {list(a.shape)}, not {b.dtype} {list(b.shape)}")
            if values:
                assert_close(a, b, equal_nan=True, check_stride=False)
        elif isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
            raise Different(f"{type(a).__name__}, not {type(b).__name__}")
        elif values and a != b and not (a != a and b != b):
            raise Different(f"{a!r}, not {b!r}")


def with_contents(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor) and not leaf.is_meta]


def compare(call: Callable[..., Any], sample: Any, values: bool, backward: bool) -> str | None:
    """Nothing if both gave the same or both refused; else what the device did."""
    values = values and not sample.kwargs.get("dropout_p")
    args = (sample.input, sample.args, sample.kwargs)
    there = on_device(args)
    torch.manual_seed(1)
    theirs, refused = outcome(lambda: call(args[0], *args[1], **args[2]))
    torch.manual_seed(1)
    ours, error = outcome(lambda: call(there[0], *there[1], **there[2]))
    if refused is not None:
        return None if error is not None else f"the CPU refuses: {refused}"
    if error is not None:
        raise error
    # What makes tensors without being told where makes them on the CPU.
    told = any(isinstance(leaf, torch.Tensor | torch.device) for leaf in tree_flatten(there)[0])
    same(ours, theirs, values, None if told else torch.device("cpu"))
    same(with_contents(there), with_contents(args), values)
    if not backward:
        return None
    gradients = []
    for inputs, results in ((args, theirs), (there, ours)):
        results = sample.output_process_fn_grad(results)
        leaves = [x for x in tree_flatten(inputs)[0] if isinstance(x, torch.Tensor) and x.requires_grad]
        roots = [y for y in tree_flatten(results)[0] if isinstance(y, torch.Tensor) and y.requires_grad]
        if not leaves or not roots:
            return None
        weights = [torch.ones_like(y) for y in roots]
        gradients.append(outcome(lambda r=roots, l=leaves, w=weights: torch.autograd.grad(r, l, w, allow_unused=True)))
    (theirs, refused), (ours, error) = gradients
    if refused is None and error is not None:
        raise error
    if refused is not None:
        return None if error is not None else f"the CPU refuses backward: {refused}"
    same(ours, theirs, values)
    return None


def ways(op: Any, dtype: torch.dtype, count: int) -> Iterator[tuple[str, Callable[[], str | None]]]:
    """What is done with an operator, each with a name."""
    values = has_values(op.name)
    backward = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=backward))
    step = max(1, len(samples) // count)
    chosen = samples[::step][:count]
    for i, sample in enumerate(chosen):
        yield f"call {i * step}", lambda s=sample: compare(op, s, values, backward)
    plain = list(op.sample_inputs("cpu", dtype, requires_grad=False))[::step][: max(1, count // 2)]
    for i, sample in enumerate(plain):
        if op.inplace_variant is not None and not sample.broadcasts_input:

            def in_place(x: Any, *args: Any, **kwargs: Any) -> Any:
                x = tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, x)
                return op.inplace_variant(x, *args, **kwargs), x

            yield f"in place {i * step}", lambda s=sample: compare(in_place, s, values, False)
        if op.supports_out:

            def into(x: Any, *args: Any, **kwargs: Any) -> Any:
                like = op(x, *args, **kwargs)

                # Not contiguous, so that what lies between must be left alone.
                def room(t: Any) -> Any:
                    if not isinstance(t, torch.Tensor):
                        return t
                    return torch.ones((*t.shape, 2), dtype=t.dtype, device=t.device)[..., 1]

                out = tree_map(room, like)
                op(x, *args, **kwargs, out=out)
                return out

            yield f"out {i * step}", lambda s=sample: compare(into, s, values, False)
    if op.error_inputs_func is not None:
        for i, wrong in enumerate(list(op.error_inputs("cpu"))[:count]):
            yield f"wrong {i}", lambda s=wrong.sample_input: compare(op, s, False, False)


def check(op: Any, dtype: torch.dtype, count: int) -> tuple[int, list[str]]:
    """How many ways were tried, and what is wrong."""
    tried, wrong = 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for way, run in ways(op, dtype, count):
            tried += 1
            try:
                text = run()
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
            if text:
                wrong.append(f"{way}: {text}")
    return tried, wrong


def operators(dtype: torch.dtype) -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if dtype in op.supported_dtypes("cpu")]


def full_name(op: Any) -> str:
    return op.name + (f":{op.variant_test_name}" if op.variant_test_name else "")


def work(dtype: torch.dtype, count: int, names: list[str], start: int) -> None:
    for index, op in enumerate(operators(dtype)):
        name = full_name(op)
        if index < start or names and name not in names and op.name not in names:
            continue
        print(json.dumps({"begin": index, "name": name}), flush=True)
        began = time.monotonic()
        tried, wrong = check(op, dtype, count)
        seconds = round(time.monotonic() - began, 2)
        print(json.dumps({"end": index, "name": name, "tried": tried, "wrong": wrong, "seconds": seconds}), flush=True)
    print(json.dumps({"done": True}), flush=True)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--dtype", default="float32")
    ask.add_argument("--samples", type=int, default=8)
    ask.add_argument("--report", type=Path)
    ask.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    ask.add_argument("names", nargs="*")
    given = ask.parse_args()
    dtype = getattr(torch, given.dtype)
    if given.worker is not None:
        work(dtype, given.samples, given.names, given.worker)
        return

    # In another process, which may crash or hang.
    start, counts, report = 0, collections.Counter(), []
    while True:
        options = ["--dtype", given.dtype, "--samples", str(given.samples), "--worker", str(start), *given.names]
        child = subprocess.Popen([sys.executable, __file__, *options], stdout=subprocess.PIPE, text=True)
        now, done = None, False
        timer = threading.Timer(SECONDS, child.kill)
        timer.start()
        for line in child.stdout:
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if "begin" in said:
                now = said
                timer.cancel()
                timer = threading.Timer(SECONDS, child.kill)
                timer.start()
            elif "end" in said:
                counts["operators"] += 1
                counts["tried"] += said["tried"]
                counts["wrong"] += len(said["wrong"])
                counts["operators with wrong"] += bool(said["wrong"])
                report.append(said)
                for text in said["wrong"]:
                    print(f"{said['name']}: {' '.join(text.split())[:300]}", flush=True)
                now = None
            done = done or "done" in said
        timer.cancel()
        code = child.wait()
        if done:
            break
        if now is None:
            raise SystemExit(f"the worker ended with {code}")
        kind = "hang" if code == -9 else "crash"
        counts[kind] += 1
        report.append({"name": now["name"], kind: code})
        print(f"{now['name']}: {kind} ({code})", flush=True)
        start = now["begin"] + 1
    print(dict(counts))
    if given.report:
        given.report.write_text("\n".join(json.dumps(one) for one in report) + "\n")


if __name__ == "__main__":
    main()
