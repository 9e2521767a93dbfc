"""What the documentation shows is true."""

import doctest
import pathlib
import re

import pytest

import anyaccel
from anyaccel import accelerator


def documented():
    modules = (anyaccel, anyaccel.random, accelerator, accelerator.memory, accelerator.random, accelerator.graphs, accelerator._utils)
    for module in modules:
        yield module.__name__, module.__doc__
        for name, value in vars(module).items():
            if not name.startswith("__") and callable(value):
                yield f"{module.__name__}.{name}", value.__doc__
                if isinstance(value, type):
                    for member, inner in vars(value).items():
                        yield f"{module.__name__}.{name}.{member}", getattr(inner, "__doc__", None)


def test_every_public_name_is_documented():
    public = [(name, doc) for name, doc in documented() if not name.rpartition(".")[2].startswith("_")]
    assert len(public) > 200 and not [name for name, doc in public if not doc]


EXAMPLES = {doc: name for name, doc in documented() if doc and ">>>" in doc}


@pytest.mark.parametrize("doc", EXAMPLES, ids=EXAMPLES.values())
def test_examples(doc):
    test = doctest.DocTestParser().get_doctest(doc, {}, EXAMPLES[doc], None, 0)
    output = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, out=output.append)
    assert runner.failures == 0, "".join(output)


def test_there_are_examples():
    assert len(EXAMPLES) >= 18


def blocks(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def readmes():
    here = pathlib.Path(__file__).resolve().parent.parent
    return [path for path in (here / "README.md", here.parent / "README.md") if path.exists()]


@pytest.mark.parametrize("path", readmes(), ids=lambda path: path.parent.name)
def test_readme_tour(script, path):
    found = blocks(path.read_text())
    assert found
    for block in found:
        assert len(block.splitlines()) <= 10
        assert script(block)


def test_help_reads_well():
    import pydoc

    for value in (accelerator, accelerator.synchronize, anyaccel.Stream, anyaccel.Tensor, accelerator.Graph):
        text = pydoc.render_doc(value, renderer=pydoc.plaintext)
        assert len(text) > 100
