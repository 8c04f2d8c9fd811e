"""The configurations of post-norm encoders with rotary positions."""

from typing import Any

import pytest
from peltier_backbone.checkpoint.config import RotaryBertConfig, parse_config

NOMIC: dict[str, Any] = {
    "model_type": "nomic_bert",
    "vocab_size": 30,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "layer_norm_eps": 1e-6,
    "rope_theta": 500,
}
OLDER: dict[str, Any] = {
    "model_type": "nomic_bert",
    "vocab_size": 30,
    "n_embd": 8,
    "n_layer": 2,
    "n_head": 2,
    "n_inner": 12,
    "n_positions": 64,
    "max_trained_positions": 16,
    "layer_norm_epsilon": 1e-6,
    "rotary_emb_base": 500,
    "activation_function": "swiglu",
}


def _read(file: dict[str, Any]) -> RotaryBertConfig:
    config = parse_config(file, "config.json")
    assert isinstance(config, RotaryBertConfig)
    return config


def test_files_for_the_authors_code_are_read():
    """Their keys are those of GPT-2; rows end where the authors' code begins to turn by other angles."""
    assert _read(OLDER) == _read(NOMIC)
    assert _read(NOMIC | {"max_position_embeddings": 64, "max_trained_positions": 16}).max_tokens == 16


def test_a_file_without_an_epsilon_has_the_default():
    """That of transformers, under either name of the key."""
    assert _read({key: value for key, value in NOMIC.items() if key != "layer_norm_eps"}).norm_eps == 1e-12


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
    config = _read(NOMIC | own)
    assert (config.theta, config.slowdown) == angles
