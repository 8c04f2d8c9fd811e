"""Loads a backbone by name, as a frozen model that is ready to serve."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from peltier_backbone.bert import Bert
from peltier_backbone.bert_weights import bert_weights, build_bert, canonical_bert
from peltier_backbone.checkpoint import find_checkpoint, read_tensors
from peltier_backbone.config import BackboneConfig, BertConfig, Config, ModernBertConfig, T5Config, load_config
from peltier_backbone.errors import BackboneError
from peltier_backbone.fingerprint import fingerprint
from peltier_backbone.kernel_cache import bound_kernel_caches
from peltier_backbone.kernel_names import name_kernels
from peltier_backbone.linear import LinearKernel
from peltier_backbone.linear_choice import choose_linear
from peltier_backbone.modernbert import ModernBert
from peltier_backbone.modernbert_weights import build_modernbert, canonical_modernbert, modernbert_weights
from peltier_backbone.native.choice import load_library, slowdown
from peltier_backbone.native_quantized_linear import NativeQuantizedLinear
from peltier_backbone.packing import Encoded, Packed, pack
from peltier_backbone.quantized_linear import QuantizedLinear
from peltier_backbone.t5 import T5
from peltier_backbone.t5_weights import build_t5, canonical_t5, t5_weights
from peltier_backbone.table import PlainTable, QuantizedTable, TableKernel
from peltier_backbone.tokenizer import Tokenizer, load_tokenizer
from peltier_backbone.weights import Weights

logger = logging.getLogger(__name__)

Model = Bert | ModernBert | T5

# The dtype of activations. In int8 the weights of the frozen maps and of the token embeddings have 8 bits, and results
# of products are float32.
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.float32}
# The measurement error of a trial of some milliseconds is below this factor.
_NOISE_FACTOR = 1.1


@dataclass(frozen=True)
class Backbone:
    """A frozen model with its tokenizer and identity. `name` is the name that the user gave, `precision` the key of
    `DTYPES`, and `dtype` that of activations."""

    name: str
    config: BackboneConfig
    fingerprint: str
    tokenizer: Tokenizer
    model: Model
    device: torch.device
    dtype: torch.dtype
    precision: str
    kernels: dict[str, str]

    @property
    def bert(self) -> Bert | ModernBert:
        """The model, if it is an encoder; the caller checks `config.generates` first."""
        assert not isinstance(self.model, T5), "callers look at `config.generates` first"
        return self.model

    @property
    def t5(self) -> T5:
        """The model, if it generates; the caller checks `config.generates` first."""
        assert isinstance(self.model, T5), "callers look at `config.generates` first"
        return self.model

    @property
    def kept_dtype(self) -> torch.dtype:
        """The dtype in which a decoder keeps keys and values. They are most of what a step of many rows reads. In int8
        they come from rounded products, and bfloat16 rounds them less."""
        return torch.bfloat16 if self.precision == "int8" else self.dtype

    def pack(self, rows: list[Encoded]) -> Packed:
        """Rows back to back on this backbone's device."""
        return pack(rows, self.config, self.device)

    def weights_digest(self) -> str:
        """The hash of the weights in memory, in the compute dtype; it must not change while the server runs."""
        return fingerprint(self.config, dict(_weights(self.model)))


def resolve_device(device: str) -> torch.device:
    """The torch device; `auto` is the GPU if there is one. Raises a `BackboneError` for a missing device."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise BackboneError(f"device {device!r} is unknown; it is 'auto', 'cpu' or 'cuda'")
    if device == "cuda" and not torch.cuda.is_available():
        raise BackboneError("device 'cuda' was asked for, but torch sees no CUDA device")
    return torch.device(device)


@torch.inference_mode(mode=False)
def load_backbone(name: str, *, device: str = "cpu", dtype: str = "float32") -> Backbone:
    """Load backbone `name` (a directory, a hub id or `minilm`). Gradients can pass through it even if it is loaded in
    inference mode. Raises a `BackboneError`, also for a tensor that the model does not use."""
    if dtype not in DTYPES:
        raise BackboneError(f"dtype {dtype!r} is unknown; it is one of {', '.join(DTYPES)}")
    bound_kernel_caches()
    # On a GPU it plans attention anew for each shape, and ragged batches always have new shapes.
    torch.backends.cuda.enable_cudnn_sdp(False)
    target, compute, eight_bits = resolve_device(device), DTYPES[dtype], dtype == "int8"
    if eight_bits and target.type != "cpu":
        raise BackboneError(f"dtype 'int8' is for a CPU; device {target.type!r} computes in float32 or bfloat16")
    directory = find_checkpoint(name)
    config = load_config(directory)
    tensors = _canonical(config, directory)
    identity = fingerprint(config, tensors)
    kernel = _choose_quantized() if eight_bits else choose_linear(target, compute)
    _warn_of_slow_products(target, compute)
    ready = {key: tensor.to(target, compute) for key, tensor in tensors.items()}
    return Backbone(
        name=name,
        config=config,
        fingerprint=identity,
        tokenizer=_tokenizer(directory, config),
        model=_build(config, Weights(ready, directory), kernel, QuantizedTable if eight_bits else PlainTable),
        device=target,
        dtype=compute,
        precision=dtype,
        kernels=name_kernels(config, target, compute, kernel),
    )


def _choose_quantized() -> type[QuantizedLinear]:
    if load_library() is not None:
        return NativeQuantizedLinear
    logger.warning("without the native kernels products in int8 take longer than in float32")
    return QuantizedLinear


def _warn_of_slow_products(device: torch.device, dtype: torch.dtype) -> None:
    if device.type != "cpu" or dtype == torch.float32:
        return
    times = slowdown(dtype)
    if times > _NOISE_FACTOR:
        logger.warning("on this processor products in %s take %.1f times as long as in float32", dtype, times)


def _canonical(config: Config, directory: Path) -> dict[str, Tensor]:
    """The checkpoint's tensors by the names under which they are hashed and consumed."""
    tensors = read_tensors(directory)
    match config:
        case T5Config():
            return canonical_t5(tensors, config, directory)
        case ModernBertConfig():
            return canonical_modernbert(tensors, directory)
        case BertConfig():
            return canonical_bert(tensors, config, directory)


def _build(config: Config, weights: Weights, kernel: LinearKernel, table: TableKernel) -> Model:
    match config:
        case T5Config():
            return build_t5(config, weights, kernel, table)
        case ModernBertConfig():
            return build_modernbert(config, weights, kernel, table)
        case BertConfig():
            return build_bert(config, weights, kernel, table)


def _weights(model: Model) -> Iterator[tuple[str, Tensor]]:
    match model:
        case T5():
            return t5_weights(model)
        case ModernBert():
            return modernbert_weights(model)
        case Bert():
            return bert_weights(model)


def _tokenizer(directory: Path, config: BackboneConfig) -> Tokenizer:
    tokenizer = load_tokenizer(directory)
    if tokenizer.num_entries > config.vocab_size:
        raise BackboneError(
            f"{directory}: the tokenizer has {tokenizer.num_entries} entries, the model embeds {config.vocab_size}"
        )
    return tokenizer
