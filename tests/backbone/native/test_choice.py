"""The choice between the levels of the native kernels and torch."""

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.errors import BackboneError
from peltier_backbone.load import load_backbone
from peltier_backbone.native import choice, levels, trial
from peltier_backbone.native.choice import (
    LibraryState,
    choose_kernels,
    kernels_in_use,
    load_library,
    serving_library,
    slowdown,
    survey_libraries,
)
from peltier_backbone.native.example_layer import ExampleLayer
from peltier_backbone.native.trial import LayerTrial, try_layer

from tests.support.levels import LEVELS, fastest_level, forced_level

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Choices of other tests, and of these for others, do not count."""
    caches = (choice._choose, choice._library)
    for one in caches:
        one.cache_clear()
    yield
    for one in caches:
        one.cache_clear()


@pytest.mark.parametrize("level", LEVELS)
@torch.inference_mode()
def test_a_forced_level_computes_everything(level: str) -> None:
    """In each dtype of the kernels, and only inside the block."""
    with forced_level(level):
        found = [load_library(), *(serving_library(CPU, dtype) for dtype in (torch.float32, torch.bfloat16))]
        assert {one.name for one in found if one is not None} == {level}
        assert serving_library(CPU, torch.float64) is None
        assert choose_kernels(torch.float32).reason == f"the setting kernels is {level}"
    after = load_library()
    assert after is not None
    assert after.name == fastest_level()


@torch.inference_mode()
def test_torch_can_be_forced() -> None:
    """Then there is no library at all, also for int8."""
    with kernels_in_use("torch"):
        assert load_library() is None
        assert serving_library(CPU, torch.float32) is None
        assert choose_kernels(torch.bfloat16) == (None, "the setting kernels is torch")


def test_gradients_are_recorded_by_torch() -> None:
    """The kernels record none."""
    with forced_level(fastest_level()):
        assert serving_library(CPU, torch.float32) is None
        with torch.no_grad():
            assert serving_library(torch.device("meta"), torch.float32) is None
            assert serving_library(CPU, torch.float32) is load_library()


@pytest.mark.parametrize(
    ("kernels", "rule"),
    [
        ("avx1024", "kernels 'avx1024' are unknown; they are one of auto, amx, .*, neon, torch"),
        ("neon", "kernels 'neon' are of another machine; those of this one are amx, .*, plain"),
        ("amx", "kernels 'amx' cannot be used: this processor lacks amx_tile"),
        ("plain", "kernels 'plain' cannot be used: it was not built"),
    ],
)
def test_a_level_that_cannot_be_used_is_an_error(kernels: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason. The setting stays as it was."""
    monkeypatch.setattr(choice, "processor_flags", lambda: _flags_of("amx") - {"amx_tile"})
    monkeypatch.setattr(choice, "machine_levels", lambda: [one for one in levels.LEVELS if one.machine == "x86_64"])
    monkeypatch.setattr(choice, "survey_library", lambda level: LibraryState(level, reason="it was not built"))
    with pytest.raises(BackboneError, match=f"^{rule}$"):
        choice.use_kernels(kernels)
    assert choice._Process.kernels == "auto"


def _flags_of(level: str) -> frozenset[str]:
    return next(one.flags for one in levels.LEVELS if one.name == level)


@pytest.mark.parametrize(
    ("dtype", "native", "chosen"),
    [
        (torch.float32, 1.05, True),
        (torch.float32, 1.2, False),
        (torch.bfloat16, 1.2, True),
        (torch.bfloat16, 1.3, False),
    ],
    ids=str,
)
def test_the_faster_one_is_taken(dtype, native, chosen, monkeypatch, caplog):
    """For everything in a dtype. In bfloat16 torch prepares products for each number of tokens, so it must be faster by
    more. The log names both times, once."""
    monkeypatch.setattr(choice, "try_layer", lambda library, dtype: LayerTrial(native * 1e-3, 1e-3))
    caplog.set_level(logging.INFO)
    with kernels_in_use("auto"):
        found = choose_kernels(dtype)
        assert choose_kernels(dtype) is found
    assert (found.library is not None) == chosen
    level, precision = fastest_level(), str(dtype).removeprefix("torch.")
    times = f"a layer in {precision} takes {native:.2f} ms by {level}, 1.00 ms by torch"
    assert found.reason == times
    expected = [] if chosen else [f"torch computes in {precision}, not the native kernels: {times}"]
    assert [line for line in caplog.messages if "torch" in line] == expected


def test_a_library_that_cannot_be_used_is_left_out(monkeypatch, caplog):
    """The next one serves; the log names the first."""
    first, *others = survey_libraries()
    broken = LibraryState(first.name, reason="it is wrong")
    monkeypatch.setattr(choice, "survey_libraries", lambda: [broken, *others])
    found = load_library()
    assert found is others[0].library
    assert caplog.messages == [f"the native kernels {first.name} are left out: it is wrong"]


def test_a_machine_without_libraries_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Torch computes, and the log says that it is slower."""
    monkeypatch.setattr(choice, "survey_libraries", list)
    assert load_library() is None
    assert choose_kernels(torch.float32) == (None, "no native kernels can be used here")
    assert caplog.messages == ["there are no native kernels, so torch computes, which is slower on a CPU"]


# Loads torch's libraries so that none of their functions is visible to other libraries.
_WITHOUT_OPENMP = """
import ctypes, logging
ctypes.RTLD_GLOBAL = ctypes.RTLD_LOCAL
logging.basicConfig(format="%(message)s")
import torch
torch.set_num_threads(2)
from peltier_backbone.native.choice import choose_kernels, load_library
print(load_library().name, choose_kernels(torch.float32).library is not None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernels never have threads")
def test_kernels_without_threads_are_told_once() -> None:
    """They compute the same, several times as slowly."""
    done = subprocess.run([sys.executable, "-c", _WITHOUT_OPENMP], capture_output=True, text=True, check=True)
    level = done.stdout.split()[0]
    told = f"the native kernels {level} run in one thread: they do not find torch's OpenMP library"
    assert done.stderr.splitlines().count(told) == 1
    library = load_library()
    assert library is not None
    assert library.has_threads


def test_two_threads_have_one_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second check would give a second library, whose maps the first one does not read."""
    both, states = threading.Barrier(2), survey_libraries()

    def survey() -> list[LibraryState]:
        with suppress(threading.BrokenBarrierError):
            both.wait(timeout=0.1)  # passed only if the other thread surveys too
        return [replace(one) for one in states]

    surveys = Mock(side_effect=survey)
    monkeypatch.setattr(choice, "survey_libraries", surveys)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: load_library(), range(2))
    assert first is second
    assert surveys.call_count == 1


@pytest.mark.parametrize(("seconds", "num_rounds"), [(0.001, 5), (0.01, 3)])
def test_the_trial_is_short(seconds: float, num_rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After one call to prepare there are a few rounds, and no more than three where a layer takes long."""
    calls: list[ExampleLayer] = []
    monkeypatch.setattr(ExampleLayer, "by_torch", lambda layer: calls.append(layer))
    monkeypatch.setattr(trial, "time", SimpleNamespace(process_time=lambda: seconds * len(calls)))
    try_layer.cache_clear()
    assert try_layer(None, torch.float32).torch == pytest.approx(seconds)
    try_layer.cache_clear()
    assert len(calls) == 1 + num_rounds


def test_the_layers_of_the_trial_are_small() -> None:
    """One round in both dtypes takes about 40 ms of the processor; a busy machine may take several times as long."""
    assert slowdown(torch.bfloat16) > 0
    tried = [try_layer(load_library(), dtype) for dtype in (torch.float32, torch.bfloat16)]
    assert sum((one.native or 0) + one.torch for one in tried) < 0.2


def test_a_backbone_keeps_the_kernels_of_its_maps(bert: Backbone) -> None:
    """A stack is read by the library that packed it alone, so another setting later is safe, and answers the same."""
    row = bert.tokenizer.encode("a good film")
    with forced_level(LEVELS[-1]):
        other = load_backbone(bert.name)
    with torch.inference_mode(), forced_level(fastest_level()):
        packed = other.pack([row])
        torch.testing.assert_close(other.encode(packed), load_backbone(bert.name).encode(packed), atol=1e-5, rtol=1e-5)


def test_the_names_say_what_torch_computes(bert_directory: str) -> None:
    """With the reason, and which promise is left."""
    with kernels_in_use("torch"):
        names = load_backbone(str(bert_directory), dtype="int8").kernels
    assert names == {
        "linear": "int8-torch",
        "attention": "by-row",
        "level": "torch",
        "torch": "linear maps, attention, norms and adapters, because the setting kernels is torch",
        "answers": "equal within rounding in every batch",
    }
    with forced_level(fastest_level()):
        names = load_backbone(str(bert_directory)).kernels
    assert names == {
        "linear": "native",
        "attention": f"native-{fastest_level()}",
        "level": fastest_level(),
        "answers": "equal to the last bit in every batch",
    }
