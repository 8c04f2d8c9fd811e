"""Names and kinds of labels in a foreign configuration, compared with the pipelines of transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.answers.labels import answer
from peltier_adapters.artifact.manifest import Manifest
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.run import Import, TaskOptions, import_adapter
from peltier_adapters.importers.shared.checkpoint import ConfigFile
from peltier_adapters.importers.shared.labels import label_names
from peltier_backbone.backbone import Backbone
from safetensors.torch import load_file
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast, TextClassificationPipeline

from tests.adapters_store.importers.conftest import TEXTS, outputs

NAMES = ("no", "maybe", "yes")
BY_ID = {str(number): name for number, name in enumerate(NAMES)}
BY_NAME = {name: number for number, name in enumerate(NAMES)}
OTHER = {"yes": 0, "maybe": 1, "no": 2}
PLACEHOLDERS = {f"LABEL_{number}": number for number in range(3)}


def _save_model(bert_directory: Path, folder: Path, num_labels: int = 3, **settings: Any) -> Path:
    """A model of transformers with a classifier, whose configuration has `settings`; None removes one."""
    torch.manual_seed(0)
    BertForSequenceClassification.from_pretrained(bert_directory, num_labels=num_labels).save_pretrained(folder)
    file = folder / "config.json"
    config = json.loads(file.read_text()) | {"id2label": None, "label2id": None} | settings
    file.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return folder


@torch.no_grad()
def _pipeline(folder: Path, bare: Path, bert_directory: Path) -> Any:
    """The pipeline of transformers for the model, with the adapter merged into it."""
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    lora = {name.rsplit(".", 2)[1]: tensor for name, tensor in load_file(bare / "adapter_model.safetensors").items()}
    model.bert.encoder.layer[0].attention.self.query.weight += 2 * lora["lora_B"] @ lora["lora_A"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(bert_directory / "tokenizer.json"))
    return TextClassificationPipeline(model=model, tokenizer=tokenizer)


def _import(bare: Path, head: Path, backbone: Backbone, **options: Any) -> Manifest:
    return import_adapter(Import("peft", bare, "labels", head, options=TaskOptions(**options)), backbone).manifest


@pytest.mark.parametrize(
    "settings",
    [
        {"id2label": BY_ID, "label2id": BY_NAME},
        {"id2label": BY_ID, "label2id": PLACEHOLDERS},
        {"id2label": BY_ID},
        {"id2label": BY_ID, "label2id": BY_NAME, "problem_type": "multi_label_classification"},
        {"id2label": BY_ID, "label2id": BY_NAME, "problem_type": "single_label_classification"},
        {"id2label": dict(reversed(BY_ID.items())), "problem_type": "multi_label_classification", "architectures": []},
        {"id2label": {"0": "LABEL_1", "1": "LABEL_0", "2": "LABEL_2"}},
    ],
)
def test_answers_have_the_labels_and_scores_of_the_pipeline(settings, bare, bert, bert_directory, tmp_path):
    """A softmax or a sigmoid, as `problem_type` says, by the names of `id2label`."""
    folder = _save_model(bert_directory, tmp_path / "model", **settings)
    wanted = Import("peft", bare, "labels", folder)
    task = import_adapter(wanted, bert).manifest.task
    pipeline = _pipeline(folder, bare, bert_directory)
    for text, found in zip(TEXTS, outputs(wanted, bert), strict=True):
        expected = {one["label"]: one["score"] for one in pipeline(text, top_k=None)}
        assert answer(task, found)["scores"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"label2id": BY_NAME},
        {"label2id": {"yes": "2", "maybe": "1", "no": "0"}},
        {"id2label": list(NAMES)},
        {"label2id": list(NAMES)},
        {"id2label": list(PLACEHOLDERS), "label2id": BY_NAME},
        {"id2label": {}, "label2id": BY_NAME, "num_labels": 3},
        {"id2label": BY_ID, "label2id": {"NO": 0, " Maybe": 1, "yes\n": 2}},
    ],
)
def test_names_are_found_in_either_table(settings: dict[str, Any]) -> None:
    """Ids are integers or texts, a table may be a list, and case and white space are those of `id2label`."""
    assert label_names(ConfigFile(settings, "config.json"), 3) == NAMES


@pytest.mark.parametrize("settings", [{}, {"id2label": None}, {"label2id": PLACEHOLDERS}, {"id2label": {0: "LABEL_0"}}])
def test_placeholders_are_no_names(settings: dict[str, Any]) -> None:
    """transformers writes them where nobody has named the labels."""
    outputs = len(settings.get("id2label") or range(3))
    assert label_names(ConfigFile(settings, "config.json"), outputs) is None


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"id2label": BY_ID, "label2id": OTHER},
            r'id2label has the labels \["no", "maybe", "yes"\], and label2id \["yes", "maybe", "no"\]; they must be',
        ),
        (
            {"id2label": {"0": "no", "2": "yes", "3": "maybe"}},
            r"ids of id2label are \['0', '2', '3'\]; they must count",
        ),
        ({"id2label": {"0": "no", "00": "yes", "1": "maybe"}}, "ids of id2label are"),
        ({"label2id": {"no": 0, "NO": 0, "yes": 1}}, r"ids of label2id are \[0, 0, 1\]; they must count from 0, each"),
        ({"label2id": {"no": False, "maybe": True, "yes": 2}}, r"ids of label2id are \[False, True, 2\]"),
        ({"label2id": {"no": 0.0, "maybe": 1.0, "yes": 2.0}}, "ids of label2id are"),
        ({"id2label": {"0": "no", "1": "yes"}}, "id2label has 2 labels; the head has 3 outputs"),
        ({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, "id2label has 2 labels; the head has 3 outputs"),
        ({"label2id": {"no": 0, "yes": 1}}, "label2id has 2 labels; the head has 3 outputs"),
        ({"num_labels": 2}, "num_labels is 2; the head has 3 outputs"),
        ({"id2label": "no,maybe,yes"}, "id2label is 'no,maybe,yes'; it must map ids and labels"),
        ({"id2label": ["no", None, "yes"]}, "id2label has the label None; a label is a text"),
    ],
)
def test_names_that_are_not_one_for_each_output_are_refused(settings: dict[str, Any], sentence: str) -> None:
    """No label is answered by a name that another table, or another count of outputs, gives to another."""
    with pytest.raises(AdapterError, match=f"config.json: .*{sentence}"):
        label_names(ConfigFile(settings, "config.json"), 3)


def test_two_labels_of_one_name_are_refused(bare: Path, bert: Backbone, bert_directory: Path, tmp_path: Path) -> None:
    """transformers then loses an id in `label2id`."""
    folder = _save_model(bert_directory, tmp_path / "model", id2label=["no", "no", "yes"])
    with pytest.raises(AdapterError, match="id2label gives two outputs the name 'no'; each needs a name of its own"):
        _import(bare, folder, bert)


@pytest.mark.parametrize(
    "settings",
    [
        {"id2label": BY_ID, "label2id": OTHER},
        {"id2label": {"0": "no", "1": "no", "2": "yes"}, "label2id": {"no": 1, "yes": 2}},
        {"id2label": {"1": "no", "2": "maybe", "3": "yes"}},
        {"id2label": BY_ID, "label2id": BY_NAME | {"never": 3}},
    ],
)
def test_given_labels_take_the_place_of_tables_that_contradict(settings, bare, bert, bert_directory, tmp_path, caplog):
    """A line says so; there must still be one label for each output."""
    folder = _save_model(bert_directory, tmp_path / "model", **settings)
    with pytest.raises(AdapterError, match=r"config\.json: "):
        _import(bare, folder, bert)
    with pytest.raises(AdapterError, match="2 labels were given; the checkpoint's head has 3 outputs"):
        _import(bare, folder, bert, labels=("a", "b"))
    assert _import(bare, folder, bert, labels=("a", "b", "c")).task.labels == ("a", "b", "c")
    assert caplog.messages[-1].endswith("; the labels are those that were given: a, b, c")


@pytest.mark.parametrize(
    ("num_labels", "problem", "sentence"),
    [
        (3, "regression", "problem_type is 'regression'; the head has 3 outputs, which is not supported"),
        (1, "single_label_classification", "'single_label_classification'; the head has 1 outputs, which is not supp"),
        (3, "multilabel", "problem_type is 'multilabel'; it is one of single_label_classification, multi_label_class"),
    ],
)
def test_problems_that_do_not_fit_the_outputs_are_refused(
    num_labels: int, problem: str, sentence: str, bare: Path, bert: Backbone, bert_directory: Path, tmp_path: Path
) -> None:
    """Several numbers would be answered as the probabilities of classes."""
    folder = _save_model(bert_directory, tmp_path / "model", num_labels, problem_type=problem)
    with pytest.raises(AdapterError, match=sentence):
        _import(bare, folder, bert)


@pytest.mark.parametrize(
    ("num_labels", "problem", "given", "found"),
    [
        (1, "regression", None, "regression"),
        (1, "regression", "ranking", "ranking"),
        (1, "multi_label_classification", None, "multilabel"),
        (1, None, None, "regression"),
        (3, "multi_label_classification", "multilabel", "multilabel"),
        (3, None, "multilabel", "multilabel"),
    ],
)
def test_the_problem_is_the_type_of_the_task(num_labels, problem, given, found, bare, bert, bert_directory, tmp_path):
    """A head of one output may also rank; without a problem the options decide."""
    folder = _save_model(bert_directory, tmp_path / "model", num_labels, problem_type=problem)
    assert _import(bare, folder, bert, task_type=given).task.type == found


def test_a_type_other_than_the_heads_is_refused(bare, bert, bert_directory, tmp_path):
    """Labels that do not exclude each other are never answered with a softmax."""
    folder = _save_model(bert_directory, tmp_path / "model", problem_type="multi_label_classification")
    with pytest.raises(AdapterError, match="classification was given; the checkpoint's head is for multilabel"):
        _import(bare, folder, bert, task_type="classification")


def test_the_heads_labels_in_another_order_are_refused(bare, bert, bert_directory, tmp_path):
    """Other names are accepted: they are a translation."""
    folder = _save_model(bert_directory, tmp_path / "model", id2label=BY_ID)
    with pytest.raises(AdapterError, match=r"labels yes, maybe, no were given; .* in another order: no, maybe, yes"):
        _import(bare, folder, bert, labels=("yes", "maybe", "no"))
    assert _import(bare, folder, bert, labels=("nein", "vielleicht", "ja")).task.labels == ("nein", "vielleicht", "ja")


def test_a_head_without_names_is_said(bare, bert, bert_directory, tmp_path, caplog):
    """Numbers are the names then."""
    folder = _save_model(bert_directory, tmp_path / "model")
    assert _import(bare, folder, bert).task.labels == ("0", "1", "2")
    said = "the checkpoint names no labels, so they are 0 to 2; --labels names them"
    assert caplog.messages.count(said) == 1
    _import(bare, folder, bert, labels=NAMES)
    assert caplog.messages.count(said) == 1


def test_a_head_of_another_family_is_refused(bare: Path, bert: Backbone, bert_directory: Path, tmp_path: Path) -> None:
    """The activation in a head is that of its family."""
    folder = _save_model(bert_directory, tmp_path / "model", model_type="electra")
    with pytest.raises(AdapterError, match="model_type is 'electra'; this backbone's is 'bert'"):
        _import(bare, folder, bert)


def test_a_head_of_choices_is_refused(bare: Path, bert: Backbone, bert_directory: Path, tmp_path: Path) -> None:
    """Its output is no number of one text."""
    folder = _save_model(bert_directory, tmp_path / "model", 1, architectures=["BertForMultipleChoice"])
    with pytest.raises(AdapterError, match="the head is that of a BertForMultipleChoice, which scores choices"):
        _import(bare, folder, bert)
