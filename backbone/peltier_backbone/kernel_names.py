"""The names of the kernels that compute a backbone, as `/info` shows them."""

from collections.abc import Iterator

import torch

from peltier_backbone.checkpoint.config import Config
from peltier_backbone.linear.linear import LinearKernel
from peltier_backbone.native.choice import TORCH, choose_kernels, load_library

EXACT = "equal to the last bit in every batch"
ROUNDED = "equal within rounding in every batch"


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
