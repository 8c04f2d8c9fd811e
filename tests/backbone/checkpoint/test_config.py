"""Accepted and refused values of config.json."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from peltier_backbone.checkpoint.config import (
    Config,
    ModernBertConfig,
    RotaryBertConfig,
    T5Config,
    load_config,
    parse_config,
)
from peltier_backbone.errors import BackboneError
from transformers import ModernBertConfig as Theirs
from transformers import ModernBertModel

GOOD: dict[str, Any] = {
    "model_type": "bert", "vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 12, "max_position_embeddings": 16, "type_vocab_size": 2,
}  # fmt: skip
DISTILBERT = {
    "model_type": "distilbert", "vocab_size": 30, "dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12,
    "max_position_embeddings": 16,
}  # fmt: skip
DEBERTA = {
    **GOOD, "model_type": "deberta-v2", "type_vocab_size": 0, "relative_attention": True, "position_buckets": 8,
    "pos_att_type": "p2c|c2p",
}  # fmt: skip
EUROBERT = {**GOOD, "model_type": "eurobert"}
NOMIC = {**GOOD, "model_type": "nomic_bert", "layer_norm_eps": 1e-6, "rope_theta": 500}
OLDER_NOMIC = {
    "model_type": "nomic_bert", "vocab_size": 30, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_inner": 12,
    "n_positions": 64, "max_trained_positions": 16, "layer_norm_epsilon": 1e-6, "rotary_emb_base": 500,
    "activation_function": "swiglu",
}  # fmt: skip
MODERNBERT: dict[str, Any] = {
    "model_type": "modernbert", "vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 5, "num_attention_heads": 2,
    "intermediate_size": 12, "max_position_embeddings": 16,
}  # fmt: skip
ROPE = {
    "full_attention": {"rope_type": "default", "rope_theta": 9.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 3},
}
YARN = {"rope_type": "yarn", "rope_theta": 9.0, "factor": 4, "original_max_position_embeddings": 8}
# The published t5-small says no more than this.
T5: dict[str, Any] = {
    "model_type": "t5", "vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8,
    "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "n_positions": 512,
    "relative_attention_num_buckets": 32, "layer_norm_epsilon": 1e-6,
}  # fmt: skip
T5_BASE = {**T5, "d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
GATED = {"feed_forward_proj": "gated-gelu"}
FLAN = {**T5_BASE, **GATED, "d_ff": 2048, "tie_word_embeddings": False}


def _parse(file: dict[str, Any], **changes: Any) -> Config:
    return parse_config({**file, **changes}, "config.json")


def _modernbert(**changes: Any) -> ModernBertConfig:
    config = _parse(MODERNBERT, **changes)
    assert isinstance(config, ModernBertConfig)
    return config


def _rotary(file: dict[str, Any]) -> RotaryBertConfig:
    config = _parse(file)
    assert isinstance(config, RotaryBertConfig)
    return config


def _t5(raw: dict[str, Any]) -> T5Config:
    config = _parse(raw)
    assert isinstance(config, T5Config)
    return config


def test_sizes_are_read():
    """Each size comes from its Hugging Face key."""
    config = _parse(GOOD)
    assert (config.hidden_size, config.num_layers, config.head_size, config.num_norms) == (8, 2, 4, 5)


@pytest.mark.parametrize(
    ("file", "rate"),
    [
        (GOOD, 0.1),
        ({**GOOD, "hidden_dropout_prob": 0.3}, 0.3),
        ({**DISTILBERT, "dropout": 0}, 0.0),
        ({**MODERNBERT, "embedding_dropout": 0.2}, 0.0),
        ({**T5, "dropout_rate": 0.2}, 0.2),
    ],
)
def test_the_rate_of_dropout_is_the_checkpoints(file: dict[str, Any], rate: float):
    """Without a value it is the default of transformers."""
    assert _parse(file).dropout == rate


@pytest.mark.parametrize(("family", "first", "longest"), [("bert", 0, 16), ("roberta", 2, 14), ("mpnet", 2, 14)])
def test_positions_of_a_family(family: str, first: int, longest: int):
    """RoBERTa and MPNet lose the positions up to their padding index."""
    config = _parse(GOOD, model_type=family)
    assert (config.first_position, config.max_tokens) == (first, longest)


def test_a_modernbert_has_the_defaults_of_transformers():
    """Each size comes from its Hugging Face key; the rest is as transformers has it."""
    config = _modernbert()
    assert (config.hidden_size, config.num_layers, config.head_size, config.max_tokens) == (8, 5, 4, 16)
    assert (config.window, config.is_local) == (64, (False, True, True, False, True))
    assert (config.global_theta, config.local_theta, config.classifier_pooling) == (160_000.0, 10_000.0, "first")


def test_both_spellings_of_layers_are_read():
    """Older files have keys of their own for the layers and their angles, newer ones one for each type of layer."""
    older = _modernbert(global_attn_every_n_layers=2, global_rope_theta=9.0, local_rope_theta=3.0)
    kinds = ["full_attention", "sliding_attention"] * 2 + ["full_attention"]
    assert _modernbert(layer_types=kinds, rope_parameters=ROPE, global_attn_every_n_layers=4) == older


def test_yarn_has_the_papers_defaults():
    """The gain of YaRN's Eq. 22, and pairs that turn 1 to 32 times in a row of the original length are between."""
    yarn = _modernbert(rope_parameters=ROPE | {"full_attention": YARN}).global_yarn
    assert yarn is not None
    assert (yarn.factor, yarn.positions, yarn.fast, yarn.slow) == (4.0, 8, 32.0, 1.0)
    assert yarn.gain == pytest.approx(0.1 * 2 * 0.6931471805599453 + 1)
    assert _modernbert(rope_parameters=ROPE).global_yarn is None


def test_parameters_of_a_modernbert_are_counted():
    """As many as transformers has."""
    own = {key: value for key, value in MODERNBERT.items() if key != "model_type"}
    whole = ModernBertModel(Theirs(**own, pad_token_id=0))
    assert _modernbert().num_parameters == sum(weight.numel() for weight in whole.parameters())


def test_files_for_the_authors_code_are_rotary():
    """Their keys are those of GPT-2; rows end where the authors' code begins to turn by other angles."""
    assert _rotary(OLDER_NOMIC) == _rotary(NOMIC)
    assert _rotary(NOMIC | {"max_position_embeddings": 64, "max_trained_positions": 16}).max_tokens == 16


def test_a_file_without_an_epsilon_has_the_default():
    """That of transformers, under either name of the key."""
    assert _rotary({key: value for key, value in NOMIC.items() if key != "layer_norm_eps"}).norm_eps == 1e-12


@pytest.mark.parametrize(
    ("own", "angles"),
    [
        ({}, (500.0, 1.0)),
        ({"rope_theta": None}, (1000.0, 1.0)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7}}, (7.0, 1.0)),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.5}}, (500.0, 2.5)),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, (500.0, 4.0)),
    ],
)
def test_the_angles_of_newer_and_older_files(own: dict[str, Any], angles: tuple[float, float]):
    """Their base and what divides them."""
    config = _rotary(NOMIC | own)
    assert (config.theta, config.slowdown) == angles


@pytest.mark.parametrize(("raw", "parameters"), [(T5, 60_492_288), (T5_BASE, 222_882_048)], ids=["small", "base"])
def test_published_sizes_of_t5(raw: dict[str, Any], parameters: int):
    """Parameters with the vocabulary cropped to 32,100, as the papers' percentages take them
    (docs/methods.md#vocabulary)."""
    config = _t5(raw)
    assert (config.vocab_size, config.num_parameters) == (32100, parameters)


def test_a_gated_untied_model_counts_both_projections_and_tables():
    """flan-t5-base has 247,577,856 parameters (its model card), 28 rows of two tables more than we count."""
    assert _t5(FLAN).num_parameters == 247_577_856 - 2 * 28 * 768


def test_a_t5_counts_both_stacks():
    """Blocks, attentions and norms are counted over both stacks, cross-attention included."""
    config = _t5({**FLAN, "d_kv": 32, "num_decoder_layers": 3})
    assert (config.num_blocks, config.num_attentions, config.num_norms) == (15, 18, 2 * 12 + 1 + 3 * 3 + 1)
    assert (config.head_size, config.attention_size, config.expansion_size) == (32, 384, 4096)
    assert config.generates


def test_other_vocabularies_of_a_t5_are_kept():
    """Only the published padding is cropped."""
    assert _t5({**T5, "vocab_size": 32127}).vocab_size == 32127


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
    config = _t5({**T5, **change})
    assert (config.gated, config.activation, config.tied) == expected
    assert config.scaled == config.tied


@pytest.mark.parametrize("tied", [False, True, None])
def test_an_mt5_is_never_tied(tied: bool | None):
    """transformers 5 saves every mT5 as tied."""
    config = _t5({**T5, **GATED, "model_type": "mt5", "tie_word_embeddings": tied})
    assert (config.tied, config.scaled) == (False, False)


@pytest.mark.parametrize(("tied", "scaled"), [(False, False), (True, True), (None, True)])
def test_an_umt5_is_scaled_unless_its_file_says_no(tied: bool | None, scaled: bool):
    """As published it is not; transformers 5 scales all, and saves that."""
    config = _t5({**T5, **GATED, "model_type": "umt5", "tie_word_embeddings": tied})
    assert (config.tied, config.scaled) == (False, scaled)


def test_a_t5_has_the_defaults_of_transformers():
    """What old configurations leave out, and a decoder of its own depth and start token."""
    bare = {key: T5[key] for key in ("model_type", "vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_heads")}
    assert _t5({**bare, "n_positions": T5["n_positions"]}) == _t5(T5)
    assert _t5(bare).max_tokens == 1024
    changed = _t5({**bare, "pad_token_id": 5, "num_decoder_layers": 2, "n_positions": 64})
    assert (changed.start_token_id, changed.num_decoder_layers, changed.max_tokens) == (5, 2, 64)


def test_a_token_of_the_configuration_has_a_row():
    """A start token that was added behind the published vocabulary keeps the rows up to its own."""
    assert _t5({**T5, "decoder_start_token_id": 32100}).vocab_size == 32101


_REFUSED = {
    "encoder": (
        GOOD,
        [
            (
                {"model_type": "mpnet", "relative_attention_num_buckets": 64},
                "relative_attention_num_buckets is 64; only 32",
            ),
            ({"model_type": "mpnet", "pad_token_id": 0}, "pad_token_id is 0; only 1"),
            ({**MODERNBERT, "local_attention": 8, "sliding_window": 8}, "sliding_window is 8; only 4 is served"),
            ({**DISTILBERT, "num_hidden_layers": 1}, "num_hidden_layers is 1; only 2 is"),
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
            (
                {**NOMIC, "rope_scaling": {"type": "linear"}},
                "factor of rope_scaling is None; it must be a positive number",
            ),
            ({**NOMIC, "rope_theta": 0}, "rope_theta is 0; it must be a positive number"),
            ({"model_type": "bart"}, "model_type is 'bart'; a backbone is one of bert, roberta, xlm-roberta, "),
            ({"model_type": "longt5"}, "model_type 'longt5' is not supported: its encoder attends to near tokens only"),
            (
                {"model_type": "switch_transformers"},
                "'switch_transformers' is not supported: its feed-forward layers are mix",
            ),
            (
                {"model_type": "t5gemma"},
                "model_type 't5gemma' is not supported: its attention caps scores (attn_logit_",
            ),
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
    ),
    "modernbert": (
        MODERNBERT,
        [
            ({"attention_bias": True}, "attention_bias is True; only False is served"),
            ({"mlp_bias": True}, "mlp_bias is True"),
            ({"norm_bias": True}, "norm_bias is True"),
            ({"hidden_activation": "silu"}, "hidden_activation is 'silu'"),
            ({"hidden_size": 0}, "hidden_size is 0"),
            ({"num_attention_heads": 3}, "hidden_size 8 does not give each of 3 heads an even size"),
            ({"num_attention_heads": 8}, "an even size"),
            ({"local_attention": 1}, "local_attention is 1"),
            ({"norm_eps": 2.0}, "norm_eps is 2.0"),
            ({"classifier_pooling": "max"}, "classifier_pooling is 'max'"),
            (
                {"layer_types": ["full_attention"]},
                "layer_types must name 'full_attention' or 'sliding_attention' for each",
            ),
            ({"layer_types": ["full_attention"] * 4 + ["linear"]}, "layer_types must name"),
            ({"global_rope_theta": "high"}, "global_rope_theta is 'high'"),
            ({"local_rope_theta": 0}, "local_rope_theta is 0"),
            ({"rope_scaling": {"type": "yarn"}}, "rope_scaling is {'type': 'yarn'}"),
            ({"rope_parameters": {"rope_theta": 1.0}}, "rope_parameters must have 'full_attention'"),
            ({"rope_parameters": ROPE | {"full_attention": YARN | {"factor": 0}}}, "factor of rope_parameters is 0"),
            (
                {"rope_parameters": ROPE | {"full_attention": YARN | {"original_max_position_embeddings": None}}},
                "original_max_position_embeddings is None; it must be a positive integer",
            ),
            (
                {"rope_parameters": ROPE | {"full_attention": YARN | {"mscale": 1.0}}},
                "mscale of rope_parameters is 1.0",
            ),
            ({"rope_parameters": ROPE | {"sliding_attention": YARN}}, "of rope_type 'default'"),
            (
                {"rope_parameters": ROPE | {"sliding_attention": {"rope_type": "linear"}}},
                "rope_parameters must have 'sliding_attention' of rope_type 'default'",
            ),
        ],
    ),
    "t5": (
        T5,
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
    ),
}


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [(file, *case) for file, cases in _REFUSED.values() for case in cases],
    ids=str,
)
def test_unsupported_values_are_named(file: dict[str, Any], change: dict[str, Any], words: str):
    """A refusal names the file, the key and the value."""
    with pytest.raises(BackboneError, match=r"^config\.json: ") as caught:
        _parse(file, **change)
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
    assert _parse(DISTILBERT).num_token_types == 0
    with pytest.raises(BackboneError, match=re.escape(words)):
        _parse(DISTILBERT, **change)


def test_a_key_that_transformers_does_not_read_is_ignored():
    """DistilBERT's feed-forward layers have the width `hidden_dim`, whatever BERT's key says."""
    assert _parse(DISTILBERT, intermediate_size=24) == _parse(DISTILBERT)


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
