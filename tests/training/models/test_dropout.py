"""Dropout in the frozen backbone is where transformers' models have it in training."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.parts import lower
from peltier_adapters.presets.presets import find_preset
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.text.packing import Encoded
from peltier_training.models.dropout import Dropout, DropoutAdaptation
from peltier_training.models.model import HeadedAdapter
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, T5ForConditionalGeneration

TEXTS = ("a good film", "bad", "the plot is very very bad and the actor too")
RATE = 0.1
# DistilBERT has none after its attention, and ModernBERT other places.
ENCODERS = ("bert", "roberta", "electra")


@pytest.fixture
def scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each dropout multiplies by 1.5 and leaves out nothing, so that two implementations can be compared."""

    def scale(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return 1.5 * x if training and p else x

    monkeypatch.setattr(F, "dropout", scale)


def adapt(backbone: Backbone, lengths: Any) -> DropoutAdaptation:
    """The adaptation of rows without an adapter."""
    return DropoutAdaptation(backbone, [AdapterGroup(len(lengths), None)], lengths, RATE)


def encode(backbone: Backbone) -> list[Encoded]:
    return [backbone.tokenizer.encode(text, max_tokens=32) for text in TEXTS]


@pytest.mark.usefixtures("scaled")
@pytest.mark.parametrize("family", ENCODERS)
def test_an_encoder_has_it_where_transformers_has_it(family: str, request: pytest.FixtureRequest):
    """Without dropout of attention weights, which transformers has too."""
    backbone: Backbone = request.getfixturevalue(family)
    config = AutoConfig.from_pretrained(backbone.name, attention_dropout=0.0, attention_probs_dropout_prob=0.0)
    whole = AutoModel.from_pretrained(backbone.name, config=config, dtype=torch.float32).train()
    for row in encode(backbone):
        packed = backbone.pack([row])
        found = backbone.bert(packed, adapt(backbone, packed.lengths))
        with torch.no_grad():
            wanted = whole(packed.ids[None]).last_hidden_state[0]
        torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.usefixtures("scaled")
@pytest.mark.parametrize("family", ["t5", "t5_gated"])
def test_a_t5_has_it_where_transformers_has_it(family: str, request: pytest.FixtureRequest):
    """Without that of attention weights, of inner states and of the decoder's embeddings. The last one, before the
    output layer, is the output's."""
    backbone: Backbone = request.getfixturevalue(family)
    whole = T5ForConditionalGeneration.from_pretrained(backbone.name, dtype=torch.float32).train()
    whole.decoder.dropout.p = 0.0
    for name, module in whole.named_modules():
        if name.endswith("Attention"):
            module.dropout = 0.0
        if name.endswith("DenseReluDense"):
            module.dropout.p = 0.0
    targets = [0, 5, 6, 7]
    for row in encode(backbone):
        packed, model = backbone.pack([row]), backbone.t5
        encoder = adapt(backbone, packed.lengths)
        memory = model.project_kv(packed, model.encode(packed, encoder), encoder)
        nodes = Targets.create([targets], None, backbone.device)
        found = model.logits(model.decode(nodes, memory, adapt(backbone, [1] * len(targets))))
        with torch.no_grad():
            wanted = whole(input_ids=packed.ids[None], decoder_input_ids=torch.tensor([targets])).logits[0]
        torch.testing.assert_close(found, wanted[:, : found.shape[1]], atol=2e-4, rtol=1e-4)


def random_tensors(shapes: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.randn_like(tensor) for name, tensor in shapes().items()}


@pytest.mark.parametrize("preset", ["houlsby", "pfeiffer", "adamix", "lora", "unipelt-apl"])
def test_an_adapter_comes_before_it(bert: Backbone, preset: str, monkeypatch: pytest.MonkeyPatch):
    """Where dropout leaves nothing of the sub-layers, nothing is left of their adapters."""
    monkeypatch.setattr(F, "dropout", lambda x, p: torch.zeros_like(x))
    settings = find_preset(preset).settings({}, bert.config)
    parts = find_preset(preset).compose(settings, bert.config, outputs=2)
    model = HeadedAdapter(bert, parts, settings, seed=0)
    program = lower(parts, random_tensors(model.merged), bert)
    packed = bert.pack(encode(bert))
    group = AdapterGroup(len(TEXTS), program)
    with torch.no_grad():
        adapted = bert.bert(packed, DropoutAdaptation(bert, [group], packed.lengths, RATE))
        bare = bert.bert(packed, adapt(bert, packed.lengths))
    assert torch.equal(adapted, bare)


def test_a_pass_in_training_has_it_and_an_evaluation_has_not(bert: Backbone):
    """`Dropout.backbone` is a rate of its own beside that of the output."""
    settings = find_preset("lora").settings({}, bert.config)
    parts = find_preset("lora").compose(settings, bert.config, outputs=2)
    packed = bert.pack(encode(bert))
    model = HeadedAdapter(bert, parts, settings, seed=0, dropout=Dropout(backbone=0.5))
    assert not torch.equal(model(packed), model(packed))
    model.eval()
    assert torch.equal(model(packed), model(packed))
