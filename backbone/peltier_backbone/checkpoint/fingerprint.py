"""The hash that identifies a frozen backbone: an adapter fits only the weights it was trained on."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple

import torch

from peltier_backbone.checkpoint.deberta_config import DebertaConfig
from peltier_backbone.checkpoint.modernbert_config import ModernBertConfig
from peltier_backbone.checkpoint.shape import (
    POST_NORM_FAMILIES,
    ROTARY_BERT_FAMILIES,
    TEXT_FAMILIES,
    BackboneConfig,
    Family,
)

# An explicit list: a field that a later version adds must not change the fingerprints of existing adapters.
_COMMON = (
    "family",
    "vocab_size",
    "hidden_size",
    "num_layers",
    "num_heads",
    "intermediate_size",
    "pad_token_id",
    "norm_eps",
)
_BERT = ("max_positions", "num_token_types")
_T5 = (
    "num_decoder_layers",
    "kv_size",
    "num_buckets",
    "max_distance",
    "gated",
    "activation",
    "tied",
    "start_token_id",
    "eos_token_id",
)
_MODERNBERT = ("window", "is_local", "global_theta", "local_theta")
_FIELDS: dict[Family, tuple[str, ...]] = dict.fromkeys(POST_NORM_FAMILIES, _COMMON + _BERT)
_FIELDS["deberta-v2"] += ("embedding_size", "num_buckets", "reach", "kinds", "shares_maps")
_FIELDS["deberta-v2"] += ("norms_distances", "places_tokens")
_FIELDS["electra"] += ("embedding_size",)
_FIELDS |= dict.fromkeys(ROTARY_BERT_FAMILIES, (*_COMMON, "num_token_types", "theta", "slowdown"))
_FIELDS |= dict.fromkeys(TEXT_FAMILIES, _COMMON + _T5)
_FIELDS["modernbert"] = _COMMON + _MODERNBERT
_FIELDS["eurobert"] = (*_COMMON, "num_key_heads", "global_theta", "slowdown")
_FIELDS["umt5"] += ("scaled",)


def fingerprint(config: BackboneConfig, tensors: Mapping[str, torch.Tensor]) -> str:
    """`sha256:<hex>` of the configuration and of the tensors sorted by name, in their stored dtype."""
    shape = {name: getattr(config, name) for name in _FIELDS[config.family]}
    if isinstance(config, ModernBertConfig) and config.global_yarn is not None:
        shape["global_yarn"] = astuple(config.global_yarn)
    if isinstance(config, DebertaConfig) and config.convolution_size:
        shape["convolution"] = (config.convolution_size, config.convolution_activation)
    digest = hashlib.sha256(json.dumps(shape, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return f"sha256:{digest.hexdigest()}"
