"""Tensors of other libraries as one part."""

from pathlib import Path

import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.imported import grown, stacked
from peltier_adapters.importers.shared.parts import LoraPair, create_lora, lora_modules, take_pair
from peltier_adapters.spec.parts import LoraSpec
from peltier_backbone.backbone import Backbone


def test_blocks_below_the_first_pair_are_skipped(bert: Backbone):
    """The part begins at the first block with a pair; blocks without pairs above it are zeros."""
    width = bert.config.hidden_size
    part = create_lora({("query", 1): LoraPair(torch.ones(2, width), torch.ones(width, 2))}, bert.config)
    assert isinstance(part.spec, LoraSpec)
    assert part.spec.skip == 1
    assert {name: tuple(tensor.shape) for name, tensor in part.tensors.items()} == part.spec.shapes(bert.config)
    assert part.tensors["down"].any(-1).any(-1).tolist() == [[True, False]]


def test_a_module_of_several_maps_has_one_pair(modernbert: Backbone):
    """Query, key and value share the down map, and so do both halves of a gated layer; each map has its own columns."""
    config = modernbert.config
    width, inner, rank = config.hidden_size, config.intermediate_size, 2
    modules = {"layers.0.attn.Wqkv": 3 * width, "layers.0.mlp.Wi": 2 * inner}
    tensors = {f"{module}.a": torch.randn(rank, width) for module in modules}
    tensors |= {f"{module}.b": torch.randn(after, rank) for module, after in modules.items()}
    checkpoint, places = Checkpoint(tensors, Path("pairs")), lora_modules(config)
    pairs = {
        places[module]: take_pair(checkpoint, (f"{module}.a", f"{module}.b"), places[module][0], config)
        for module in modules
    }
    part = create_lora(pairs, config)
    assert isinstance(part.spec, LoraSpec)
    assert part.spec.targets == ("query", "key", "value", "intermediate")
    for module, suffix in zip(modules, ("", ".intermediate"), strict=True):
        down, up = (part.tensors[f"{name}{suffix}"][:, 0] for name in ("down", "up"))
        expected = tensors[f"{module}.b"] @ tensors[f"{module}.a"]
        torch.testing.assert_close(torch.cat(list(down @ up), -1), expected.T)


def test_what_is_smaller_gets_zeros_behind_it() -> None:
    """Places without a tensor are zeros too."""
    whole = stacked({(1,): torch.ones(2, 1)}, (2,), (3, 2))
    assert whole.tolist() == [[[0, 0], [0, 0], [0, 0]], [[1, 0], [1, 0], [0, 0]]]


def test_what_is_larger_is_refused() -> None:
    """No dimension is cut."""
    with pytest.raises(AdapterError, match=r"of shape \[2, 5\] does not fit into \[3, 4\]"):
        grown(torch.ones(2, 5), 3, 4)
