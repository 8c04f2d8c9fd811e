"""The levels of the native kernels for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_backbone.native.choice import kernels_in_use, load_library, survey_libraries, survey_library
from peltier_backbone.native.levels import processor_levels

from tests.support import tiers

# Of this processor, the fastest first.
LEVELS = tuple(level.name for level in processor_levels())

# torch leaves products of bfloat16 to oneDNN where the processor has AVX-512, and computes them itself elsewhere.
NEEDS_ONEDNN = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()),
    reason="oneDNN does not multiply bfloat16 on this processor",
)


def kernel_levels() -> tuple[str, ...]:
    """Those at which each kernel is tested: in the gate the fastest one, and the next one where the system may refuse
    the registers of AMX. Every level answers in `test_contract.py`; a change of the C files runs all tests at all."""
    return LEVELS[: 2 if LEVELS[0] == "amx" else 1] if tiers.is_gate() else LEVELS


def fastest_level() -> str:
    """The fastest one that serves here, whatever a trial would choose."""
    usable = [one.name for one in survey_libraries() if one.library is not None]
    assert usable, "every machine that runs the tests has native kernels"
    return usable[0]


def skip_unless_permitted(level: str) -> None:
    """Every level of the processor was built and is right; the operating system may refuse the registers of AMX."""
    reason = survey_library(level).reason
    if "does not permit" in reason:
        pytest.skip("this processor does not run this library")
    assert reason == ""


@contextmanager
def forced_level(level: str) -> Iterator[None]:
    """The block uses the kernels of `level`, or those of torch."""
    if level != "torch":
        skip_unless_permitted(level)
    with kernels_in_use(level):
        yield


def reloaded(backbone: Backbone) -> Backbone:
    """The same backbone, loaded with the kernels that are in use now."""
    library = load_library()
    return loaded(backbone.name, backbone.precision, "torch" if library is None else library.name)


@cache
def loaded(name: str, precision: str, kernels: str) -> Backbone:
    """A backbone in a precision, loaded once with kernels of a level or of torch."""
    with kernels_in_use(kernels):
        return load_backbone(name, dtype=precision)
