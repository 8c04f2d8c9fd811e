"""The parameters of each part are counted."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.spec.parts import Parts, count_parameters
from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.weights import build_bert
from peltier_backbone.checkpoint.weights import Weights
from peltier_backbone.linear.linear import PlainLinear
from peltier_backbone.t5.weights import build_t5, canonical_t5
from peltier_training.models.model import TrainableAdapter
from peltier_training.report.cost import ParameterCounts
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel, T5Config, T5ForConditionalGeneration

from tests.support.published_counts import COMPACTER, CONFIGS, FILES, PUBLISHED, Published

FindBackbone = Callable[[str], Backbone]
META = torch.device("meta")
# What a tuned output layer of t5-base adds (docs/methods.md#vocabulary), and the percentages of Compacter's Table 7.
OUTPUT_LAYER = 32_100 * 768
TABLE_7 = {
    "t5-base-houlsby": 11.893,
    "t5-base-pfeiffer": 11.488,
    "t5-base-adapterdrop": 11.555,
    "t5-base-lowrank": 11.133,
    "t5-base-bitfit": 11.187,
    "t5-base-phm,n=4": 11.301,
    "t5-base-phm,n=8": 11.221,
    "t5-base-phm,n=12": 11.240,
    "t5-base-compacter,n=4": 11.133,
    "t5-base-compacter++,n=4": 11.108,
}


def shapes_of(name: str, like: Backbone) -> Backbone:
    """The published backbone `name` with shapes in place of weights."""
    config, directory = CONFIGS[name], Path(name)
    own = {key: value for key, value in FILES[name].items() if key != "model_type"}
    with META:
        match config.family:
            case "t5":
                whole = T5ForConditionalGeneration(T5Config(**own))
            case "roberta":
                whole = RobertaModel(RobertaConfig(**own), add_pooling_layer=False)
            case _:
                whole = BertModel(BertConfig(**own))
        tensors = {name: weight.detach() for name, weight in whole.named_parameters()}
        if config.generates:
            model = build_t5(config, Weights(canonical_t5(tensors, config, directory), directory), PlainLinear)
        else:
            model = build_bert(config, Weights(tensors, directory), PlainLinear)
    return replace(like, name=name, config=config, model=model, device=META)


@pytest.fixture(scope="module")
def find_backbone(bert: Backbone) -> FindBackbone:
    """A published backbone by its name, made once."""
    return cache(lambda name: shapes_of(name, bert))


def parts_of(row: Published) -> Parts:
    config, preset = CONFIGS[row.backbone], find_preset(row.preset)
    return preset.compose(preset.settings(row.overrides, config), config, outputs=2)


@pytest.mark.parametrize("row", PUBLISHED, ids=str)
def test_published_counts(row: Published, find_backbone: FindBackbone):
    """What an adapter serves with and what its optimizer had are the counts of docs/methods.md#counts, as a report of
    a run on that backbone says them; only an encoder's head comes on top of what was trained."""
    backbone, parts = find_backbone(row.backbone), parts_of(row)
    settings = find_preset(row.preset).settings(row.overrides, backbone.config)
    with META:
        model = TrainableAdapter(backbone, parts, settings, seed=0)
    found = ParameterCounts.create(parts, backbone.config, model)
    head = count_parameters(parts, backbone.config, head=True) - found.total.parameters
    assert found.total.parameters == row.served
    assert found.trained.parameters - head == (row.served if row.trained is None else row.trained)
    assert not any(parameter.device.type != "meta" for parameter in model.parameters())


@pytest.mark.parametrize("row", [row for row in COMPACTER if str(row) in TABLE_7], ids=str)
def test_the_output_layers_share(row: Published):
    """Table 7's percentages are our counts and the tied output layer over the model with its vocabulary cropped."""
    config = CONFIGS[row.backbone]
    counted = count_parameters(parts_of(row), config) + OUTPUT_LAYER
    assert config.vocab_size * config.hidden_size == OUTPUT_LAYER
    assert 100 * counted / config.num_parameters == pytest.approx(TABLE_7[str(row)], abs=5e-4)
