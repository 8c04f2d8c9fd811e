"""LoRA pairs of other libraries as one part."""

import torch
from peltier_adapters.importers.shared.lora import LoraPair, create_lora
from peltier_adapters.spec.parts import LoraSpec
from peltier_backbone.load import Backbone


def test_blocks_below_the_first_pair_are_skipped(bert: Backbone):
    """A checkpoint that leaves the lower blocks alone is served from its first block on; gaps above that are zeros."""
    width = bert.config.hidden_size
    part = create_lora({("query", 1): LoraPair(torch.ones(2, width), torch.ones(width, 2))}, bert.config)
    assert isinstance(part.spec, LoraSpec)
    assert part.spec.skip == 1
    assert {name: tuple(tensor.shape) for name, tensor in part.tensors.items()} == part.spec.shapes(bert.config)
    assert part.tensors["down"].any(-1).any(-1).tolist() == [[True, False]]
