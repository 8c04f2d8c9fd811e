"""Accepted and refused values of a ModernBERT's config.json."""

from typing import Any

import pytest
from peltier_backbone.checkpoint.config import ModernBertConfig, parse_config
from peltier_backbone.errors import BackboneError
from transformers import ModernBertConfig as Theirs
from transformers import ModernBertModel

GOOD: dict[str, Any] = {
    "model_type": "modernbert",
    "vocab_size": 30,
    "hidden_size": 8,
    "num_hidden_layers": 5,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}
ROPE = {
    "full_attention": {"rope_type": "default", "rope_theta": 9.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 3},
}

YARN = {"rope_type": "yarn", "rope_theta": 9.0, "factor": 4, "original_max_position_embeddings": 8}


def _parse(**changes: Any) -> ModernBertConfig:
    config = parse_config({**GOOD, **changes}, "config.json")
    assert isinstance(config, ModernBertConfig)
    return config


def test_sizes_and_defaults_are_read():
    """Each size comes from its Hugging Face key; the rest is as transformers has it."""
    config = _parse()
    assert (config.hidden_size, config.num_layers, config.head_size, config.max_tokens) == (8, 5, 4, 16)
    assert (config.window, config.is_local) == (64, (False, True, True, False, True))
    assert (config.global_theta, config.local_theta, config.classifier_pooling) == (160_000.0, 10_000.0, "first")


def test_both_spellings_are_read():
    """Older files have keys of their own for the layers and their angles, newer ones one for each type of layer."""
    older = _parse(global_attn_every_n_layers=2, global_rope_theta=9.0, local_rope_theta=3.0)
    kinds = ["full_attention", "sliding_attention"] * 2 + ["full_attention"]
    assert _parse(layer_types=kinds, rope_parameters=ROPE, global_attn_every_n_layers=4) == older


def test_yarn_has_the_papers_defaults():
    """The gain of YaRN's Eq. 22, and pairs that turn 1 to 32 times in a row of the original length are between."""
    yarn = _parse(rope_parameters=ROPE | {"full_attention": YARN}).global_yarn
    assert yarn is not None
    assert (yarn.factor, yarn.positions, yarn.fast, yarn.slow) == (4.0, 8, 32.0, 1.0)
    assert yarn.gain == pytest.approx(0.1 * 2 * 0.6931471805599453 + 1)
    assert _parse(rope_parameters=ROPE).global_yarn is None


def test_parameters_are_counted():
    """As many as transformers has."""
    own = {key: value for key, value in GOOD.items() if key != "model_type"}
    whole = ModernBertModel(Theirs(**own, pad_token_id=0))
    assert _parse().num_parameters == sum(weight.numel() for weight in whole.parameters())


@pytest.mark.parametrize(
    ("change", "words"),
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
        ({"layer_types": ["full_attention"]}, "layer_types must name 'full_attention' or 'sliding_attention' for each"),
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
        ({"rope_parameters": ROPE | {"full_attention": YARN | {"mscale": 1.0}}}, "mscale of rope_parameters is 1.0"),
        ({"rope_parameters": ROPE | {"sliding_attention": YARN}}, "of rope_type 'default'"),
        (
            {"rope_parameters": ROPE | {"sliding_attention": {"rope_type": "linear"}}},
            "rope_parameters must have 'sliding_attention' of rope_type 'default'",
        ),
    ],
    ids=str,
)
def test_unsupported_values_are_named(change: dict[str, Any], words: str):
    """A refusal names the file, the key and the value."""
    with pytest.raises(BackboneError, match=r"^config\.json: ") as caught:
        _parse(**change)
    assert words in str(caught.value)
