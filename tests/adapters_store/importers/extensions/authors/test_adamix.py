from pathlib import Path

import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.extensions.authors import read_adamix
from peltier_backbone.backbone import Backbone
from safetensors.torch import load_file

from tests.adapters_store.importers.conftest import TEXTS, check_each_is_needed, served
from tests.adapters_store.importers.extensions.authors.bert import AuthorsBert

State = dict[str, torch.Tensor]


def _experts(name: str, num: int, out: int, width: int) -> State:
    state = {f"{name}.expert_score_weight": torch.randn(num) if num > 1 else torch.zeros(1)}
    for j in range(num):
        state[f"{name}.deepspeed_experts.{j}.weight"] = torch.randn(out, width) * 0.3
        state[f"{name}.deepspeed_experts.{j}.bias"] = torch.randn(out) * 0.3
    return state


def _state(family: str, outputs: int = 3, hidden: int = 48) -> State:
    """Four experts before one shared one in each layer, and the family's classifier."""
    torch.manual_seed(4)
    layers = {"classifier": (outputs, hidden)}
    if family == "roberta":
        layers = {"classifier.dense": (hidden, hidden), "classifier.out_proj": (outputs, hidden)}
    state = {f"{name}.weight": torch.randn(shape) * 0.3 for name, shape in layers.items()}
    state |= {f"{name}.bias": torch.randn(shape[0]) * 0.3 for name, shape in layers.items()}
    for i in range(3):
        soup = f"{family}.encoder.layer.{i}.output.ExpertSoup"
        state |= _experts(f"{soup}.MoA_A", 4, 8, hidden) | _experts(f"{soup}.MoA_B", 1, hidden, 8)
    return state


@pytest.mark.parametrize(("family", "eps"), [("bert", 1e-12), ("roberta", 1e-5)])
def test_merged_experts_answer_as_the_authors_modules_do(family, eps, request, tmp_path):
    """The weighted experts are one adapter on the raw feed-forward output, with the head of the family."""
    backbone: Backbone = request.getfixturevalue(family)
    frozen = load_file(request.getfixturevalue(f"{family}_directory") / "model.safetensors")
    state = _state(family)
    torch.save(state, tmp_path / "pytorch_model_expert_soup.bin")
    whole = {f"{family}.{name}": tensor for name, tensor in frozen.items()} | state
    model = AuthorsBert(whole, family, 3, 4, eps)
    expected = torch.stack([model(list(backbone.tokenizer.encode(text).ids), 0) for text in TEXTS])
    torch.testing.assert_close(served("adamix", tmp_path, backbone), expected, rtol=0, atol=1e-4)
    assert read_adamix(tmp_path, backbone).origin["experts"] == 4


@pytest.mark.parametrize(
    ("name", "tensor", "sentence"),
    [
        ("transformer.h.0.attn.c_attn.experts_lora_A.0", torch.ones(8, 48), "AdaMix for GPT-2; only those for BERT"),
        ("bert.encoder.layer.0.output.ExpertSoup.MoA_A.expert_score_weight", torch.ones(5), r"it must be \[4\]"),
        ("bert.encoder.layer.0.output.ExpertSoup.MoA_A.deepspeed_experts.7.weight", torch.ones(8, 48), "count from 0"),
        (
            "bert.encoder.layer.0.output.ExpertSoup.MoA_A.deepspeed_experts.1.weight",
            torch.ones(6, 48),
            r"must be \[8, 48\]",
        ),
        ("bert.encoder.layer.0.output.ExpertSoup.MoA_C.bias", torch.ones(8), "that this importer does not support"),
    ],
)
def test_what_cannot_be_served_is_refused(name, tensor, sentence, bert, tmp_path):
    """Each error names what was expected."""
    torch.save(_state("bert") | {name: tensor}, tmp_path / "pytorch_model_expert_soup.bin")
    with pytest.raises(AdapterError, match=sentence):
        read_adamix(tmp_path, bert)


@pytest.mark.parametrize("hidden", [96, 24])
def test_experts_of_another_width_are_refused(hidden: int, bert: Backbone, tmp_path: Path) -> None:
    """They are neither cut nor padded."""
    torch.save(_state("bert", hidden=hidden), tmp_path / "pytorch_model_expert_soup.bin")
    with pytest.raises(AdapterError, match=rf"has shape \[8, {hidden}\]; on this backbone it must be \[any, 48\]"):
        read_adamix(tmp_path, bert)


def test_other_backbones_and_cut_off_answers_are_refused(bert, roberta, t5, tmp_path):
    """T5, a checkpoint without experts, and RoBERTa's regression, whose outputs the authors' code clips at zero."""
    torch.save(_state("roberta", outputs=1), tmp_path / "pytorch_model_expert_soup.bin")
    with pytest.raises(AdapterError, match="clips at 0"):
        read_adamix(tmp_path, roberta)
    with pytest.raises(AdapterError, match="this backbone is t5"):
        read_adamix(tmp_path, t5)
    torch.save({"classifier.weight": torch.ones(2, 48)}, tmp_path / "pytorch_model_expert_soup.bin")
    with pytest.raises(AdapterError, match="has no ExpertSoup"):
        read_adamix(tmp_path, bert)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_each_tensor_of_the_authors_is_needed(family: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A layer without its experts, or with fewer, is refused."""
    backbone: Backbone = request.getfixturevalue(family)
    whole, path = _state(family), tmp_path / "pytorch_model_expert_soup.bin"
    check_each_is_needed(read_adamix, whole, path, backbone)
    torch.save({name: one for name, one in whole.items() if "layer.1." not in name}, path)
    with pytest.raises(AdapterError, match=r"has no adapter in 'encoder.layer.1.output', which the authors' code"):
        read_adamix(tmp_path, backbone)
    fewer = _experts(f"{family}.encoder.layer.1.output.ExpertSoup.MoA_A", 3, 8, 48)
    torch.save(
        {name: one for name, one in whole.items() if "layer.1.output.ExpertSoup.MoA_A" not in name} | fewer, path
    )
    with pytest.raises(AdapterError, match="has 3 experts in one layer and 4 in another"):
        read_adamix(tmp_path, backbone)
