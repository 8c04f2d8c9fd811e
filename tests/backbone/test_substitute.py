"""The substitute for a backbone's model."""

from dataclasses import replace

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded

ROW = Encoded(ids=(1, 2, 3), types=(0, 0, 0), counts_padding=True)
# Artifacts record what adapters compute on it, so these never change: the first states of the last token.
STATES = {
    "bert": [1.386936, -0.316255, 0.972669],
    "roberta": [0.424893, 1.287544, -0.536796],
    "deberta": [-0.103543, -0.204091, 0.388475],
    "deberta_v2": [-0.110483, -0.215777, 0.527403],
    "mpnet": [-0.693547, 0.646767, -0.655745],
    "nomic_bert": [0.935885, 0.423606, 0.754341],
    "gte": [0.933012, 0.388605, 0.736967],
    "jina": [1.116065, 0.83338, 0.548488],
    "eurobert": [0.11715, -0.220768, 0.582444],
    "modernbert": [0.063629, -0.45757, 0.525398],
    "t5": [0.426768, 0.57129, 0.59451],
    "t5_gated": [0.101498, -0.121286, 0.586791],
}


@torch.inference_mode()
def _states(backbone: Backbone, row: Encoded = ROW) -> torch.Tensor:
    return backbone.substitute.encode(backbone.substitute.pack([row]))


@pytest.mark.parametrize("name", STATES)
def test_a_substitute_computes_the_same_in_every_release(name: str, request: pytest.FixtureRequest):
    """From its configuration alone, to the rounding of float32."""
    found = _states(request.getfixturevalue(name))[-1, :3]
    torch.testing.assert_close(found, torch.tensor(STATES[name]), atol=1e-5, rtol=1e-5)


def test_every_token_of_a_row_matters(bert: Backbone):
    """Another first token changes the states of the last one."""
    other = _states(bert, replace(ROW, ids=(9, 2, 3)))
    assert float((other[-1] - _states(bert)[-1]).abs().max()) > 1e-3


def test_a_substitute_is_on_the_cpu_in_float32(bert: Backbone, bert_int8: Backbone):
    """Whatever the precision of the backbone; its identity is that of the backbone."""
    for backbone in (bert, bert_int8):
        own = backbone.substitute
        assert (own.precision, own.dtype, own.device.type) == ("float32", torch.float32, "cpu")
        assert (own.config, own.fingerprint, own.tokenizer) == (
            backbone.config, backbone.fingerprint, backbone.tokenizer,
        )  # fmt: skip
        assert backbone.substitute is own


def test_a_map_of_a_substitute_is_the_matrix_that_it_says(bert: Backbone):
    """Its weight times an input is its output, for more outputs than inputs and for fewer."""
    layer = bert.substitute.bert.layers[0]
    for linear in (layer.query_key_value, layer.intermediate, layer.output):
        weight, bias = linear.weights()
        x = torch.randn(3, weight.shape[1], generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(linear(x), torch.nn.functional.linear(x, weight, bias))
