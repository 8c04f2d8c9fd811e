import copy
import re
from pathlib import Path

import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.extensions.authors import read_compacter
from peltier_adapters.importers.run import Import, TaskOptions, import_adapter
from peltier_backbone.backbone import Backbone
from transformers import T5ForConditionalGeneration

from tests.adapters_store.importers.conftest import TARGETS, TEXTS, check_each_is_needed, served
from tests.adapters_store.importers.extensions.authors import t5 as authors

ADAPTERS = {
    "adapter": {"method": "adapter"},
    "adapterdrop": {"method": "adapter", "first": 1},
    "lowrank": {"method": "lowrank"},
    "phm": {"method": "phm"},
    "compacter": {"method": "compacter"},
    "compacter++": {"method": "compacter", "attention": False},
}
OPTIONS = TaskOptions(labels=("a", "b", "c"), targets=TARGETS)


@pytest.fixture(scope="module")
def pretrained(t5_directory: Path) -> T5ForConditionalGeneration:
    """The small T5."""
    return T5ForConditionalGeneration.from_pretrained(t5_directory).eval()


@pytest.fixture
def model(pretrained: T5ForConditionalGeneration) -> T5ForConditionalGeneration:
    """A copy, to which a test adds the authors' modules."""
    return copy.deepcopy(pretrained)


def _expected(model: T5ForConditionalGeneration, backbone: Backbone) -> torch.Tensor:
    end = (backbone.tokenizer.encode("a").ids[-1],)
    targets = [backbone.tokenizer.ids(target) + end for target in TARGETS]
    return torch.tensor(
        [[authors.likelihood(model, backbone.tokenizer.encode(text).ids, one) for one in targets] for text in TEXTS]
    )


def _check(model: T5ForConditionalGeneration, backbone: Backbone, path: Path) -> None:
    found = served("compacter", authors.save(model, path), backbone, OPTIONS)
    torch.testing.assert_close(found, _expected(model, backbone), rtol=0, atol=1e-4)


@pytest.mark.parametrize("method", ADAPTERS)
def test_adapters_answer_as_the_authors_modules_do(method, model, t5, tmp_path):
    """Every kind of adapter of the paper, with trained norms and a shared rule, gives the same log-likelihoods."""
    authors.add_adapters(model, **ADAPTERS[method])
    _check(model, t5, tmp_path / "pytorch_model.bin")


def test_a_prompt_answers_as_the_authors_does(model: T5ForConditionalGeneration, t5: Backbone, tmp_path: Path) -> None:
    """The prompt precedes the encoder's tokens; untrained norms are not imported."""
    authors.add_prompt(model, 5)
    _check(model, t5, tmp_path / "pytorch_model.bin")
    assert [part.kind for part in read_compacter(tmp_path, t5).parts] == ["prompt"]


def test_biases_answer_as_the_authors_do(model: T5ForConditionalGeneration, t5: Backbone, tmp_path: Path) -> None:
    """BitFit adds biases to a model without biases, also to its output layer."""
    authors.add_biases(model)
    _check(model, t5, tmp_path / "pytorch_model.bin")


def test_a_checkpoint_of_another_backbone_is_refused(model, t5, tmp_path):
    """The frozen weights in the checkpoint must be all of the backbone's, with the same values."""
    authors.add_adapters(model, "compacter")
    model.encoder.block[1].layer[0].SelfAttention.k.weight.data[3, 4] += 0.01
    with pytest.raises(AdapterError, match=r"the frozen weights '1.qkv' differ from those of backbone"):
        read_compacter(authors.save(model, tmp_path / "pytorch_model.bin"), t5)
    state = model.state_dict()
    del state["encoder.block.1.layer.0.SelfAttention.k.weight"]
    torch.save(state, tmp_path / "pytorch_model.bin")
    with pytest.raises(AdapterError, match=r"SelfAttention.k.weight' is missing; .* also the whole backbone"):
        read_compacter(tmp_path, t5)


@pytest.mark.parametrize(
    ("name", "tensor", "sentence"),
    [
        ("intrinsic_parameter", torch.ones(9), "is an Intrinsic-SAID checkpoint"),
        ("phm_rule", torch.ones(4, 4, 4), "differs from the rule that all maps share"),
        (
            "encoder.block.0.layer.0.adapter_controller.adapters.superglue-boolq.down_sampler.W_left",
            torch.ones(4, 24, 1),
            r"has shape \[4, 24, 1\]; on this backbone it must be \[4, 12, any\]",
        ),
        ("encoder.prefix_emb", torch.ones(4, 48), "'encoder.prefix_emb' is not the shared prompt"),
        ("encoder.block.0.layer.0.adapter_controller.adapters.cola.b", torch.ones(4), "adapters of 2 tasks: cola, "),
        ("encoder.block.0.layer.0.adapter_controller.pre_layer_norm.weight", torch.ones(48), "have no place in a t5"),
    ],
)
def test_what_cannot_be_served_is_refused(name, tensor, sentence, model, t5, tmp_path):
    """Each error names what was expected."""
    authors.add_adapters(model, "compacter")
    torch.save(model.state_dict() | {name: tensor}, tmp_path / "pytorch_model.bin")
    with pytest.raises(AdapterError, match=sentence):
        read_compacter(tmp_path, t5)


def test_a_plain_model_and_another_family_are_refused(model, t5, bert, tmp_path):
    authors.save(model, tmp_path / "pytorch_model.bin")
    with pytest.raises(AdapterError, match="has no adapter, prompt or bias"):
        read_compacter(tmp_path, t5)
    with pytest.raises(AdapterError, match="is for T5; this backbone is bert"):
        read_compacter(tmp_path, bert)


def test_without_labels_a_t5_writes_texts(model: T5ForConditionalGeneration, t5: Backbone, tmp_path: Path) -> None:
    """The golden examples then contain the generated texts."""
    authors.add_adapters(model, "compacter")
    artifact = import_adapter(Import("compacter", authors.save(model, tmp_path / "a.bin"), "boolq"), t5)
    assert artifact.manifest.task.type == "text2text"
    assert all(golden.text for golden in artifact.manifest.golden)


ALIASES = r"shared\.weight|(encoder|decoder)\.(embed_tokens\.weight|prefix_emb)|lm_head\.weight|(.*_sampler\.)?phm_rule"


@pytest.mark.parametrize("method", ["compacter", "biases"])
def test_each_tensor_of_the_authors_is_needed(method, model, t5, tmp_path):
    """All but those that a checkpoint has under a second name."""
    if method == "biases":
        authors.add_biases(model)
    else:
        authors.add_adapters(model, **ADAPTERS[method])
    whole, path = model.state_dict(), tmp_path / "pytorch_model.bin"
    check_each_is_needed(read_compacter, whole, path, t5, ALIASES)
    torch.save({name: one for name, one in whole.items() if name != "phm_rule"}, path)  # each map has it too
    read_compacter(tmp_path, t5)


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        (
            r"encoder\.block\.1\..*adapters",
            "has no adapter in 'encoder.block.1.layer.0', 'encoder.block.1.layer.1', whi",
        ),
        (
            r"decoder\.block\.0\..*adapters",
            "has no adapter in 'decoder.block.0.layer.0', 'decoder.block.0.layer.2', whi",
        ),
        (r"decoder\..*adapters", "has no adapter in 'decoder.block.0.layer.0', .* with its adapters from block 0 on"),
        (r"layer_norm", "has no norm 'decoder.block.0.layer.0.layer_norm.weight'"),
    ],
)
def test_blocks_and_norms_are_whole(pattern, sentence, model, t5, tmp_path):
    """No block is taken for one without an adapter, and trained norms are there."""
    authors.add_adapters(model, "adapter")
    rest = {name: one for name, one in model.state_dict().items() if not re.search(pattern, name)}
    torch.save(rest, tmp_path / "pytorch_model.bin")
    with pytest.raises(AdapterError, match=sentence):
        read_compacter(tmp_path, t5)
