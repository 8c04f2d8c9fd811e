"""Damages files that AdapterHub saved: each tensor that a configuration promises must be there, as it promises."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.extensions.adapterhub import read_adapterhub
from peltier_adapters.importers.shared.module_sites import base_names
from peltier_backbone.backbone import Backbone
from torch import Tensor

from tests.adapters_store.importers.parity import backbone_of
from tests.adapters_store.importers.record_parity import SERVED, unpack

FILES = ("pytorch_adapter.bin", "pytorch_model_head.bin")
# The library saves the same parameter below each layer, and loads it from any of them.
COPY = ".prefix_tuning.pool."


def _refusal(folder: Path, file: str, tensors: Mapping[str, Tensor], backbone: Backbone) -> str:
    """Why the adapter is refused once its `file` has these tensors."""
    torch.save(dict(tensors), folder / file)
    with pytest.raises(AdapterError) as caught:
        read_adapterhub(folder, backbone)
    return str(caught.value)


@pytest.mark.parametrize("case", SERVED["adapterhub"])
def test_each_tensor_that_is_saved_is_needed(case: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Without any one of them, or with a row less, the adapter is refused, and the tensor is named."""
    folder = unpack("adapterhub", case, tmp_path)
    backbone = backbone_of(folder, request)
    for file in (name for name in FILES if (folder / name).is_file()):
        whole = torch.load(folder / file, weights_only=True)
        for name in (name for name in whole if COPY not in name):
            rest = {other: kept for other, kept in whole.items() if other != name}
            said = _refusal(folder, file, rest, backbone)
            assert base_names(name) in said or "lacks the phm_rule that all layers share" in said
        torch.save(whole, folder / file)
    read_adapterhub(folder, backbone)


@pytest.mark.parametrize("case", ["bert-seq_bn-scaled", "bert-compacter++", "bert-prefix-flat", "roberta-unipelt"])
def test_the_sizes_of_tensors_are_those_of_the_settings(case, tmp_path, request):
    """Ranks, widths and lengths are promised too."""
    folder = unpack("adapterhub", case, tmp_path)
    backbone = backbone_of(folder, request)
    saved = torch.load(folder / FILES[0], weights_only=True)
    whole = {name: tensor for name, tensor in saved.items() if COPY not in name}
    for name, tensor in whole.items():
        other = tensor[:-1] if len(tensor) > 1 else tensor.new_zeros(2, *tensor.shape[1:])
        assert f"{base_names(name)}' has shape" in _refusal(folder, FILES[0], whole | {name: other}, backbone)


@pytest.mark.parametrize(
    ("kind", "settings", "sentence"),
    [
        ("lora", {"r": 3}, r"lora_A' has shape \[4, 48\]; .*adapter_config.json promises \[3, 48\]"),
        ("lora", {"r": 0}, "r is 0; it must be a positive integer"),
        ("lora", {"attn_matrices": ["q", "k", "v"]}, "has no tensor 'encoder.layer.0.attention.self.key.loras.task"),
        ("lora", {"attn_matrices": ["q"]}, "has tensor 'encoder.layer.0.attention.self.value.loras.task.gate.bias'"),
        ("lora", {"attn_matrices": ["qkv"]}, r"attn_matrices is \['qkv'\]; it has some of q, k and v"),
        ("lora", {"selfattn_lora": False}, "the settings of 'lora' adapt no layer of this backbone"),
        ("lora", {"intermediate_lora": True}, "has no tensor 'encoder.layer.0.intermediate.dense.loras.task.gate.bias"),
        ("lora", {"output_lora": True}, "has no tensor 'encoder.layer.0.output.dense.loras.task.gate.bias"),
        ("lora", {"leave_out": [2]}, "has tensor 'encoder.layer.2.attention.self.query.loras.task.gate.bias', .* does"),
        ("lora", {"leave_out": ["2"]}, r"leave_out is \['2'\]; it must be a list of layers"),
        ("lora", {"use_gating": False}, "has tensor .*gate.bias', .* does not promise"),
        (None, {"output_adapter": False}, "the settings of 'bottleneck' adapt no layer of this backbone"),
        (None, {"mh_adapter": True}, "has no tensor 'encoder.layer.0.attention.output.adapters.task.adapter_down.0.bi"),
        (None, {"leave_out": [0]}, "has tensor 'encoder.layer.0.output.adapters.task.adapter_down.0.bias', .* does"),
        (None, {"reduction_factor": 12}, r"down.0.weight' has shape \[8, 48\]; .* promises \[4, 48\]"),
        (None, {"reduction_factor": {"1": 6}}, "reduction_factor of layer 0 is None; it must be a number above"),
        (None, {"scaling": "learned"}, "has no tensor 'encoder.layer.0.output.adapters.task.scaling'"),
        (
            None,
            {"phm_layer": True, "shared_phm_rule": False},
            "has no tensor 'encoder.layer.0.output.adapters.task.adapter_down.0.W_left'",
        ),
        ("prefix_tuning", {"prefix_length": 5}, r"wte.weight' has shape \[4, 48\]; .* promises \[5, 48\]"),
        (
            "prefix_tuning",
            {"bottleneck_size": 9},
            r"control_trans.0.weight' has shape \[8, 48\]; .* promises \[9, 48\]",
        ),
        (
            "prefix_tuning",
            {"flat": True},
            "has no tensor 'prefix_tuning.prefix_tunings.task.self_prefix.control_trans'",
        ),
        ("prefix_tuning", {"use_gating": False}, "has tensor .*prefix_gates.task.bias', .* does not promise"),
        ("prefix_tuning", {"flat": 1}, "flat is 1; it must be true or false"),
    ],
)
def test_tensors_that_no_setting_promises_are_refused(kind, settings, sentence, bert, tmp_path):
    """The names and the numbers in the settings say which tensors there are, not the file."""
    folder = unpack("adapterhub", "bert-unipelt", tmp_path)
    file = folder / "adapter_config.json"
    outer = json.loads(file.read_text())
    for member in outer["config"]["configs"]:
        if member.get("architecture") == kind:
            member |= settings
    file.write_text(json.dumps(outer))
    with pytest.raises(AdapterError, match=sentence):
        read_adapterhub(folder, bert)


def test_a_copy_of_a_prefix_that_differs_is_refused(bert: Backbone, tmp_path: Path) -> None:
    """The library loads whichever it reads last; a copy that is missing changes nothing."""
    folder = unpack("adapterhub", "bert-unipelt", tmp_path)
    whole = torch.load(folder / FILES[0], weights_only=True)
    copy = next(name for name in whole if COPY in name)
    said = _refusal(folder, FILES[0], whole | {copy: whole[copy] + 1}, bert)
    assert f"tensor {base_names(copy)!r} is not a copy of the prefix that all layers share" in said
    torch.save({name: tensor for name, tensor in whole.items() if name != copy}, folder / FILES[0])
    read_adapterhub(folder, bert)


@pytest.mark.parametrize("case", ["bert-seq_bn-flexible", "t5-compacter-flexible"])
def test_a_head_without_its_configuration_is_refused(case: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """It is not left out, nor taken for another."""
    folder = unpack("adapterhub", case, tmp_path)
    (folder / "head_config.json").unlink()
    with pytest.raises(
        AdapterError, match=r"has pytorch_model_head\.bin, but no head_config\.json that says what it is"
    ):
        read_adapterhub(folder, backbone_of(folder, request))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num_labels": 2}, "num_labels is 2; the head has 3 outputs"),
        ({"label2id": {"no": 0, "yes": 1}}, "label2id has 2 labels; the head has 3 outputs"),
        ({"label2id": {"no": 0, "maybe": 2, "yes": 2}}, r"ids of label2id are \[0, 2, 2\]"),
        ({"id2label": {"0": "yes", "1": "maybe", "2": "no"}}, r'labels \["yes", "maybe", "no"\], and label2id \["no"'),
        ({"layers": 1}, "num_labels is 3; the head has 48 outputs"),
        ({"activation_function": "relu"}, 'activation_function is "relu", which is not supported'),
        ({"bias": False}, "has the tensor 'heads.task.4.bias'; its configuration says that it has none"),
        ({"layers": 3}, "layers is 3, which is not supported"),
    ],
)
def test_settings_of_a_head_that_are_not_its_tensors_are_refused(settings, sentence, bert, tmp_path):
    """Outputs, names, layers and activation are those that the library saved."""
    folder = unpack("adapterhub", "bert-seq_bn-flexible", tmp_path)
    file = folder / "head_config.json"
    outer = json.loads(file.read_text())
    outer["config"] |= settings
    file.write_text(json.dumps(outer))
    with pytest.raises(AdapterError, match=sentence):
        read_adapterhub(folder, bert)
