import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.extensions.adapterhub import read_adapterhub
from peltier_backbone.backbone import Backbone

from tests.adapters_store.importers.conftest import SaveAdapterHub

PREFIX = {"architecture": "prefix_tuning", "prefix_length": 4, "bottleneck_size": 8}
PFEIFFER = {"output_adapter": True, "reduction_factor": 6, "non_linearity": "relu", "original_ln_before": True}
QUERY = "bert.encoder.layer.0.attention.self.query.loras.intents"


@pytest.mark.parametrize(("version", "scale"), [("adapters.1.0.1", 1), ("adapters.1.1.0", 4), ("3.2.1", 4)])
def test_lora_of_early_versions_has_the_scale_it_was_trained_with(version, scale, save_adapterhub, bert):
    """`adapters` before 1.1 scaled by 1 for any alpha / r; later versions, and adapter-transformers, scale by alpha /
    r."""
    b = torch.ones(bert.config.hidden_size, 2)
    foreign = read_adapterhub(save_adapterhub({f"{QUERY}.lora_B": b}, version=version), bert)
    assert torch.equal(foreign.tensors["lora.up"][0, 0], scale * b.T)


@pytest.mark.parametrize(
    ("outer", "sentence"),
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
        (
            {"config": {"architecture": "union", "configs": [{}, {}]}},
            "architecture 'bottleneck' is not supported twice",
        ),
    ],
)
def test_an_adapter_of_another_model_or_kind_is_refused(outer, sentence, save_adapterhub, bert):
    """The error names what was found and what was expected."""
    with pytest.raises(AdapterError, match=sentence):
        read_adapterhub(save_adapterhub(**outer), bert)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"use_dora": True}, "use_dora is true, which is not supported"),
        (
            {"alpha": None, "r": 2, "rank_schedule": "cosine"},
            'rank_schedule is "cosine", which this importer does not know',
        ),
        ({"alpha": "two"}, "alpha is 'two'; it must be a number"),
    ],
)
def test_settings_that_change_the_answers_are_refused(settings, sentence, save_adapterhub, bert):
    """A setting that is not supported, or not known, is named with its value."""
    with pytest.raises(AdapterError, match=sentence):
        read_adapterhub(save_adapterhub(settings=settings), bert)


@pytest.mark.parametrize(
    ("name", "tensor", "sentence"),
    [
        (
            f"{QUERY}.lora_A",
            torch.ones(2, 32),
            r"query.loras.intents.lora_A' has shape \[2, 32\]; .* promises \[2, 48\]",
        ),
        (
            f"{QUERY}.lora_A",
            torch.ones(1, 48),
            r"query.loras.intents.lora_A' has shape \[1, 48\]; .* promises \[2, 48\]",
        ),
        (f"{QUERY}.lora_A", None, "has no tensor 'encoder.layer.0.attention.self.query.loras.intents.lora_A', which"),
        (f"{QUERY}.lora_B", None, "has no tensor 'encoder.layer.0.attention.self.query.loras.intents.lora_B', which"),
        (QUERY.replace("layer.0", "layer.7") + ".lora_A", torch.ones(2, 48), "has tensor .*layer.7.* does not promise"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(name, tensor, sentence, save_adapterhub, bert):
    """The error names the missing, unknown or wrongly shaped tensor, and what was expected."""
    with pytest.raises(AdapterError, match=sentence):
        read_adapterhub(save_adapterhub({name: tensor}), bert)


@pytest.mark.parametrize("name", ["output", "0", "query", "self", "layer", "loras", "lora_A"])
def test_an_adapter_may_be_called_as_a_module_is(name: str, save_adapterhub: SaveAdapterHub, bert: Backbone) -> None:
    """Only the name below `loras` is replaced, not an equal one elsewhere in a tensor's name."""
    own = f"bert.encoder.layer.0.attention.self.query.loras.{name}"
    a, b = torch.randn(2, bert.config.hidden_size), torch.randn(bert.config.hidden_size, 2)
    tensors = {f"{QUERY}.lora_A": None, f"{QUERY}.lora_B": None, f"{own}.lora_A": a, f"{own}.lora_B": b}
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


@pytest.mark.parametrize("hidden", [96, 24])
def test_a_bottleneck_of_another_width_is_refused(hidden: int, save_adapterhub: SaveAdapterHub, bert: Backbone) -> None:
    """It is neither cut nor padded, even if the settings do not contain the width."""
    own = "bert.encoder.layer.0.output.adapters.intents"
    tensors = {
        f"{QUERY}.lora_A": None,
        f"{QUERY}.lora_B": None,
        f"{own}.adapter_down.0.weight": torch.randn(8, hidden),
        f"{own}.adapter_down.0.bias": torch.randn(8),
        f"{own}.adapter_up.weight": torch.randn(hidden, 8),
        f"{own}.adapter_up.bias": torch.randn(hidden),
    }
    settings = PFEIFFER | {"leave_out": [1, 2]}
    directory = save_adapterhub(tensors, hidden_size=None, config=settings)
    with pytest.raises(AdapterError, match=rf"has shape \[8, {hidden}\]; .* promises \[8, 48\]"):
        read_adapterhub(directory, bert)


def test_scales_are_one_or_one_a_value(save_adapterhub: SaveAdapterHub, bert: Backbone) -> None:
    """Any other number of scales is refused."""
    own = "bert.encoder.layer.0.output.adapters.intents"
    tensors = {
        f"{QUERY}.lora_A": None,
        f"{QUERY}.lora_B": None,
        f"{own}.adapter_down.0.weight": torch.randn(8, 48),
        f"{own}.adapter_down.0.bias": torch.randn(8),
        f"{own}.adapter_up.weight": torch.randn(48, 8),
        f"{own}.adapter_up.bias": torch.randn(48),
        f"{own}.scaling": torch.ones(5),
    }
    config = PFEIFFER | {"leave_out": [1, 2], "scaling": "channel"}
    with pytest.raises(AdapterError, match=r"scaling' has shape \[5\]; .* promises \[48\]"):
        read_adapterhub(save_adapterhub(tensors, config=config), bert)


@pytest.mark.parametrize("length", [7, 600])
def test_a_prefix_of_another_length_is_refused(length: int, save_adapterhub: SaveAdapterHub, bert: Backbone) -> None:
    """The length in the settings must be that of the tensor."""
    tensors = {
        f"{QUERY}.lora_A": None,
        f"{QUERY}.lora_B": None,
        "bert.prefix_tuning.prefix_tunings.intents.self_prefix.control_trans": torch.randn(10 * 6 * 48),
    }
    config = {"architecture": "prefix_tuning", "flat": True, "prefix_length": length}
    with pytest.raises(AdapterError, match=rf"has shape \[2880\]; .* promises \[{length * 288}\]"):
        read_adapterhub(save_adapterhub(tensors, config=config), bert)


def test_a_backbone_that_the_library_does_not_know_is_refused(save_adapterhub, nomic_bert):
    """Its modules have other names than the file's tensors."""
    path = save_adapterhub(model_type="nomic_bert", settings={"output_lora": True})
    with pytest.raises(AdapterError, match=r"has no tensor 'layers.0.mlp.down_proj.loras.intents.lora_A'"):
        read_adapterhub(path, nomic_bert)
