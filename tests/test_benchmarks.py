"""The benchmarks as a whole: the list of them is complete, and they use public names only."""

import ast
import re
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from peltier_adapters.presets.baselines import find_method
from peltier_backbone.native.levels import processor_levels
from peltier_training.sweep.description import create_description, read_description

from benchmarks.common.harness import by_turns, median_ratio, percentile
from benchmarks.common.libraries import kept
from benchmarks.common.ports import ReservedPort

FOLDER = Path(__file__).parents[1] / "benchmarks"
FILES = sorted(FOLDER.rglob("*.py"))
GRIDS = sorted(FOLDER.glob("grids/*.toml"))


def test_the_readme_names_every_benchmark() -> None:
    """By file, and nothing that is gone."""
    text = (FOLDER / "README.md").read_text()
    named = set(re.findall(r"`((?:[a-z]+/)?[a-z0-9_]+\.py)`", text))
    assert {path.name for path in FOLDER.glob("*.py")} <= named
    assert all((FOLDER / name).is_file() for name in named)


def test_a_class_has_a_name_of_its_own() -> None:
    """No two modules of the benchmarks define classes of one name, except for their private ones."""
    names = [name for path in FILES for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(), re.MULTILINE)]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_a_grid_is_a_sweep(path: Path) -> None:
    """`peltier sweep` reads it, and knows its methods."""
    for name, method in create_description(read_description(path)).methods.items():
        find_method(method.preset or name)


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules can be imported as the benchmarks import each other, and are forgotten after the test."""
    for folder in (FOLDER / "gpu", FOLDER / "peers", FOLDER):
        monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")) or name == "common":
            del sys.modules[name]


@pytest.mark.usefixtures("harness")
def test_every_name_that_a_benchmark_imports_exists() -> None:
    """In Peltier's packages and in the harness, also where a script of another library imports it."""
    missing = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and re.match(r"peltier_|common\.", node.module or ""):
                module = import_module(str(node.module))
                missing += [f"{path.name}: {one.name}" for one in node.names if not _has(module, one.name)]
    assert missing == []


def _has(module: ModuleType, name: str) -> bool:
    """A package has its modules too, imported or not."""
    return hasattr(module, name) or (hasattr(module, "__path__") and find_spec(f"{module.__name__}.{name}") is not None)


@pytest.mark.slow
@pytest.mark.usefixtures("harness")
def test_every_benchmark_has_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them in this process, which imports each."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    for path in FILES:
        if "create_parser(__doc__" in path.read_text():
            monkeypatch.setattr(sys, "argv", [path.name, "--help"])
            with pytest.raises(SystemExit) as end:
                runpy.run_path(str(path), run_name="__main__")
            assert end.value.code == 0, path


def test_measurements_take_turns() -> None:
    """Every round has each of them once, and the warm-up does not count."""
    calls: list[str] = []

    def measure(name: str) -> int:
        calls.append(name)
        return len(calls)

    found = by_turns({name: lambda name=name: measure(name) for name in "ab"}, 2)
    assert "".join(calls) == "ababab"
    assert found == {"a": [3, 5], "b": [4, 6]}


def test_a_ratio_is_of_one_round() -> None:
    """The median of the rounds' ratios, not the ratio of medians."""
    assert median_ratio([2.0, 30.0, 4.0], [1.0, 10.0, 4.0]) == 2.0


def test_a_percentile_is_one_of_the_values() -> None:
    """The 100th is the largest, and none has no percentile."""
    assert [percentile([3.0, 1.0, 2.0], percent) for percent in (0, 50, 90, 100)] == [1.0, 2.0, 3.0, 3.0]
    assert percentile([], 50) != percentile([], 50)


def test_nothing_is_taken_from_the_tests() -> None:
    """A benchmark runs where only the sources are."""
    assert not [path.name for path in FILES if re.search(r"^\s*(from|import) tests\b", path.read_text(), re.MULTILINE)]


@pytest.mark.slow
def test_no_private_attribute_of_another_object_is_read() -> None:
    """Its own (`self._x`, or `moved._x` of the same class) are not another's. torch has settings of
    compilation with such names, and `gpu/interpreter.py` replaces two functions of Triton's interpreter."""
    found = []
    for path in FILES:
        text = path.read_text()
        own = set(re.findall(r"\bself\.(_[a-z]\w*)", text))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr) and node.attr not in own:
                found.append(f"{path.name}:{node.lineno} {node.attr}")
    operators = {" _inductor"}
    replaced = {" _patch_lang", " _get_np_dtype"}
    assert [one for one in found if not one.endswith((" _asdict", " _fields", *operators, *replaced))] == []


def test_a_kept_folder_is_filled_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversion that fails leaves nothing, other contents have another folder, and a second call fills nothing."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise AssertionError

    with pytest.raises(AssertionError):
        kept("model", b"weights", fail)
    assert list((tmp_path / "foreign").iterdir()) == []
    folder = kept("model", b"weights", lambda folder: (folder / "whole").touch())
    assert [path.name for path in folder.iterdir()] == ["whole"]
    assert kept("model", b"weights", fail) == folder
    assert kept("model", b"other weights", lambda folder: None) != folder


def test_a_reserved_port_is_of_one_server() -> None:
    """Nobody else reserves it, and a server can listen on it again and again."""
    with ReservedPort() as port:
        with pytest.raises(OSError, match="Address already in use"):
            ReservedPort(port.number)
        for _ in range(2):
            with socket.create_server(("127.0.0.1", port.number)) as server:
                socket.create_connection(server.getsockname()).close()


@pytest.mark.slow
@pytest.mark.skipif("avx2" not in {one.name for one in processor_levels()}, reason="needs a processor with AVX2")
def test_a_benchmark_holds_torch_and_the_kernels_to_a_level() -> None:
    """The process starts again with the variables of all libraries, and keeps its command line."""
    program = (
        "import sys, torch\n"
        "from common.forced import hold_process\n"
        "from peltier_backbone.native.choice import choose_kernels\n"
        "hold_process('avx2')\n"
        "print(torch.backends.cpu.get_cpu_capability(), choose_kernels(torch.float32).name, *sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, "--rounds", "3"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["AVX2", "avx2", "--rounds", "3"]
