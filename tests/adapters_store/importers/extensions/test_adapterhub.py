from typing import Any

import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.extensions.adapterhub import read_adapterhub
from peltier_backbone.backbone import Backbone

from tests.adapters_store.importers.conftest import SaveAdapterHub

PREFIX = {"architecture": "prefix_tuning", "prefix_length": 4, "bottleneck_size": 8}
PFEIFFER = {"output_adapter": True, "reduction_factor": 6, "non_linearity": "relu", "original_ln_before": True}
QUERY = "bert.encoder.layer.0.attention.self.query.loras.intents"
SEVENTH = QUERY.replace("layer.0", "layer.7")
NO_LORA: dict[str, torch.Tensor | None] = {f"{QUERY}.lora_A": None, f"{QUERY}.lora_B": None}


@pytest.mark.parametrize(("version", "scale"), [("adapters.1.0.1", 1), ("adapters.1.1.0", 4), ("3.2.1", 4)])
def test_lora_of_early_versions_has_the_scale_it_was_trained_with(version, scale, save_adapterhub, bert):
    """`adapters` before 1.1 scaled by 1 for any alpha / r; later versions, and adapter-transformers, by alpha / r."""
    b = torch.ones(bert.config.hidden_size, 2)
    foreign = read_adapterhub(save_adapterhub({f"{QUERY}.lora_B": b}, version=version), bert)
    assert torch.equal(foreign.tensors["lora.up"][0, 0], scale * b.T)


def _bottleneck(width: int = 48, **others: torch.Tensor) -> dict[str, torch.Tensor | None]:
    """The tensors of a bottleneck of 8 in place of the LoRA."""
    own = "bert.encoder.layer.0.output.adapters.intents"
    maps = {"adapter_down.0": torch.nn.Linear(width, 8), "adapter_up": torch.nn.Linear(8, width)}
    tensors = {
        f"{own}.{name}.{kind}": one.detach() for name, map_ in maps.items() for kind, one in map_.named_parameters()
    }
    return NO_LORA | tensors | {f"{own}.{name}": one for name, one in others.items()}


def _prefix(length: int) -> dict[str, Any]:
    name = "bert.prefix_tuning.prefix_tunings.intents.self_prefix.control_trans"
    config = {"architecture": "prefix_tuning", "flat": True, "prefix_length": length}
    return {"tensors": NO_LORA | {name: torch.randn(10 * 6 * 48)}, "config": config}


FIRST = PFEIFFER | {"leave_out": [1, 2]}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"model_type": "roberta"}, "model_type is 'roberta'; this backbone's is 'bert'"),
        ({"hidden_size": 768}, "hidden_size is 768; this backbone's is 48"),
        ({"frozen": [1]}, r"frozen is \[1\], which this importer does not know"),
        ({"name": None}, "name is None; it must be the adapter's name"),
        ({"config": "lora"}, "config is 'lora'; it must be an adapter's settings"),
        ({"config": {"architecture": "union", "configs": []}}, "it must be an adapter's settings"),
        ({"config": {"architecture": "reft"}}, "architecture 'reft' is not supported; it is one of bottleneck, lora"),
        ({"config": {"architecture": ["lora"]}}, r"architecture \['lora'\] is not supported"),
        ({"config": {"architecture": "prompt_tuning"}}, "AdapterHub adds a soft prompt after an encoder's emb"),
        ({"config": {"architecture": "union", "configs": [{}, {}]}}, "'bottleneck' is not supported twice"),
        ({"settings": {"use_dora": True}}, "use_dora is true, which is not supported"),
        ({"settings": {"rank_schedule": "cosine"}}, 'rank_schedule is "cosine", which this importer does not know'),
        ({"settings": {"alpha": "two"}}, "alpha is 'two'; it must be a number"),
        (
            {"tensors": {f"{QUERY}.lora_A": torch.ones(2, 32)}},
            rf"{QUERY[5:]}.lora_A' has shape \[2, 32\]; .* promises \[2, 48\]",
        ),
        (
            {"tensors": {f"{QUERY}.lora_A": torch.ones(1, 48)}},
            rf"{QUERY[5:]}.lora_A' has shape \[1, 48\]; .* promises \[2, 48\]",
        ),
        ({"tensors": {f"{QUERY}.lora_A": None}}, f"has no tensor '{QUERY[5:]}.lora_A', which"),
        ({"tensors": {f"{QUERY}.lora_B": None}}, f"has no tensor '{QUERY[5:]}.lora_B', which"),
        ({"tensors": {f"{SEVENTH}.lora_A": torch.ones(2, 48)}}, "has tensor .*layer.7.* does not promise"),
        # A bottleneck is neither cut nor padded, even if the settings do not contain the width.
        ({"tensors": _bottleneck(96), "hidden_size": None, "config": FIRST}, r"shape \[8, 96\]; .* promises \[8, 48\]"),
        ({"tensors": _bottleneck(24), "hidden_size": None, "config": FIRST}, r"shape \[8, 24\]; .* promises \[8, 48\]"),
        (
            {"tensors": _bottleneck(scaling=torch.ones(5)), "config": FIRST | {"scaling": "channel"}},
            r"scaling' has shape \[5\]; .* promises \[48\]",
        ),
        (_prefix(7), r"has shape \[2880\]; .* promises \[2016\]"),
        (_prefix(600), r"has shape \[2880\]; .* promises \[172800\]"),
    ],
)
def test_what_cannot_be_served_is_refused(given, sentence, save_adapterhub, bert):
    """Other models, settings that change the answers, and tensors that are not those of the settings."""
    with pytest.raises(AdapterError, match=sentence):
        read_adapterhub(save_adapterhub(**given), bert)


@pytest.mark.parametrize("name", ["output", "0", "query", "self", "layer", "loras", "lora_A"])
def test_an_adapter_may_be_called_as_a_module_is(name: str, save_adapterhub: SaveAdapterHub, bert: Backbone) -> None:
    """Only the name below `loras` is replaced, not an equal one elsewhere in a tensor's name."""
    own = f"bert.encoder.layer.0.attention.self.query.loras.{name}"
    a, b = torch.randn(2, bert.config.hidden_size), torch.randn(bert.config.hidden_size, 2)
    tensors = NO_LORA | {f"{own}.lora_A": a, f"{own}.lora_B": b}
    foreign = read_adapterhub(save_adapterhub(tensors, name=name), bert)
    assert torch.equal(foreign.tensors["lora.down"][0, 0], a.T)


@pytest.mark.parametrize(
    ("family", "settings", "sentence"),
    [
        ("distilbert", PFEIFFER, "bottlenecks of AdapterHub on a DistilBERT are not supported"),
        ("distilbert", PREFIX, "a prefix of AdapterHub on a distilbert is not supported"),
        ("deberta", PREFIX, "a prefix of AdapterHub on a deberta-v2 is not supported"),
        (
            "deberta",
            {"architecture": "lora", "attn_matrices": ["q", "v"]},
            r'attn_matrices is \["q", "v"\], which is not',
        ),
        ("bert", PFEIFFER | {"reduction_factor": "4"}, "reduction_factor of layer 0 is '4'; it must be a number above"),
    ],
)
def test_adapters_that_a_family_does_not_have_are_refused(family, settings, sentence, save_adapterhub, request):
    """The error names the setting, and not the tensors that BERT would have."""
    backbone: Backbone = request.getfixturevalue(family)
    with pytest.raises(AdapterError, match=sentence):
        read_adapterhub(save_adapterhub(config=settings, model_type=backbone.config.family), backbone)


def test_a_backbone_that_the_library_does_not_know_is_refused(save_adapterhub, nomic_bert):
    """Its modules have other names than the file's tensors."""
    path = save_adapterhub(model_type="nomic_bert", settings={"output_lora": True})
    with pytest.raises(AdapterError, match=r"has no tensor 'layers.0.mlp.down_proj.loras.intents.lora_A'"):
        read_adapterhub(path, nomic_bert)
