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
    def num_norms(self) -> int:
        """The embedding norm, then two norms a layer."""
        return 2 * self.num_layers + 1

    @property
    def first_position(self) -> int:
        """RoBERTa counts positions from the one after its padding index, BERT from zero."""
        return self.pad_token_id + 1 if self.family == "roberta" else 0

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
    except (ValueError, OSError) as error:
        raise BackboneError(f"{path} cannot be read as JSON: {error}") from None
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
    pad = raw.get("pad_token_id")
    return BackboneConfig(
        family=family,
        pad_token_id=(1 if family == "roberta" else 0) if pad is None else int(pad),
        norm_eps=float(raw.get("layer_norm_eps", 1e-12)),
        **values,
    )


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
