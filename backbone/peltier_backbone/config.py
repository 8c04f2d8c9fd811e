"""What the forward pass must know of a checkpoint's `config.json`; imports no torch."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from peltier_backbone.errors import BackboneError

Family = Literal["bert", "roberta"]

_INTEGERS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "num_token_types": "type_vocab_size",
}


@dataclass(frozen=True)
class BackboneConfig:
    """The shape of an encoder. Sizes are counts of elements, never bytes."""

    family: Family
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_positions: int
    num_token_types: int
    pad_token_id: int
    norm_eps: float

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_heads

    @property
    def num_parameters(self) -> int:
        """Elements of the encoder; BERT's pooler is part of it, RoBERTa's classifiers have none."""
        hidden, inner = self.hidden_size, self.intermediate_size
        embeddings = (self.vocab_size + self.max_positions + self.num_token_types) * hidden
        layer = 4 * hidden * (hidden + 1) + 2 * hidden * inner + inner + hidden
        pooler = hidden * (hidden + 1) if self.family == "bert" else 0
        return embeddings + self.num_layers * layer + 2 * hidden * self.num_norms + pooler

    @property
    def num_norms(self) -> int:
        """The embedding norm, then two norms a layer."""
        return 2 * self.num_layers + 1

    @property
    def first_position(self) -> int:
        """RoBERTa counts positions from the one after its padding index, BERT from zero."""
        return self.pad_token_id + 1 if self.family == "roberta" else 0

    @property
    def typed(self) -> bool:
        """RoBERTa reads every token as type zero, whatever its tokenizer says of pairs."""
        return self.family == "bert" and self.num_token_types > 1

    @property
    def max_tokens(self) -> int:
        """The longest row that has position embeddings."""
        return self.max_positions - self.first_position


def load_config(directory: Path) -> BackboneConfig:
    """Read `config.json` in `directory`; a `BackboneError` names what is missing or unsupported."""
    path = directory / "config.json"
    try:
        raw = json.loads(path.read_text())
    except FileNotFoundError:
        raise BackboneError(f"{directory} is not a checkpoint directory: it has no config.json") from None
    except (ValueError, OSError, RecursionError) as error:
        raise BackboneError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(raw, dict):
        raise BackboneError(f"{path} holds no JSON object")
    return parse_config(raw, str(path))


def parse_config(raw: dict[str, Any], source: str) -> BackboneConfig:
    """Build the configuration from a Hugging Face dictionary read from `source`."""
    family = raw.get("model_type")
    if family not in ("bert", "roberta"):
        raise BackboneError(f"{source}: model_type is {family!r}; a backbone is 'bert' or 'roberta'")
    _refuse_unsupported(raw, source)
    values = {name: _integer(raw, key, source) for name, key in _INTEGERS.items()}
    if values["hidden_size"] % values["num_heads"]:
        raise BackboneError(
            f"{source}: hidden_size {values['hidden_size']} is not divisible by its {values['num_heads']} heads"
        )
    config = BackboneConfig(
        family=family,
        pad_token_id=_padding(raw, source, 1 if family == "roberta" else 0),
        norm_eps=_epsilon(raw, source),
        **values,
    )
    if config.max_tokens < 1:
        raise BackboneError(f"{source}: max_position_embeddings {config.max_positions} leaves no position for a token")
    return config


def _padding(raw: dict[str, Any], source: str, default: int) -> int:
    value = raw.get("pad_token_id")
    if value is None:
        return default
    if not isinstance(value, int) or value < 0:
        raise BackboneError(f"{source}: pad_token_id is {value!r}; it must be a token id or null")
    return value


def _epsilon(raw: dict[str, Any], source: str) -> float:
    value = raw.get("layer_norm_eps", 1e-12)
    if not isinstance(value, float) or not 0 < value < 1:
        raise BackboneError(f"{source}: layer_norm_eps is {value!r}; it must be a number between 0 and 1")
    return value


def _integer(raw: dict[str, Any], key: str, source: str) -> int:
    value = raw.get(key)
    if not isinstance(value, int) or value < 1:
        raise BackboneError(f"{source}: {key} is {value!r}; it must be a positive integer")
    return value


def _refuse_unsupported(raw: dict[str, Any], source: str) -> None:
    rules = {
        "hidden_act": ("gelu", raw.get("hidden_act", "gelu")),
        "position_embedding_type": ("absolute", raw.get("position_embedding_type") or "absolute"),
        "is_decoder": (False, bool(raw.get("is_decoder", False))),
    }
    for key, (served, found) in rules.items():
        if found != served:
            raise BackboneError(f"{source}: {key} is {found!r}; only {served!r} is served")
