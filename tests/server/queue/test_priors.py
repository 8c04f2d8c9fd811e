"""The cost of work before anything is measured."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_server.queue.prices import MAX_CHANGE
from peltier_server.queue.priors import BackboneUnits, GpuRates, choose_priors, gpu_priors

BFLOAT16 = torch.bfloat16
CUDA = torch.device("cuda")
T5_BASE = {"hidden_size": 768, "num_heads": 12, "kv_size": 64, "intermediate_size": 3072, "vocab_size": 32128}
T5_BASE |= {"num_layers": 12, "num_decoder_layers": 12, "gated": False}
T5_LARGEST = {"hidden_size": 1024, "num_heads": 128, "kv_size": 128, "intermediate_size": 65536, "vocab_size": 32128}
T5_LARGEST |= {"num_layers": 24, "num_decoder_layers": 24, "gated": False}


def _units(t5: Backbone, shape: dict[str, Any]) -> BackboneUnits:
    return BackboneUnits(replace(t5.t5.config, **shape))


# TFLOP/s with tensor cores in bfloat16 and without, and TB/s, as published for L4, A10, A100, H100 and H200.
@pytest.mark.parametrize(
    ("tensor", "plain", "bandwidth"),
    [(121, 30, 0.3), (125, 31, 0.6), (312, 19.5, 2.0), (989, 67, 3.35), (989, 67, 4.8)],
)
def test_every_gpu_can_be_learnt(tensor: float, plain: float, bandwidth: float, minilm: Backbone, t5: Backbone):
    """What each would be expected to cost is within the bounds of learnt factors."""
    for units in (BackboneUnits(minilm.config), _units(t5, T5_BASE), _units(t5, T5_LARGEST)):
        for dtype, peak, size in ((BFLOAT16, tensor, 2), (torch.float32, plain, 4)):
            own = gpu_priors(units, GpuRates(peak * 1e12 / 4, 0.8e12 * bandwidth, size))
            for expected, prior in zip(own, choose_priors(units, CUDA, dtype), strict=True):
                assert prior / MAX_CHANGE <= expected <= prior * MAX_CHANGE


def test_a_small_pass_on_a_gpu_takes_its_launches(minilm: Backbone):
    """MiniLM: 72 launches of 6 µs, in which an A100 at half of its peak multiplies 33.7e9 pairs: 3,174 tokens."""
    priors = choose_priors(BackboneUnits(minilm.config), CUDA, BFLOAT16)
    assert priors.batch == pytest.approx(72 * 6e-6 * 78e12 / (6 * 1_769_472))


def test_a_step_takes_its_launches_or_reads_the_decoder(t5: Backbone):
    """T5-base has 252 launches; of the largest T5 the weights, in two bytes each, take longer to read."""
    base, largest = _units(t5, T5_BASE), _units(t5, T5_LARGEST)
    assert base.size == 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    assert choose_priors(base, CUDA, BFLOAT16).steps == pytest.approx(252 * 6e-6 * 78e12 / base.size)
    # Without the keys and values of the cross-attention, which are computed with the input.
    read = 24 * (6 * 1024 * 16384 + 2 * 1024 * 65536) + 1024 * 32128
    assert choose_priors(largest, CUDA, BFLOAT16).steps == pytest.approx(2 * read / 1.6e12 * 78e12 / largest.size)


# Measured on AVX2 in float32, int8 and bfloat16: 23, 13 and 19 tokens; 19, 11 and 11; 11 in float32.
@pytest.mark.parametrize(
    ("shape", "measured"),
    [
        ({"hidden_size": 256, "num_heads": 8, "kv_size": 32, "intermediate_size": 704, "vocab_size": 8192,
          "num_layers": 3, "num_decoder_layers": 3, "gated": True}, (23, 13, 19)),
        ({"hidden_size": 512, "num_heads": 8, "kv_size": 64, "intermediate_size": 2048, "vocab_size": 32128,
          "num_layers": 6, "num_decoder_layers": 6, "gated": False}, (19, 11, 11)),
        (T5_BASE, (11,)),
    ],
)  # fmt: skip
def test_a_step_on_a_cpu_is_expected_to_take_what_steps_took(t5, shape, measured):
    """Within a factor of 1.6 of each measurement; the learnt one may differ by four."""
    steps = choose_priors(_units(t5, shape), torch.device("cpu"), torch.float32).steps
    assert all(steps / 1.6 <= one <= steps * 1.6 for one in measured)
