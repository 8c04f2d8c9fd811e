"""The fields of a checkpoint's `config.json` that the forward pass needs; imports no torch."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from peltier_backbone.checkpoint.bert_config import BertConfig, parse_bert
from peltier_backbone.checkpoint.deberta_config import DebertaConfig, parse_deberta
from peltier_backbone.checkpoint.eurobert_config import EuroBertConfig, parse_eurobert
from peltier_backbone.checkpoint.fields import Fields
from peltier_backbone.checkpoint.modernbert_config import ModernBertConfig, parse_modernbert
from peltier_backbone.checkpoint.rotary_bert_config import RotaryBertConfig, parse_rotary_bert
from peltier_backbone.checkpoint.sentence_files import (
    read_default_prompt,
    read_sentence_pooling,
    read_sentence_prompts,
    read_unserved_module,
)
from peltier_backbone.checkpoint.shape import (
    POST_NORM_FAMILIES,
    ROTARY_BERT_FAMILIES,
    TEXT_FAMILIES,
    BackboneConfig,
    Family,
)
from peltier_backbone.checkpoint.t5_config import T5Config, parse_t5
from peltier_backbone.errors import BackboneError

__all__ = [
    "BackboneConfig",
    "BertConfig",
    "Config",
    "DebertaConfig",
    "EuroBertConfig",
    "Family",
    "ModernBertConfig",
    "RotaryBertConfig",
    "T5Config",
    "load_config",
    "parse_config",
]

Config = BertConfig | ModernBertConfig | T5Config
_Parse = Callable[[Fields], Config]
_PARSERS: dict[str, _Parse] = {family: partial(parse_bert, family=family) for family in POST_NORM_FAMILIES}
_PARSERS |= {family: partial(parse_rotary_bert, family=family) for family in ROTARY_BERT_FAMILIES}
_PARSERS["deberta-v2"] = parse_deberta
_PARSERS["modernbert"] = parse_modernbert
_PARSERS["eurobert"] = parse_eurobert
_PARSERS |= {family: partial(parse_t5, family=family) for family in TEXT_FAMILIES}
# Families that look supported, and what no forward pass here computes.
_REFUSED: Mapping[str, str] = {
    "longt5": "its encoder attends to near tokens only, or to those and to sums of blocks (encoder_attention_type)",
    "switch_transformers": "its feed-forward layers are mixtures of experts (num_experts)",
    "t5gemma": "its attention caps scores (attn_logit_softcapping), and a second norm ends each of its sub-layers",
}


def load_config(directory: Path) -> Config:
    """Read `config.json` in `directory`, and the modules and prompts of a sentence-transformers encoder. Raises a
    `BackboneError` that names a missing or unsupported field."""
    path = directory / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BackboneError(f"{directory} is not a checkpoint directory: it has no config.json") from None
    except (ValueError, OSError, RecursionError) as error:
        raise BackboneError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(raw, dict):
        raise BackboneError(f"{path} holds no JSON object")
    config = parse_config(raw, str(path))
    if config.generates:
        return config
    pooling, prompts = read_sentence_pooling(directory), read_sentence_prompts(directory)
    default = read_default_prompt(directory, prompts)
    return replace(
        config,
        sentence_pooling=pooling,
        unserved_module=read_unserved_module(directory),
        sentence_prompts=prompts,
        default_prompt=default,
    )


def parse_config(raw: dict[str, Any], source: str) -> Config:
    """Build the configuration from a Hugging Face dictionary read from `source`."""
    fields, family = Fields(raw, source), raw.get("model_type")
    if isinstance(family, str) and family in _REFUSED:
        raise fields.error(f"model_type {family!r} is not supported: {_REFUSED[family]}")
    parse = _PARSERS.get(family) if isinstance(family, str) else None
    if parse is None:
        raise fields.error(f"model_type is {family!r}; a backbone is one of {', '.join(_PARSERS)}")
    return parse(fields)
