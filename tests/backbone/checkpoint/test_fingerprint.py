"""The identity of a backbone."""

from dataclasses import replace

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.fingerprint import fingerprint

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)}


def test_order_and_layout_do_not_matter(bert: Backbone):
    """The same values give the same fingerprint however the dictionary and the memory are laid out."""
    turned = {"b": TENSORS["b"], "a": TENSORS["a"].t().contiguous().t()}
    assert fingerprint(bert.config, turned) == fingerprint(bert.config, TENSORS)


def test_everything_that_matters_is_in_it(bert: Backbone):
    """A value, a name, a shape, a dtype or a field of the configuration makes another fingerprint."""
    config = bert.config
    others = [
        fingerprint(config, TENSORS | {"b": torch.zeros(4, dtype=torch.bfloat16)}),
        fingerprint(config, {"a": TENSORS["a"], "c": TENSORS["b"]}),
        fingerprint(config, TENSORS | {"a": TENSORS["a"].view(3, 2)}),
        fingerprint(config, TENSORS | {"b": TENSORS["b"].view(torch.float16)}),
        fingerprint(replace(config, norm_eps=1e-5), TENSORS),
        fingerprint(replace(config, num_heads=2), TENSORS),
    ]
    assert len({fingerprint(config, TENSORS), *others}) == len(others) + 1


def test_minilm_has_its_published_identity(minilm: Backbone):
    """Adapters name this fingerprint: changing how it is computed orphans every artifact there is."""
    assert minilm.fingerprint == "sha256:1947cae7d3e6ce5e7ec8208b85a48838d2d6d4e22143dede69ec26927b7526bc"
