"""The layers of a model as the kernels read them."""

from pathlib import Path

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_backbone.native.library import Library
from peltier_backbone.native.rows import NO_OPS
from peltier_backbone.native.stack import NativeStack
from peltier_backbone.t5.native_rows import place_encoder
from torch import Tensor

from tests.support.levels import fastest_level, forced_level, reloaded

LENGTHS = (3, 1, 5)


def _states(backbone: Backbone) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(sum(LENGTHS), backbone.config.hidden_size, generator=generator)


def _encoder(backbone: Backbone) -> NativeStack:
    assert backbone.stacks is not None
    return backbone.stacks.encoder


def _run(backbone: Backbone, stack: NativeStack, x: Tensor) -> Tensor:
    assert isinstance(stack.packed_by, Library)
    return stack.packed_by.run_stack(stack, x, place_encoder(LENGTHS, backbone.t5.encoder.bias), NO_OPS)


@pytest.fixture
def native_t5(t5: Backbone) -> Backbone:
    """With layers for the kernels."""
    with forced_level(fastest_level()):
        return reloaded(t5)


@torch.inference_mode()
def test_parts_after_each_other_are_the_whole(native_t5: Backbone) -> None:
    """The final norm follows the last one."""
    stack, x = _encoder(native_t5), _states(native_t5)
    whole = _run(native_t5, stack, x)
    for part in (stack.part(0, 1), stack.part(1, stack.layout.count)):
        x = _run(native_t5, part, x)
    assert torch.equal(x, whole)


def test_layers_with_biases_of_their_own_are_not_divided(umt5_directory: Path) -> None:
    """The second layer of umT5 would read the biases of the first."""
    with forced_level(fastest_level()):
        backbone = load_backbone(str(umt5_directory))
    with pytest.raises(AssertionError, match="biases of their own"):
        _encoder(backbone).part(1, 2)


@torch.inference_mode()
def test_states_may_be_columns_of_wider_ones(native_t5: Backbone) -> None:
    """The kernels copy them in one piece."""
    stack, x = _encoder(native_t5), _states(native_t5)
    wide = torch.cat((x, torch.full_like(x, 9.0)), 1)
    assert torch.equal(_run(native_t5, stack, wide[:, : x.shape[1]]), _run(native_t5, stack, x))
