"""Heads of models of transformers and sentence-transformers, compared with transformers."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.run import Import, TaskOptions, import_adapter
from peltier_adapters.importers.shared.head import read_plain_head
from peltier_backbone.backbone import Backbone
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder
from transformers import (
    AutoModelForSequenceClassification,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    PreTrainedTokenizerFast,
)

from tests.adapters_store.importers.conftest import TEXTS, SavePeft, answers, check_answers

CLASSIFIER = "base_model.model.classifier"
QUERIES = {
    "distilbert": "distilbert.transformer.layer.0.attention.q_lin",
    "electra": "electra.encoder.layer.0.attention.self.query",
}
TAGS = {"O": 0, "B-a": 1, "I-a": 2}


def _renamed(bare: Path, name: str) -> Path:
    """The same for a model of another family, whose query has another name."""
    own = "bert.encoder.layer.0.attention.self.query"
    tensors = load_file(bare / "adapter_model.safetensors")
    save_file({key.replace(own, name): one for key, one in tensors.items()}, bare / "adapter_model.safetensors")
    settings = (bare / "adapter_config.json").read_text()
    (bare / "adapter_config.json").write_text(settings.replace(own, name))
    return bare


@torch.no_grad()
def _adapt(model: Any, bare: Path) -> Any:
    """The model of transformers with the adapter merged into it."""
    lora = {name.rsplit(".", 2)[1]: tensor for name, tensor in load_file(bare / "adapter_model.safetensors").items()}
    base = model.base_model
    distilled = base.config.model_type == "distilbert"
    query = base.transformer.layer[0].attention.q_lin if distilled else base.encoder.layer[0].attention.self.query
    query.weight += 2 * lora["lora_B"] @ lora["lora_A"]
    return model.eval()


def test_tags_of_a_transformers_model(bare: Path, bert: Backbone, bert_directory: Path, tmp_path: Path) -> None:
    """The directory says that its classifier reads tokens, and names the tags."""
    labels = {"label2id": TAGS, "id2label": {number: tag for tag, number in TAGS.items()}}
    model = BertForTokenClassification.from_pretrained(bert_directory, **labels)
    model.save_pretrained(tmp_path / "model")
    wanted = Import("peft", bare, "tags", head=tmp_path / "model")
    task = import_adapter(wanted, bert).manifest.task
    assert (task.type, task.labels, task.inputs) == ("token-classification", tuple(TAGS), "single")
    check_answers(wanted, bert, answers(_adapt(model, bare), bert))


def test_a_file_does_not_say_what_its_classifier_reads(bare: Path, bert: Backbone, tmp_path: Path) -> None:
    """The task type decides."""
    head = tmp_path / "head.safetensors"
    save_file({"classifier.weight": torch.ones(3, bert.config.hidden_size), "classifier.bias": torch.ones(3)}, head)
    options = TaskOptions(task_type="token-classification", labels=tuple(TAGS), stride=8)
    task = import_adapter(Import("peft", bare, "tags", head, options=options), bert).manifest.task
    assert (task.labels, task.stride) == (tuple(TAGS), 8)


def test_spans_of_a_transformers_model(bare: Path, bert: Backbone, bert_directory: Path, tmp_path: Path) -> None:
    model = BertForQuestionAnswering.from_pretrained(bert_directory)
    model.save_pretrained(tmp_path / "model")
    for path in (tmp_path / "model", tmp_path / "model" / "model.safetensors"):
        wanted = Import("peft", bare, "span", head=path)
        task = import_adapter(wanted, bert).manifest.task
        assert (task.type, task.labels, task.inputs) == ("span", ("start", "end"), "pair")
    check_answers(wanted, bert, answers(_adapt(model, bare), bert))


def test_a_ranking_is_a_classifier_of_one_label(bare, bert, bert_directory, tmp_path):
    """A cross-encoder has one output; the user names the task type."""
    model = BertForSequenceClassification.from_pretrained(bert_directory, num_labels=1)
    model.save_pretrained(tmp_path / "model")
    options = TaskOptions(task_type="ranking")
    wanted = Import("peft", bare, "rank", tmp_path / "model", options=options)
    task = import_adapter(wanted, bert).manifest.task
    assert (task.type, task.labels, task.inputs) == ("ranking", ("score",), "pair")
    check_answers(wanted, bert, answers(_adapt(model, bare), bert))
    options = TaskOptions(task_type="token-classification")
    with pytest.raises(AdapterError, match="does not fit the checkpoint's head, which reads one vector of an input"):
        import_adapter(Import("peft", bare, "rank", tmp_path / "model", options=options), bert)


@pytest.mark.parametrize("family", ["distilbert", "electra"])
def test_a_classifier_has_the_activation_of_its_family(family, bare, tmp_path, request):
    """DistilBERT has relu and ELECTRA gelu."""
    backbone: Backbone = request.getfixturevalue(family)
    model = AutoModelForSequenceClassification.from_pretrained(backbone.name, num_labels=3)
    for name, weight in model.named_parameters():
        if "classifier" in name:
            torch.nn.init.normal_(weight, std=0.3)
    model.save_pretrained(tmp_path / "model")
    path = _renamed(bare, QUERIES[family])
    wanted = Import("peft", path, "labels", head=tmp_path / "model")
    check_answers(wanted, backbone, answers(_adapt(model, path), backbone))


def test_a_classifier_without_the_layer_before_it_is_refused(distilbert: Backbone, tmp_path: Path) -> None:
    """DistilBERT has no pooler that could replace the layer."""
    tensors = {"classifier.weight": torch.ones(3, 48), "classifier.bias": torch.ones(3)}
    save_file(tensors, tmp_path / "head.safetensors")
    with pytest.raises(AdapterError, match="reads 'pre_classifier', which the checkpoint does not have"):
        read_plain_head(tmp_path / "head.safetensors", None, distilbert.config)


@pytest.mark.parametrize("family", ["roberta", "electra", "mpnet"])
def test_a_classifier_that_its_family_does_not_have_is_refused(family, tmp_path, request):
    """BERT's classifier reads a pooler, and that of these families a layer of its own."""
    tensors = {"classifier.weight": torch.ones(3, 48), "classifier.bias": torch.ones(3)}
    tensors |= {"pooler.dense.weight": torch.ones(48, 48), "pooler.dense.bias": torch.ones(48)}
    save_file(tensors, tmp_path / "head.safetensors")
    with pytest.raises(AdapterError, match=f"its classifier is one layer; that of a {family} for whole texts has"):
        read_plain_head(tmp_path / "head.safetensors", None, request.getfixturevalue(family).config)


def test_a_cross_encoder_of_sentence_transformers(bare, bert, bert_directory, tmp_path):
    """Its directory lists modules, but its head is a classifier, whose number ranks."""
    model = BertForSequenceClassification.from_pretrained(bert_directory, num_labels=1)
    model.save_pretrained(tmp_path / "model")
    PreTrainedTokenizerFast(tokenizer_file=str(bert_directory / "tokenizer.json")).save_pretrained(tmp_path / "model")
    CrossEncoder(str(tmp_path / "model"), device="cpu").save_pretrained(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "modules.json").is_file()
    wanted = Import("peft", bare, "rank", tmp_path / "saved", options=TaskOptions(task_type="ranking"))
    check_answers(wanted, bert, answers(_adapt(model, bare), bert))


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "electra", "mpnet", "deberta", "modernbert"])
def test_a_head_without_one_of_its_tensors_is_refused(family, tmp_path, request):
    """A bias that is missing is not taken for zeros, nor a pooler for the backbone's."""
    backbone: Backbone = request.getfixturevalue(family)
    model = AutoModelForSequenceClassification.from_pretrained(backbone.name, num_labels=3)
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    own = [name for name in tensors if re.search(r"classifier|^head\.|pooler", name)]
    assert len(own) == 4
    for name in own:
        save_file({other: tensor for other, tensor in tensors.items() if other != name}, file)
        with pytest.raises(AdapterError, match=r"missing|has no tensor|which .* have"):
            read_plain_head(tmp_path, None, backbone.config)


def test_a_modernbert_head_has_the_pooling_of_its_own_configuration(save_peft, modernbert, tmp_path):
    """The backbone's may be another: it is the model's class that pools."""
    dropped = ("bert.encoder.layer.0.attention.self.query.lora_A", "bert.encoder.layer.0.attention.self.query.lora_B")
    tensors = {f"base_model.model.{name}.weight": None for name in (*dropped, "classifier")}
    module = "base_model.model.layers.0.attn.Wo"
    tensors |= {f"{CLASSIFIER}.bias": None, f"{module}.lora_A.weight": torch.randn(2, 48)}
    path = save_peft(tensors | {f"{module}.lora_B.weight": torch.randn(48, 2)})
    other = "mean" if modernbert.config.classifier_pooling == "first" else "first"
    model = AutoModelForSequenceClassification.from_pretrained(
        modernbert.name, num_labels=3, classifier_pooling={"mean": "mean", "first": "cls"}[other], classifier_bias=True
    )
    model.save_pretrained(tmp_path / "model")
    found = import_adapter(Import("peft", path, "labels", tmp_path / "model"), modernbert)
    assert found.manifest.head.pooling == other
    assert torch.equal(found.tensors["head.dense.bias"], model.head.dense.bias)


def test_a_pooler_of_another_activation_is_refused(deberta: Backbone, tmp_path: Path) -> None:
    """That of a DeBERTa has a setting of its own."""
    model = AutoModelForSequenceClassification.from_pretrained(deberta.name, num_labels=3, pooler_hidden_act="tanh")
    model.save_pretrained(tmp_path)
    with pytest.raises(AdapterError, match='pooler_hidden_act is "tanh", which is not supported; it must be "gelu"'):
        read_plain_head(tmp_path, None, deberta.config)


def _save_sentence_model(directory: Path, dense: dict[str, Any] | None = None, *, normalized: bool = True) -> Path:
    """The files of sentence-transformers beside the encoder's own; `dense` are the settings of a layer of 48 inputs."""
    kinds = ["Transformer", "Pooling", *(["Dense"] if dense else []), *(["Normalize"] if normalized else [])]
    modules = [
        {"idx": number, "path": f"{number}_{kind}" if number else "", "type": f"sentence_transformers.models.{kind}"}
        for number, kind in enumerate(kinds)
    ]
    (directory / "1_Pooling").mkdir(parents=True)
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    (directory / "modules.json").write_text(json.dumps(modules))
    if dense:
        (directory / "2_Dense").mkdir()
        (directory / "2_Dense" / "config.json").write_text(json.dumps(dense))
        linear = torch.nn.Linear(48, dense["out_features"]).requires_grad_(False).state_dict(prefix="linear.")
        save_file(linear, directory / "2_Dense" / "model.safetensors")
    return directory


@pytest.mark.parametrize(("act", "size"), [(None, 48), ("torch.nn.modules.linear.Identity", 20), ("torch.nn.Tanh", 48)])
def test_a_sentence_model_says_how_its_vectors_are_made(act, size, bare, bert, bert_directory, tmp_path):
    """The mean of the states, optionally after a dense layer with or without a tanh."""
    dense = {"out_features": size, "activation_function": act} if act else None
    head = _save_sentence_model(tmp_path / "model", dense)
    wanted = Import("peft", bare, "vectors", head=head)
    artifact = import_adapter(wanted, bert)
    assert (artifact.manifest.task.type, artifact.manifest.task.normalized) == ("embedding", True)
    model = _adapt(BertModel.from_pretrained(bert_directory), bare)
    rows = [torch.tensor([bert.tokenizer.encode(text).ids]) for text in TEXTS]
    with torch.no_grad():
        expected = [model(ids).last_hidden_state[0].mean(0) for ids in rows]
    if act:
        linear = load_file(head / "2_Dense" / "model.safetensors")
        expected = [one @ linear["linear.weight"].T + linear["linear.bias"] for one in expected]
        expected = [one.tanh() for one in expected] if act.endswith("Tanh") else expected
    check_answers(wanted, bert, expected)


@pytest.mark.parametrize(
    ("dense", "sentence"),
    [
        (
            {"out_features": 20, "activation_function": "torch.nn.Tanh"},
            "after 20 outputs is Tanh; supported are Identity",
        ),
        ({"out_features": 48, "activation_function": "torch.nn.GELU"}, "after 48 outputs is GELU"),
    ],
)
def test_vectors_that_no_head_makes_are_refused(dense, sentence, bare, bert, tmp_path):
    head = _save_sentence_model(tmp_path / "model", dense)
    with pytest.raises(AdapterError, match=sentence):
        import_adapter(Import("peft", bare, "vectors", head=head), bert)


def test_features_are_embeddings_once_their_pooling_is_known(save_peft: SavePeft, bert: Backbone) -> None:
    """The pooling comes from files beside the adapter or from an option; there is no default guess."""
    path = save_peft({f"{CLASSIFIER}.weight": None, f"{CLASSIFIER}.bias": None}, task_type="FEATURE_EXTRACTION")
    with pytest.raises(AdapterError, match="does not say how its embeddings are pooled; give --pooling"):
        import_adapter(Import("peft", path, "vectors"), bert)
    found = import_adapter(Import("peft", path, "vectors", options=TaskOptions(pooling="max")), bert).manifest
    assert (found.task.type, found.head.pooling, found.head.projection) == ("embedding", "max", False)
    _save_sentence_model(path, normalized=False)
    found = import_adapter(Import("peft", path, "vectors"), bert).manifest
    assert (found.task.normalized, found.head.pooling) == (False, "mean")
    with pytest.raises(AdapterError, match="has a head with the pooling mean, and --pooling is max"):
        import_adapter(Import("peft", path, "vectors", options=TaskOptions(pooling="max")), bert)


def test_a_pooling_other_than_the_heads_is_refused(save_peft: SavePeft, bert: Backbone) -> None:
    """It is not ignored; the same pooling is accepted."""
    path = save_peft({})
    own = import_adapter(Import("peft", path, "labels"), bert).manifest.head.pooling
    with pytest.raises(
        AdapterError, match=f"has a head with the pooling {own}, and --pooling is max; --pooling is for"
    ):
        import_adapter(Import("peft", path, "labels", options=TaskOptions(pooling="max")), bert)
    assert import_adapter(Import("peft", path, "labels", options=TaskOptions(pooling=own)), bert).manifest


@pytest.mark.parametrize(
    ("family", "module"), [("bert", "encoder.layer.0.attention.self.query"), ("modernbert", "layers.0.attn.Wo")]
)
def test_features_are_pooled_as_those_of_the_backbone(family, module, save_peft, request):
    """A sentence-transformers backbone of any family names its pooling."""
    backbone: Backbone = request.getfixturevalue(family)
    dropped = ("bert.encoder.layer.0.attention.self.query.lora_A", "bert.encoder.layer.0.attention.self.query.lora_B")
    tensors = {f"base_model.model.{name}.weight": None for name in (*dropped, "classifier")}
    tensors |= {
        f"{CLASSIFIER}.bias": None,
        f"base_model.model.{module}.lora_A.weight": torch.randn(2, 48),
        f"base_model.model.{module}.lora_B.weight": torch.randn(48, 2),
    }
    path = save_peft(tensors, task_type="FEATURE_EXTRACTION")
    trained = replace(backbone, config=replace(backbone.config, sentence_pooling="mean"))
    assert import_adapter(Import("peft", path, "vectors"), trained).manifest.head.pooling == "mean"


def test_other_modules_are_refused(bare: Path, bert: Backbone, tmp_path: Path) -> None:
    head = _save_sentence_model(tmp_path / "model")
    modules = head / "modules.json"
    modules.write_text(modules.read_text().replace("models.Normalize", "models.LSTM"))
    with pytest.raises(AdapterError, match="has the modules Transformer, Pooling, LSTM; supported are"):
        import_adapter(Import("peft", bare, "vectors", head=head), bert)
    modules.write_text('{"type": 1}')
    with pytest.raises(AdapterError, match="is not a list of modules"):
        import_adapter(Import("peft", bare, "vectors", head=head), bert)
