"""Accepted and refused values of config.json."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from peltier_backbone.checkpoint.config import load_config, parse_config
from peltier_backbone.errors import BackboneError

GOOD: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": 30,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
}

DISTILBERT = {"model_type": "distilbert", "vocab_size": 30, "dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12}
DEBERTA = {
    **GOOD,
    "model_type": "deberta-v2",
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_buckets": 8,
    "pos_att_type": "p2c|c2p",
}
EUROBERT = {**GOOD, "model_type": "eurobert"}
NOMIC = {**GOOD, "model_type": "nomic_bert"}
MODERNBERT = {**GOOD, "model_type": "modernbert", "local_attention": 8}
T5 = {
    "model_type": "t5",
    "vocab_size": 30,
    "d_model": 8,
    "num_layers": 1,
    "num_heads": 2,
    "d_ff": 12,
    "d_kv": 4,
    "is_encoder_decoder": True,
}


def test_sizes_are_read():
    """Each size comes from its Hugging Face key."""
    config = parse_config(GOOD, "config.json")
    assert (config.hidden_size, config.num_layers, config.head_size, config.num_norms) == (8, 2, 4, 5)


@pytest.mark.parametrize(
    ("file", "rate"),
    [
        (GOOD, 0.1),
        ({**GOOD, "hidden_dropout_prob": 0.3}, 0.3),
        ({**DISTILBERT, "max_position_embeddings": 16, "dropout": 0}, 0.0),
        ({**MODERNBERT, "embedding_dropout": 0.2}, 0.0),
        ({**T5, "dropout_rate": 0.2}, 0.2),
    ],
)
def test_the_rate_of_dropout_is_the_checkpoints(file: dict[str, Any], rate: float):
    """Without a value it is the default of transformers."""
    assert parse_config(file, "config.json").dropout == rate


@pytest.mark.parametrize(("family", "first", "longest"), [("bert", 0, 16), ("roberta", 2, 14), ("mpnet", 2, 14)])
def test_positions_of_a_family(family: str, first: int, longest: int):
    """RoBERTa and MPNet lose the positions up to their padding index."""
    config = parse_config({**GOOD, "model_type": family}, "config.json")
    assert (config.first_position, config.max_tokens) == (first, longest)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"model_type": "mpnet", "relative_attention_num_buckets": 64},
            "relative_attention_num_buckets is 64; only 32",
        ),
        ({"model_type": "mpnet", "pad_token_id": 0}, "pad_token_id is 0; only 1"),
        ({**MODERNBERT, "sliding_window": 8}, "sliding_window is 8; only 4 is served"),
        ({**DISTILBERT, "max_position_embeddings": 16, "num_hidden_layers": 1}, "num_hidden_layers is 1; only 2 is"),
        ({**DEBERTA, "relative_attention": False}, "relative_attention is False; only True"),
        ({**DEBERTA, "pos_att_type": "p2p|c2p"}, "pos_att_type is 'p2p|c2p'; it is 'c2p', 'p2c' or both"),
        ({**DEBERTA, "conv_kernel_size": 4}, "conv_kernel_size is 4; it must be 0 or odd"),
        ({**DEBERTA, "conv_kernel_size": 3, "conv_groups": 2}, "conv_groups is 2; only 1 is served"),
        ({**DEBERTA, "conv_kernel_size": 3, "conv_act": "relu"}, "conv_act is 'relu'; it is one of tanh, gelu"),
        ({**DEBERTA, "position_buckets": 30}, "30 position_buckets up to max_relative_positions 16 have no"),
        ({**DEBERTA, "share_att_key": "yes"}, "share_att_key is 'yes'; it must be true or false"),
        ({**EUROBERT, "num_key_value_heads": 3}, "num_key_value_heads 3 does not divide its 2 heads"),
        ({**EUROBERT, "head_dim": 8}, "head_dim is 8; only 4 is served"),
        ({**EUROBERT, "attention_bias": True}, "attention_bias is True; only False is served"),
        ({**EUROBERT, "classifier_pooling": "max"}, "classifier_pooling is 'max'; it is one of bos, mean, late"),
        ({**NOMIC, "hidden_act": "gelu"}, "hidden_act is 'gelu'; only 'silu' is served"),
        ({**NOMIC, "rotary_emb_fraction": 0.5}, "rotary_emb_fraction is 0.5; only 1.0 is served"),
        ({**NOMIC, "num_experts": 8}, "num_experts is 8; only 0 is served"),
        ({**NOMIC, "num_attention_heads": 8}, "hidden_size 8 does not give each of 8 heads an even size"),
        (
            {**NOMIC, "rope_parameters": {"rope_type": "yarn"}},
            "rope_parameters is {'rope_type': 'yarn'}; only rope_type",
        ),
        ({**NOMIC, "rope_scaling": {"type": "linear"}}, "factor of rope_scaling is None; it must be a positive number"),
        ({**NOMIC, "rope_theta": 0}, "rope_theta is 0; it must be a positive number"),
        ({"model_type": "bart"}, "model_type is 'bart'; a backbone is one of bert, roberta, xlm-roberta, "),
        ({"model_type": "longt5"}, "model_type 'longt5' is not supported: its encoder attends to near tokens only"),
        (
            {"model_type": "switch_transformers"},
            "'switch_transformers' is not supported: its feed-forward layers are mix",
        ),
        ({"model_type": "t5gemma"}, "model_type 't5gemma' is not supported: its attention caps scores (attn_logit_"),
        ({"model_type": ["bert"]}, "model_type is ['bert']"),
        ({"model_type": None}, "model_type is None"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"hidden_size": "8"}, "hidden_size is '8'"),
        ({"num_attention_heads": 3}, "not divisible by its 3 heads"),
        ({"vocab_size": None}, "vocab_size is None"),
        ({"pad_token_id": "zero"}, "pad_token_id is 'zero'"),
        ({"pad_token_id": -1}, "pad_token_id is -1"),
        ({"layer_norm_eps": "tiny"}, "layer_norm_eps is 'tiny'"),
        ({"hidden_dropout_prob": 1}, "hidden_dropout_prob is 1; it must be at least 0 and below 1"),
        ({"hidden_dropout_prob": "high"}, "hidden_dropout_prob is 'high'"),
        ({"model_type": "roberta", "pad_token_id": 99}, "max_position_embeddings 16 leaves no position"),
    ],
    ids=str,
)
def test_unsupported_values_are_named(change: dict[str, Any], words: str):
    """A refusal names the file, the key and the value."""
    with pytest.raises(BackboneError, match=r"^config\.json: ") as caught:
        parse_config({**GOOD, **change}, "config.json")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dim": 9}, "dim 9 is not divisible by its 2 heads"),
        ({"activation": "relu"}, "activation is 'relu'"),
        ({"n_layers": None, "num_hidden_layers": 2}, "n_layers is None"),
    ],
    ids=str,
)
def test_a_refusal_names_the_keys_of_the_family(change: dict[str, Any], words: str):
    """DistilBERT has other keys than BERT."""
    file = {**DISTILBERT, "max_position_embeddings": 16}
    assert parse_config(file, "config.json").num_token_types == 0
    with pytest.raises(BackboneError, match=re.escape(words)):
        parse_config({**file, **change}, "config.json")


def test_a_key_that_transformers_does_not_read_is_ignored():
    """DistilBERT's feed-forward layers have the width `hidden_dim`, whatever BERT's key says."""
    file = {**DISTILBERT, "max_position_embeddings": 16}
    assert parse_config({**file, "intermediate_size": 24}, "config.json") == parse_config(file, "config.json")


@pytest.mark.parametrize(
    "text", ["{", "[1, 2]", "null", "\xff", "[" * 100_000], ids=["cut", "list", "null", "latin", "deep"]
)
def test_broken_json_is_refused(text: str, tmp_path: Path):
    """The error is one sentence with the path, for any content of the file."""
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(BackboneError, match=r"config\.json"):
        load_config(tmp_path)


def test_a_directory_without_config_is_refused(tmp_path: Path):
    """The sentence says what a checkpoint directory must have."""
    with pytest.raises(BackboneError, match=r"has no config\.json"):
        load_config(tmp_path)


def test_config_needs_no_torch(tmp_path: Path):
    """Parameter counts of a preset must not cost a torch import."""
    (tmp_path / "config.json").write_text(json.dumps(GOOD))
    program = (
        "import sys; from pathlib import Path; from peltier_backbone.checkpoint.config import load_config;"
        f"load_config(Path({str(tmp_path)!r})); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
