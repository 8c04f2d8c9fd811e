"""Heads of SPLADEs, compared with transformers and sentence-transformers on random weights."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.answers import terms
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.run import Import, TaskOptions, import_adapter
from peltier_adapters.importers.splade import read_splade
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM, BertModel

from tests.adapters_store.importers.conftest import TEXTS, outputs

MASKED = ("bert", "distilbert", "roberta", "mpnet", "modernbert")


@torch.no_grad()
def save(kind: type, family: str, request: pytest.FixtureRequest, directory: Path, **settings: Any) -> Path:
    """A model of the class `kind` with random weights in the small shape of a family, and its tokenizer."""
    source: Path = request.getfixturevalue(f"{family}_directory")
    torch.manual_seed(7)
    model = kind.from_pretrained(source, **settings)  # type: ignore[attr-defined]
    for name, weight in model.named_parameters():
        weight.copy_(torch.randn_like(weight) * 0.2 + ("norm" in name.lower() and name.endswith("weight")))
    model.save_pretrained(directory)
    for file in source.iterdir():
        if not file.name.endswith((".safetensors", ".bin")) and file.name != "config.json":
            shutil.copy(file, directory)
    return directory


def weights(wanted: Import, backbone: Backbone) -> torch.Tensor:
    """The weight of each entry of the vocabulary for each of `TEXTS`, as served."""
    found = torch.zeros(len(TEXTS), backbone.config.vocab_size)
    for row, output in zip(found, outputs(wanted, backbone), strict=True):
        read = terms.read(output)
        row[read.indices] = read.weights
    return found


@pytest.mark.parametrize("family", MASKED)
@torch.no_grad()
def test_a_masked_language_model_is_a_sparse_embedding(family, tmp_path, request):
    """Its terms have the weights of SPLADE's equations, computed by transformers."""
    path = save(AutoModelForMaskedLM, family, request, tmp_path / "splade")
    backbone = load_backbone(str(path))
    wanted = Import("splade", path, "terms", options=TaskOptions(terms=backbone.config.vocab_size))
    manifest = import_adapter(wanted, backbone).manifest
    assert (manifest.task.type, manifest.preset, [part.kind for part in manifest.parts]) == (
        "sparse-embedding",
        "splade",
        ["head"],
    )
    model = AutoModelForMaskedLM.from_pretrained(path).eval()
    logits = [model(torch.tensor([backbone.tokenizer.encode(text).ids])).logits[0] for text in TEXTS]
    expected = torch.stack([one.amax(0).relu().log1p() for one in logits])
    assert (expected > 0).any(1).all()
    torch.testing.assert_close(weights(wanted, backbone), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("family", MASKED)
def test_a_head_without_one_of_its_tensors_is_refused(family, tmp_path, request):
    """A bias that is missing is not taken for zeros."""
    path = save(AutoModelForMaskedLM, family, request, tmp_path / "splade")
    backbone, whole = load_backbone(str(path)), load_file(path / "model.safetensors")
    own = [name for name in whole if re.match(r"cls\.|vocab_|lm_head\.|head\.|decoder\.", name)]
    assert len(own) == {"modernbert": 3}.get(family, 5)
    for name in own:
        save_file({other: one for other, one in whole.items() if other != name}, path / "model.safetensors")
        with pytest.raises(AdapterError, match=r"is missing|has no head of a masked language model"):
            read_splade(path, backbone)


# As sentence-transformers writes them beside a masked language model.
MASKED_MODULE = {"type": "sentence_transformers.sparse_encoder.modules.MLMTransformer", "path": ""}
POOLING_MODULE = {
    "type": "sentence_transformers.sparse_encoder.modules.SpladePooling", "path": "1_SpladePooling"
}  # fmt: skip
POOLING = {"pooling_strategy": "max", "activation_function": "relu", "embedding_dimension": None}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A SPLADE in the format of sentence-transformers."""
    directory = save(AutoModelForMaskedLM, "bert", request, tmp_path_factory.mktemp("splade"))
    (directory / "modules.json").write_text(json.dumps([MASKED_MODULE, POOLING_MODULE]))
    (directory / "1_SpladePooling").mkdir()
    (directory / "1_SpladePooling" / "config.json").write_text(json.dumps(POOLING))
    return directory


@pytest.fixture
def splade(saved: Path, tmp_path: Path) -> Path:
    """The same, which the test may change."""
    return shutil.copytree(saved, tmp_path / "splade")


def all_terms(path: Path) -> torch.Tensor:
    """The `weights` of a model on its own backbone, with every term."""
    backbone = load_backbone(str(path))
    options = TaskOptions(terms=backbone.config.vocab_size)
    return weights(Import("splade", path, "terms", options=options), backbone)


def test_modules_of_a_splade_change_nothing(splade: Path) -> None:
    """The same texts have the same terms with the same weights as those of the masked language model alone."""
    expected = all_terms(splade)
    (splade / "modules.json").unlink()
    assert torch.equal(all_terms(splade), expected)


@pytest.mark.slow  # The gate reads files that are written as this library writes them.
def test_a_sparse_encoder_of_sentence_transformers(saved: Path, tmp_path: Path) -> None:
    """The same texts have the same terms with the same weights."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

    path = tmp_path / "encoder"
    SparseEncoder(modules=[MLMTransformer(str(saved)), SpladePooling("max")]).save(str(path))
    assert json.loads((path / "1_SpladePooling" / "config.json").read_text()) == POOLING
    expected = SparseEncoder(str(path), device="cpu").encode(list(TEXTS), convert_to_sparse_tensor=False)
    torch.testing.assert_close(all_terms(path), torch.as_tensor(expected), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "changed", [{"pooling_strategy": "sum"}, {"activation_function": "log1p_relu"}, {"new_scale": 2.0}]
)
def test_another_pooling_of_terms_is_refused(splade: Path, changed: dict[str, Any]) -> None:
    path = splade / "1_SpladePooling" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(AdapterError, match=f"{next(iter(changed))} is .*, which (is not supported|this importer does)"):
        import_adapter(Import("splade", splade, "terms"), load_backbone(str(splade)))


def test_an_output_layer_of_its_own_is_refused(splade: Path) -> None:
    """Terms are scored by the backbone's token embeddings."""
    tensors = load_file(splade / "model.safetensors")
    own = tensors["bert.embeddings.word_embeddings.weight"] + 1
    save_file(tensors | {"cls.predictions.decoder.weight": own}, splade / "model.safetensors", {"format": "pt"})
    with pytest.raises(AdapterError, match=r"cls\.predictions\.decoder\.weight is not the token embeddings"):
        import_adapter(Import("splade", splade, "terms"), load_backbone(str(splade)))


def test_a_head_needs_the_weights_of_its_model(splade: Path, bert: Backbone) -> None:
    """On other weights it would answer something else, without an error."""
    with pytest.raises(AdapterError, match=rf"has other weights than the backbone .*: give --backbone {splade}"):
        import_adapter(Import("splade", splade, "terms"), bert)


def test_a_model_without_a_head_is_refused(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = save(BertModel, "bert", request, tmp_path / "model")
    with pytest.raises(AdapterError, match="has no head of a masked language model that is supported"):
        import_adapter(Import("splade", path, "nothing"), load_backbone(str(path)))


@pytest.mark.parametrize(
    ("modules", "shown"),
    [
        ([], "none"),
        ([{"type": "sentence_transformers.models.Router", "path": ""}], "Router in ''"),
        ([MASKED_MODULE | {"path": "0_MLM"}, POOLING_MODULE], "MLMTransformer in '0_MLM', Splade"),
    ],
)
def test_modules_of_another_model_are_refused(splade: Path, modules: list[Any], shown: str) -> None:
    """Sentence-transformers would compute something else from them, or from other files."""
    (splade / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(AdapterError, match=f"has the modules {shown}.*; those of a SPLADE are MLMTransformer in ''"):
        import_adapter(Import("splade", splade, "terms"), load_backbone(str(splade)))


def test_a_tensor_that_the_head_does_not_read_is_refused(splade: Path) -> None:
    """The model would answer something else with it."""
    tensors = load_file(splade / "model.safetensors") | {"cls.predictions.extra.weight": torch.ones(2)}
    save_file(tensors, splade / "model.safetensors", {"format": "pt"})
    with pytest.raises(AdapterError, match=r"the head has the tensor 'cls\.predictions\.extra\.weight'"):
        import_adapter(Import("splade", splade, "terms"), load_backbone(str(splade)))


def test_another_activation_is_refused(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The head of a ModernBERT has an activation of its own."""
    path = save(AutoModelForMaskedLM, "modernbert", request, tmp_path / "splade", classifier_activation="silu")
    with pytest.raises(AdapterError, match="classifier_activation is 'silu'; supported is 'gelu'"):
        import_adapter(Import("splade", path, "terms"), load_backbone(str(path)))


def test_shards_are_read(splade: Path, tmp_path: Path) -> None:
    model = AutoModelForMaskedLM.from_pretrained(splade)
    (splade / "model.safetensors").unlink()
    model.save_pretrained(splade, max_shard_size="20KB")
    assert len(list(splade.glob("model-*.safetensors"))) > 1
    artifact = import_adapter(Import("splade", splade, "terms"), load_backbone(str(splade)))
    assert artifact.manifest.task.type == "sparse-embedding"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (TaskOptions(terms=7), "terms is 7; it must be from 8 to 1024"),
        (TaskOptions(task_type="classification"), "was given; the checkpoint's head is for sparse-embedding"),
        (TaskOptions(task_type="multi-vector-embedding"), "was given; the checkpoint's head is for sparse-embedding"),
    ],
)
def test_options_that_do_not_fit_are_refused(splade: Path, options: TaskOptions, message: str) -> None:
    with pytest.raises(AdapterError, match=message):
        import_adapter(Import("splade", splade, "terms", options=options), load_backbone(str(splade)))


def test_a_t5_has_no_head(t5: Backbone, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="cannot be imported for a T5"):
        import_adapter(Import("splade", tmp_path, "text"), t5)
