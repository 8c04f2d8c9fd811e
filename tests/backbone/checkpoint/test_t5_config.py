"""Accepted and refused values of a T5 config.json."""

from typing import Any

import pytest
from peltier_backbone.checkpoint.config import T5Config, parse_config
from peltier_backbone.errors import BackboneError

# The published t5-small says no more than this.
SMALL: dict[str, Any] = {
    "model_type": "t5",
    "vocab_size": 32128,
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 6,
    "num_heads": 8,
    "decoder_start_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "n_positions": 512,
    "relative_attention_num_buckets": 32,
    "layer_norm_epsilon": 1e-6,
}
BASE = {**SMALL, "d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
GATED = {"feed_forward_proj": "gated-gelu"}
FLAN = {**BASE, "d_ff": 2048, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}


def _parse(raw: dict[str, Any]) -> T5Config:
    config = parse_config(raw, "config.json")
    assert isinstance(config, T5Config)
    return config


@pytest.mark.parametrize(("raw", "parameters"), [(SMALL, 60_492_288), (BASE, 222_882_048)], ids=["small", "base"])
def test_published_sizes(raw: dict[str, Any], parameters: int):
    """Parameters with the vocabulary cropped to 32,100, as the papers' percentages take them
    (docs/methods.md#vocabulary)."""
    config = _parse(raw)
    assert (config.vocab_size, config.num_parameters) == (32100, parameters)


def test_a_gated_untied_model_counts_both_projections_and_tables():
    """flan-t5-base has 247,577,856 parameters (its model card), 28 rows of two tables more than we count."""
    assert _parse(FLAN).num_parameters == 247_577_856 - 2 * 28 * 768


def test_common_properties():
    """Blocks, attentions and norms are counted over both stacks, cross-attention included."""
    config = _parse({**FLAN, "d_kv": 32, "num_decoder_layers": 3})
    assert (config.num_blocks, config.num_attentions, config.num_norms) == (15, 18, 2 * 12 + 1 + 3 * 3 + 1)
    assert (config.head_size, config.attention_size, config.expansion_size) == (32, 384, 4096)
    assert config.generates


def test_other_vocabularies_are_kept():
    """Only the published padding is cropped."""
    assert _parse({**SMALL, "vocab_size": 32127}).vocab_size == 32127


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, (False, "relu", True)),
        (GATED, (True, "gelu_new", True)),
        ({**GATED, "dense_act_fn": "gelu_new", "is_gated_act": True}, (True, "gelu_new", True)),
        ({"feed_forward_proj": "gated-silu", "tie_word_embeddings": False}, (True, "silu", False)),
        ({"feed_forward_proj": "gelu"}, (False, "gelu", True)),
        ({"tie_word_embeddings": True, "scale_decoder_outputs": False}, (False, "relu", False)),
        ({"tie_word_embeddings": None}, (False, "relu", True)),
    ],
    ids=str,
)  # fmt: skip
def test_kinds_of_t5(change: dict[str, Any], expected: tuple[bool, str, bool]):
    """v1.0 and v1.1 as published, and as transformers 5 saves them again."""
    config = _parse({**SMALL, **change})
    assert (config.gated, config.activation, config.tied) == expected
    assert config.scaled == config.tied


@pytest.mark.parametrize("tied", [False, True, None])
def test_an_mt5_is_never_tied(tied: bool | None):
    """transformers 5 saves every mT5 as tied."""
    config = _parse({**SMALL, **GATED, "model_type": "mt5", "tie_word_embeddings": tied})
    assert (config.tied, config.scaled) == (False, False)


@pytest.mark.parametrize(("tied", "scaled"), [(False, False), (True, True), (None, True)])
def test_an_umt5_is_scaled_unless_its_file_says_no(tied: bool | None, scaled: bool):
    """As published it is not; transformers 5 scales all, and saves that."""
    config = _parse({**SMALL, **GATED, "model_type": "umt5", "tie_word_embeddings": tied})
    assert (config.tied, config.scaled) == (False, scaled)


def test_defaults_are_those_of_transformers():
    """What old configurations leave out, and a decoder of its own depth and start token."""
    bare = {
        key: SMALL[key] for key in ("model_type", "vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_heads")
    }
    assert _parse({**bare, "n_positions": SMALL["n_positions"]}) == _parse(SMALL)
    assert _parse(bare).max_tokens == 1024
    changed = _parse({**bare, "pad_token_id": 5, "num_decoder_layers": 2, "n_positions": 64})
    assert (changed.start_token_id, changed.num_decoder_layers, changed.max_tokens) == (5, 2, 64)


def test_a_token_of_the_configuration_has_a_row():
    """A start token that was added behind the published vocabulary keeps the rows up to its own."""
    assert _parse({**SMALL, "decoder_start_token_id": 32100}).vocab_size == 32101


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"feed_forward_proj": "gated-tanh"}, "feed_forward_proj is 'gated-tanh'"),
        ({"feed_forward_proj": "gated"}, "feed_forward_proj is 'gated'"),
        ({"dense_act_fn": "silu"}, "dense_act_fn is 'silu'; only 'relu' is served"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder is False"),
        ({"num_hidden_layers": 40}, "num_hidden_layers is 40; only "),
        ({"d_kv": 0}, "d_kv is 0; it must be a positive integer"),
        ({"d_model": None}, "d_model is None"),
        ({"eos_token_id": [1, 2]}, "eos_token_id is [1, 2]; it must be a token id or null"),
        ({"eos_token_id": 32128}, "eos_token_id is 32128; the vocabulary has 32128 entries"),
        ({"decoder_start_token_id": 40000}, "decoder_start_token_id is 40000"),
        ({"layer_norm_epsilon": 0}, "layer_norm_epsilon is 0"),
        ({"relative_attention_num_buckets": 2}, "have no logarithmic half"),
        ({"relative_attention_max_distance": 16}, "have no logarithmic half"),
    ],
    ids=str,
)
def test_unsupported_values_are_named(change: dict[str, Any], words: str):
    """A refusal names the file, the key and the value."""
    with pytest.raises(BackboneError, match=r"^config\.json: ") as caught:
        parse_config({**SMALL, **change}, "config.json")
    assert words in str(caught.value)
