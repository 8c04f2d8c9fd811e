"""PEFT's adapters of ModernBERT with a classifier, compared with transformers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.run import Import, import_adapter
from peltier_adapters.residency.bank import Banks
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from safetensors.torch import save_file
from transformers import (
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForQuestionAnswering,
    ModernBertForSequenceClassification,
    ModernBertForTokenClassification,
    PreTrainedModel,
)

from tests.adapters_store.importers.conftest import TEXTS, answers, check_answers

MODELS: dict[str, type[PreTrainedModel]] = {
    "SEQ_CLS": ModernBertForSequenceClassification,
    "TOKEN_CLS": ModernBertForTokenClassification,
    "QUESTION_ANS": ModernBertForQuestionAnswering,
}
QKV = "model.layers.1.attn.Wqkv"


@pytest.fixture(scope="module")
def pretrained(modernbert_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A checkpoint as published, with the head of its pretraining, whose classifiers have the given pooling."""

    def save(pooling: str) -> Path:
        directory = tmp_path_factory.mktemp(pooling)
        config = ModernBertConfig.from_pretrained(modernbert_directory, classifier_pooling=pooling)
        torch.manual_seed(5)
        _draw(ModernBertForMaskedLM(config)).save_pretrained(directory)
        for file in modernbert_directory.glob("tokenizer*"):
            shutil.copy(file, directory)
        return directory

    return save


@torch.no_grad()
def _draw(model: Any) -> Any:
    for name, weight in model.named_parameters():
        weight.copy_(torch.randn_like(weight) * 0.2 + ("norm" in name))
    return model.eval()


@torch.no_grad()
def _save(model, folder, task, lora=(QKV,), saved=(), *, classified=True):
    """An adapter of rank 2 and alpha 4 on `lora` in PEFT's format, with the modules `saved` and the classifier if it is
    `classified`; it is merged into `model`."""
    folder.mkdir()
    kept = ("classifier", *saved) if classified else tuple(saved)
    tensors = {name: one for name, one in model.state_dict().items() if name.startswith(kept)}
    for module in lora:
        weight = model.get_submodule(module).weight
        a, b = torch.randn(2, weight.shape[1]) * 0.3, torch.randn(weight.shape[0], 2) * 0.3
        weight += 2 * b @ a
        tensors |= {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
    named = {f"base_model.model.{name}": one.clone() for name, one in tensors.items()}
    save_file(named, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "task_type": task, "r": 2, "lora_alpha": 4, "modules_to_save": list(saved)}
    config["target_modules"] = list(lora)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("task", "pooling", "lora", "saved"),
    [
        ("SEQ_CLS", "cls", (QKV,), ()),
        ("SEQ_CLS", "mean", (QKV, "head.dense"), ()),
        ("TOKEN_CLS", "cls", (QKV,), ("head",)),
        ("QUESTION_ANS", "cls", (QKV,), ("head.norm",)),
    ],
)
def test_a_classifier_answers_as_that_of_transformers(task, pooling, lora, saved, pretrained, make_artifact, tmp_path):
    """With the dense layer and the norm of the adapter, else of the backbone's files, beside rows of other heads."""
    directory = pretrained(pooling)
    torch.manual_seed(7)
    model = MODELS[task].from_pretrained(directory, num_labels=2 if task == "QUESTION_ANS" else 3)
    torch.nn.init.normal_(model.classifier.weight, std=0.3)
    for module in saved:
        _draw(model.get_submodule(module))
    backbone = load_backbone(str(directory))
    wanted = Import("peft", _save(model, tmp_path / "adapter", task, lora, saved), "imported")
    expected = answers(model.eval(), backbone)
    check_answers(wanted, backbone, expected)
    banks = Banks(backbone)
    imported = banks.add(import_adapter(wanted, backbone))
    other = banks.add(read_artifact(make_artifact(backbone, "lora"), backbone))
    rows = [Row(backbone.tokenizer.encode(text), one) for text in TEXTS for one in (other, imported, None)]
    alone, mixed = forward(backbone, rows[::3]), forward(backbone, rows)
    for found, own in zip(mixed[1::3], expected, strict=True):
        torch.testing.assert_close(found.logits, own, rtol=0, atol=1e-4)
    for found, single in zip(mixed[::3], alone, strict=True):
        torch.testing.assert_close(found.logits, single.logits, rtol=0, atol=1e-5)


def test_the_head_of_other_weights_is_refused(pretrained: Callable[[str], Path], tmp_path: Path) -> None:
    """The files that hold it must be those that the backbone was loaded from."""
    directory = pretrained("cls")
    backbone = load_backbone(str(directory))
    model = ModernBertForSequenceClassification.from_pretrained(directory, num_labels=3)
    path = _save(model, tmp_path / "adapter", "SEQ_CLS")
    import_adapter(Import("peft", path, "imported"), backbone)
    _draw(ModernBertForMaskedLM.from_pretrained(directory)).save_pretrained(directory)
    with pytest.raises(AdapterError, match="have changed since it was loaded; load it again"):
        import_adapter(Import("peft", path, "imported"), backbone)


def test_a_head_that_nobody_saved_is_refused(modernbert: Backbone, modernbert_directory: Path, tmp_path: Path) -> None:
    """Transformers draws it at random if the backbone's files lack it."""
    model = ModernBertForSequenceClassification.from_pretrained(modernbert_directory, num_labels=3)
    adapter = _save(model, tmp_path / "adapter", "SEQ_CLS")
    with pytest.raises(AdapterError, match=r"classifier reads 'head\.dense\.weight', which neither the"):
        import_adapter(Import("peft", adapter, "imported"), modernbert)


def test_the_head_of_a_whole_model_is_read(modernbert: Backbone, modernbert_directory: Path, tmp_path: Path) -> None:
    """`--head` takes the dense layer, the norm and the classifier."""
    model = ModernBertForSequenceClassification.from_pretrained(modernbert_directory, num_labels=3)
    _draw(model.head)
    model.save_pretrained(tmp_path / "model")
    adapter = _save(model, tmp_path / "adapter", "SEQ_CLS", classified=False)
    wanted = Import("peft", adapter, "imported", head=tmp_path / "model")
    check_answers(wanted, modernbert, answers(model.eval(), modernbert))
