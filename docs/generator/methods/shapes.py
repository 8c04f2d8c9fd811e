"""Shapes of published backbones, on which methods are drawn and counted."""

from collections.abc import Mapping
from typing import Any

from peltier_backbone.checkpoint.config import BackboneConfig, parse_config

_FILES: Mapping[str, dict[str, Any]] = {
    "BERT-base": {
        "model_type": "bert", "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2,
    },
    "T5-base": {
        "model_type": "t5", "vocab_size": 32128, "d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12,
        "num_heads": 12,
    },
}  # fmt: skip
SHAPES: Mapping[str, BackboneConfig] = {name: parse_config(file, "config.json") for name, file in _FILES.items()}
BERT, T5 = SHAPES["BERT-base"], SHAPES["T5-base"]
