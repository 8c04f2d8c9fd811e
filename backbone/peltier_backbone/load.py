"""Loads a backbone by name, as a frozen model that is ready to serve, and names the kernels that compute it."""

import logging
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.checkpoint import find_checkpoint, read_tensors
from peltier_backbone.checkpoint.config import Config, T5Config, load_config
from peltier_backbone.checkpoint.fingerprint import fingerprint
from peltier_backbone.checkpoint.weights import Weights
from peltier_backbone.errors import BackboneError
from peltier_backbone.linear.linear import LinearKernel, choose_linear
from peltier_backbone.linear.quantized_linear import NativeQuantizedLinear, QuantizedLinear
from peltier_backbone.linear.table import PlainTable, QuantizedTable
from peltier_backbone.machine.kernel_cache import bound_kernel_caches
from peltier_backbone.model import architecture
from peltier_backbone.native.choice import TORCH, choose_kernels, load_library, slowdown
from peltier_backbone.text.tokenizer import Tokenizer, load_tokenizer

logger = logging.getLogger(__name__)

# The dtype of activations. In int8 the weights of the frozen maps and of the token embeddings have 8 bits, and results
# of products are float32.
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.float32}
# The measurement error of a trial of some milliseconds is below this factor.
_NOISE_FACTOR = 1.1
EXACT = "equal to the last bit in every batch"
ROUNDED = "equal within rounding in every batch"


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
    config, tokenizer = _read_tokens(directory)
    tensors = _canonical(config, directory)
    identity = fingerprint(config, tensors)
    kernel = _choose_quantized() if eight_bits else choose_linear(target, compute)
    _warn_of_slow_products(target, compute)
    weights = Weights({key: tensor.to(target, compute) for key, tensor in tensors.items()}, directory)
    table = QuantizedTable if eight_bits else PlainTable
    return Backbone(
        name=name,
        config=config,
        fingerprint=identity,
        tokenizer=tokenizer,
        model=architecture(config).build(config, weights, kernel, table),
        device=target,
        dtype=compute,
        precision=dtype,
        kernels=name_kernels(config, target, compute, kernel),
    )


def read_fingerprint(name: str) -> str:
    """The fingerprint of the backbone `name`, whose weights are read and not kept. Raises a `BackboneError`."""
    directory = find_checkpoint(name)
    config, _ = _read_tokens(directory)
    return fingerprint(config, _canonical(config, directory))


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
    return architecture(config).canonical(read_tensors(directory), config, directory)


def _read_tokens(directory: Path) -> tuple[Config, Tokenizer]:
    """The tokenizer, and the configuration with a row for each of its tokens."""
    config, tokenizer = load_config(directory), load_tokenizer(directory)
    num_rows = config.vocab_size
    if isinstance(config, T5Config):
        config, num_rows = config.for_tokens(tokenizer.num_entries), config.num_rows
    if tokenizer.num_entries > num_rows:
        raise BackboneError(
            f"{directory}: the tokenizer has {tokenizer.num_entries} entries, the model embeds {num_rows}"
        )
    return config, tokenizer


def name_kernels(config: Config, device: torch.device, dtype: torch.dtype, linear: LinearKernel) -> dict[str, str]:
    """The kernels of `linear` maps and of `attention`; on a CPU the `level` of the native kernels and what `torch`
    computes instead of them, with the reason; and how `answers` of one text compare in different batches."""
    names = {"linear": linear.name, "attention": _attention_name(config, device, dtype)}
    if device.type != "cpu":
        return names | {"answers": ROUNDED}
    library, by_torch = load_library(), "; ".join(_torch_parts(dtype, linear))
    names["level"] = TORCH if library is None or linear.name == TORCH else library.name
    return names | ({"torch": by_torch, "answers": ROUNDED} if by_torch else {"answers": EXACT})


def _attention_name(config: Config, device: torch.device, dtype: torch.dtype) -> str:
    library = choose_kernels(dtype).library if device.type == "cpu" else None
    if library is not None:
        return f"native-{library.name}"
    if config.generates:
        return "matmul"
    return "by-row" if device.type == "cpu" else "sdpa-padded"


def _torch_parts(dtype: torch.dtype, linear: LinearKernel) -> Iterator[str]:
    """What torch computes on a CPU, each with the reason. Adapters' heads are in float32."""
    layers, heads = choose_kernels(dtype), choose_kernels(torch.float32)
    if layers.library is None:
        products = "" if "native" in linear.name else "linear maps, "
        yield f"{products}attention, norms and adapters, because {layers.reason}"
    if heads.library is None and heads != layers:
        yield f"heads, because {heads.reason}"
