"""A vendor's plugin: loaded by the program or named by the environment."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> str:
    """A plugin as small as can be, of kind "npu" with two devices."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("plugin") / "libsmall.so"
    source = ROOT / "crates/abi/tests/plugins/small.c"
    flags = ["-std=c11", "-fPIC", "-shared", "-I", str(ROOT / "include")]
    subprocess.run([compiler, *flags, str(source), "-o", str(library)], check=True)
    return str(library)


WORKS = """
    assert accelerator.device_count() == 2
    assert str(accelerator.current_accelerator()) == "npu"
    assert anyaccel.device("npu:1").index == 1
    assert anyaccel.tensor([1, 2, 3], device="npu:1").tolist() == [1, 2, 3]
"""


def test_a_plugin_is_loaded_by_its_path(script, small):
    code = f"""
    import anyaccel, pathlib
    from anyaccel import accelerator
    try:
        anyaccel.device("npu:0")
    except RuntimeError as error:
        assert "npu" in str(error)
    else:
        assert False
    assert anyaccel.load_plugin(pathlib.Path({small!r})) == "npu"
    {WORKS}
    """
    script(code, ANYACCEL_BACKEND="unset")


def test_a_plugin_is_named_by_the_environment(script, small):
    code = f"import anyaccel\n    from anyaccel import accelerator\n    {WORKS}"
    script("    " + code, ANYACCEL_BACKEND="unset", ANYACCEL_PLUGINS=small)


def test_what_is_no_plugin_is_refused_in_one_line(script, small, tmp_path):
    text = tmp_path / "text.so"
    text.write_text("no library")
    code = f"""
    import anyaccel
    for path, words in [("relative.so", "relative"), ("/no/such.so", "can't be read"), ({str(text)!r}, "no shared library")]:
        try:
            anyaccel.load_plugin(path)
        except ValueError as error:
            assert words in str(error) and "\\n" not in str(error), error
        else:
            assert False, path
    anyaccel.load_plugin({small!r})
    try:
        anyaccel.load_plugin({small!r})
    except ValueError as error:
        assert "loaded already" in str(error), error
    else:
        assert False
    """
    script(code, ANYACCEL_BACKEND="unset")


def test_it_is_too_late_once_the_runtime_has_been_used(script, small):
    code = f"""
    import anyaccel
    anyaccel.accelerator.device_count()
    try:
        anyaccel.load_plugin({small!r})
    except RuntimeError as error:
        assert "used already" in str(error), error
    else:
        assert False
    """
    script(code)
