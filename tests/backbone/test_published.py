"""Random checkpoints of published shapes, from their config.json: parity with transformers, and parameter counts."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig, load_config
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.load import load_backbone
from peltier_backbone.text.packing import Encoded
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedModel

from tests.support.parity import distance, draw_rows, ours, save
from tests.support.published_configs import CONFIG_FILES

LENGTHS = (1, 2, 17, 33, 5)
# Fewer layers and tokens, by the names that families give them.
_SMALL = {"num_hidden_layers": 2, "n_layers": 2, "num_layers": 2, "num_decoder_layers": 2, "vocab_size": 300}
# The largest have narrower layers here, with heads of their size: two blocks of each half of a UL2 are a billion
# parameters.
_DEBERTA_NARROW = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
_NARROW = {
    "microsoft/deberta-v2-xlarge": _DEBERTA_NARROW, "microsoft/deberta-v2-xxlarge": _DEBERTA_NARROW,
    "EuroBERT/EuroBERT-2.1B": {
        "hidden_size": 768, "intermediate_size": 2048, "num_attention_heads": 6, "num_key_value_heads": 2,
    },
    "google/ul2": {"d_model": 256, "d_ff": 1024, "num_heads": 2},
}  # fmt: skip
ENCODERS = [name for name, file in CONFIG_FILES.items() if not file.get("is_encoder_decoder")]
TEXT_MODELS = [name for name in CONFIG_FILES if name not in ENCODERS]
# The smallest of each kind of layer: BERT's, with relative positions, with disentangled attention, rotary, and T5's.
FULL_SIZE = ("distilbert-base-uncased", "microsoft/mpnet-base", "microsoft/deberta-v3-xsmall", "EuroBERT/EuroBERT-210m",
             "mt5-small")  # fmt: skip


def _of_kinds(names: Sequence[str]) -> list[Any]:
    """The names as parameters: the smallest of each kind of layer, and in the slow suite the others."""
    return [name if name in FULL_SIZE else pytest.param(name, marks=pytest.mark.slow) for name in names]


def _reduced(file: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    small = {**file, **{key: size for key, size in sizes.items() if key in file}}
    last = small["vocab_size"] - 1
    return small | {key: min(number, last) for key, number in small.items() if key.endswith("_token_id")}


def _create(file: Mapping[str, Any]) -> PreTrainedModel:
    """The published model of a config.json, with its pretraining heads and random weights and biases."""
    torch.manual_seed(0)
    model = getattr(transformers, file["architectures"][0])(AutoConfig.for_model(**file))
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            torch.nn.init.normal_(weight, mean=1.0 if name.lower().endswith("norm.weight") else 0.0, std=0.1)
    return model.eval()


def _load(model: PreTrainedModel, file: Mapping[str, Any], directory: Path, tokenizer: Path) -> Backbone:
    """The checkpoint with the published file as its configuration."""
    save(model, directory, tokenizer)
    (directory / "config.json").write_text(json.dumps(file))
    return load_backbone(str(directory))


@torch.inference_mode()
def _encode(model: PreTrainedModel, rows: list[Encoded], config: BackboneConfig) -> Tensor:
    """The encoder in transformers, row by row."""
    states = []
    for row in rows:
        types = {"token_type_ids": torch.tensor([row.types])} if config.typed else {}
        states.append(model.base_model(torch.tensor([row.ids]), **types).last_hidden_state[0])
    return torch.cat(states)


def _assert_parity(name: str, sizes: Mapping[str, int], directory: Path, tokenizer: Path, *, longest: int) -> None:
    file = _reduced(CONFIG_FILES[name], sizes)
    model = _create(file)
    backbone = _load(model, file, directory, tokenizer)
    config = backbone.config
    rows = draw_rows((*LENGTHS, min(config.max_tokens, longest)), config.vocab_size, typed=config.typed)
    assert distance(ours(backbone, rows), _encode(model, rows, config)) < 1e-4


@pytest.mark.parametrize("name", _of_kinds(ENCODERS))
def test_encoders_of_published_shapes_equal_transformers(name: str, tmp_path: Path, bert_directory: Path):
    """With two layers and a small vocabulary, the largest narrower too: hidden states of rows of any length, up to the
    longest of 512 tokens, to 1e-4. Heads of pretraining are left out."""
    _assert_parity(name, _SMALL | _NARROW.get(name, {}), tmp_path, bert_directory, longest=512)


@pytest.mark.slow  # the test above has the same sizes with fewer layers and tokens
@pytest.mark.parametrize("name", [name for name in ENCODERS if name in FULL_SIZE])
def test_encoders_at_full_size_equal_transformers(name: str, tmp_path: Path, bert_directory: Path):
    """All layers and the whole vocabulary, with a row of at most 2048 tokens."""
    _assert_parity(name, {}, tmp_path, bert_directory, longest=2048)


@torch.inference_mode()
def _assert_text_parity(name: str, sizes: Mapping[str, int], directory: Path, tokenizer: Path) -> None:
    file = _reduced(CONFIG_FILES[name], sizes)
    model = _create(file)
    if not file.get("tie_word_embeddings", True):
        model.lm_head.weight = torch.nn.Parameter(0.05 * torch.randn_like(model.shared.weight))
        model.config.tie_word_embeddings = False  # as published; transformers 5 forgets it
    backbone = _load(model, file, directory, tokenizer)
    rows = draw_rows((1, 33, 5), backbone.config.vocab_size)
    texts = torch.tensor([[0, *row.ids[:4], *[7] * (4 - len(row.ids[:4]))] for row in rows])
    packed, t5 = backbone.pack(rows), backbone.t5
    memory = t5.project_kv(packed, t5.encode(packed))
    found = t5.logits(t5.decode(Targets.create(texts.tolist(), None, backbone.device), memory))
    expected = [
        model(torch.tensor([row.ids]), decoder_input_ids=text[None]).logits[0]
        for row, text in zip(rows, texts, strict=True)
    ]
    torch.testing.assert_close(found, torch.cat(expected), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", _of_kinds(TEXT_MODELS))
def test_text_models_of_published_shapes_equal_transformers(name: str, tmp_path: Path, t5_directory: Path):
    """With two blocks a stack and a small vocabulary, UL2's narrower too: teacher-forced logits to 1e-4."""
    _assert_text_parity(name, _SMALL | _NARROW.get(name, {}), tmp_path, t5_directory)


@pytest.mark.slow  # the test above has the same sizes with fewer blocks and tokens
@pytest.mark.parametrize("name", [name for name in TEXT_MODELS if name in FULL_SIZE])
def test_text_models_at_full_size_equal_transformers(name: str, tmp_path: Path, t5_directory: Path):
    """All blocks and the whole vocabulary."""
    _assert_text_parity(name, {}, tmp_path, t5_directory)


def file_entries(name: str) -> int:
    """The entries of the published vocabulary; the last 28 of a T5's 32,128 belong to no token, and are left out."""
    return int(str(CONFIG_FILES[name]["vocab_size"]))


@pytest.mark.parametrize("name", CONFIG_FILES)
def test_parameters_are_those_of_transformers(name: str, tmp_path: Path):
    """The count from config.json alone is the number of elements of the model that transformers makes of it."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG_FILES[name]))
    config = load_config(tmp_path)
    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model(**CONFIG_FILES[name]))
    own = [weight for key, weight in model.named_parameters() if config.pooled or not key.startswith("pooler.")]
    if config.generates and not CONFIG_FILES[name].get("tie_word_embeddings", True):
        own.append(model.shared.weight)  # the output layer, which transformers 5 ties
    tables = sum(weight.shape == (file_entries(name), config.hidden_size) for weight in own)
    unused = tables * (file_entries(name) - config.vocab_size) * config.hidden_size
    assert config.num_parameters == sum(weight.numel() for weight in own) - unused
