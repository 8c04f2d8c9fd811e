"""Kinds of work, and what each is expected to cost on a device before anything is measured."""

from typing import NamedTuple

import torch
from peltier_adapters.spec.cost import BackboneCost
from peltier_backbone.checkpoint.config import BackboneConfig


class Work(NamedTuple):
    """The work of rows or of a batch, by kind. The unit is the multiply-adds of one token in the frozen blocks.

    `batch` is 1 for a batch, `tokens` the work in the frozen blocks, `products` the multiply-adds of adapters, `pairs`
    those of attention including prefix keys, `prefixes` the elements of keys and values that are copied for rows with
    a prefix, `weights` the elements that are read once for each adapter of a batch. For a decoding step `steps` is 1
    instead of `batch`.
    """

    batch: float = 0.0
    tokens: float = 0.0
    products: float = 0.0
    pairs: float = 0.0
    prefixes: float = 0.0
    weights: float = 0.0
    steps: float = 0.0


NO_WORK = Work()


class BackboneUnits:
    """The work of one token or pair in a backbone, in units of one token in the encoder's blocks."""

    def __init__(self, config: BackboneConfig) -> None:
        cost = BackboneCost.of(config)
        self.num_layers = config.num_layers
        self.num_decoder_layers = config.num_blocks - config.num_layers
        self.decoder_share = self.num_decoder_layers / config.num_blocks
        # Multiply-adds of the unit, which is also the number of weights of the encoder's blocks.
        self.size = sum(cost.blocks[: config.num_layers])
        # The decoder's cross-attention keys and values of an encoder token are computed with that token.
        cross_kv = self.num_decoder_layers * 2 * config.hidden_size * config.attention_size
        self.input = (self.size + cross_kv) / self.size
        # Also the weights that a decoding step reads, as a part of those of the encoder's blocks.
        self.target = (sum(cost.blocks[config.num_layers :]) - cross_kv + cost.output) / self.size
        # In all layers of the encoder, and in the two attentions of all layers of the decoder.
        self.input_pair = config.num_layers * cost.pair / self.size
        self.target_pair = 2 * self.num_decoder_layers * cost.pair / self.size


# Measured on one core with MiniLM. The differences of a machine are learnt.
CPU = Work(batch=25.0, tokens=1.0, products=1.05, pairs=1.3, prefixes=70.0, weights=17.0)
# A step of few rows reads the weights of the decoder and of the output layer from memory. On a core that takes as long
# as the products of 4 (int8) to 9 tokens (float32: 14 GB/s, 67 GFLOP/s) with these weights. The rest of a step takes as
# long as about two tokens. Measured with random models of the shape of T5-small.
_CPU_STEP, _CPU_READ = 2.0, 7.0


class GpuRates(NamedTuple):
    """What a GPU reaches: multiply-adds and bytes a second; and the size of an element."""

    multiply_adds: float
    bytes: float
    element_bytes: int

    @property
    def read(self) -> float:
        """Multiply-adds in the time of reading one element."""
        return self.element_bytes * self.multiply_adds / self.bytes


# With tensor cores half of the peak of an A100 (312 TFLOP/s) and 80 % of its bandwidth (2.0 TB/s), in float32 between
# A100 and L4. What follows for L4, A10, A100, H100 and H200 is within `MAX_CHANGE` of what follows from these.
_TENSOR_CORES = GpuRates(78e12, 1.6e12, 2)
_FLOAT32 = GpuRates(9e12, 0.92e12, 4)
# Launches of one encoder and decoder block of a mixed batch, counted without a GPU
# (`tests/adapters_store/gpu/test_device_work.py`), and the time of one on the host.
_ENCODER_LAUNCHES, _DECODER_LAUNCHES, _LAUNCH_SECONDS = 12, 21, 6e-6


def choose_priors(units: BackboneUnits, device: torch.device, dtype: torch.dtype) -> Work:
    """The expected cost of a unit of each kind of work, in tokens."""
    if device.type == "cuda":
        return gpu_priors(units, _FLOAT32 if dtype == torch.float32 else _TENSOR_CORES)
    return CPU._replace(steps=_CPU_STEP + _CPU_READ * units.target)


def gpu_priors(units: BackboneUnits, rates: GpuRates) -> Work:
    """The same on a GPU with these rates, by arithmetic; no GPU has confirmed it.

    A pass or a step of few rows takes the time of its launches or of reading its weights, whichever is longer. Prefixes
    and the weights of adapters are read. Products and attention are compared with the backbone's as on the CPU.
    """
    launch = _LAUNCH_SECONDS * rates.multiply_adds / units.size
    return CPU._replace(
        batch=max(units.num_layers * _ENCODER_LAUNCHES * launch, rates.read),
        prefixes=rates.read,
        weights=rates.read,
        steps=max(1.0, units.num_decoder_layers * _DECODER_LAUNCHES * launch, units.target * rates.read),
    )
