"""From a backbone's name to a frozen model ready to serve."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from peltier_backbone.attention import kernel_name
from peltier_backbone.bert import Bert, Embeddings, Layer
from peltier_backbone.checkpoint import find_checkpoint, read_tensors
from peltier_backbone.config import BackboneConfig, load_config
from peltier_backbone.errors import BackboneError
from peltier_backbone.fingerprint import fingerprint
from peltier_backbone.linear import Linear, LinearKernel, choose_linear
from peltier_backbone.norm import LayerNorm
from peltier_backbone.packing import Encoded, Packed, pack
from peltier_backbone.tokenizer import Tokenizer, load_tokenizer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# Heads of the pretraining task: part of the published checkpoint, never of the encoder.
_PRETRAINING = ("cls.", "lm_head.")


@dataclass(frozen=True)
class Backbone:
    """A frozen encoder with its tokenizer and identity. `name` is what the user called it."""

    name: str
    config: BackboneConfig
    fingerprint: str
    tokenizer: Tokenizer
    model: Bert
    device: torch.device
    dtype: torch.dtype
    kernels: dict[str, str]

    def pack(self, rows: list[Encoded]) -> Packed:
        """Rows back to back on this backbone's device."""
        return pack(rows, self.config, self.device)

    def weights_digest(self) -> str:
        """Hash of the weights as they are now in memory, in the compute dtype: it never changes while serving."""
        return fingerprint(self.config, dict(_named_weights(self.model)))


def resolve_device(device: str) -> torch.device:
    """`auto` is the GPU where there is one; a device that is not there is refused."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise BackboneError(f"device {device!r} is unknown; it is 'auto', 'cpu' or 'cuda'")
    if device == "cuda" and not torch.cuda.is_available():
        raise BackboneError("device 'cuda' was asked for, but torch sees no CUDA device")
    return torch.device(device)


def load_backbone(name: str, *, device: str = "cpu", dtype: str = "float32") -> Backbone:
    """Load backbone `name` (a directory, a hub id or `minilm`); every tensor is consumed, or a `BackboneError`."""
    if dtype not in DTYPES:
        raise BackboneError(f"dtype {dtype!r} is unknown; it is one of {', '.join(DTYPES)}")
    target, compute = resolve_device(device), DTYPES[dtype]
    directory = find_checkpoint(name)
    config = load_config(directory)
    tensors = canonical(read_tensors(directory), directory)
    identity = fingerprint(config, tensors)
    kernel = choose_linear(target, compute)
    ready = {key: tensor.to(target, compute) for key, tensor in tensors.items()}
    return Backbone(
        name=name,
        config=config,
        fingerprint=identity,
        tokenizer=_tokenizer(directory, config),
        model=build(config, ready, kernel, directory),
        device=target,
        dtype=compute,
        kernels={"linear": kernel.name, "attention": kernel_name(target)},
    )


def _tokenizer(directory: Path, config: BackboneConfig) -> Tokenizer:
    tokenizer = load_tokenizer(directory)
    if tokenizer.num_entries > config.vocab_size:
        raise BackboneError(
            f"{directory}: the tokenizer has {tokenizer.num_entries} entries, the model embeds {config.vocab_size}"
        )
    return tokenizer


def canonical(tensors: dict[str, Tensor], directory: Path) -> dict[str, Tensor]:
    """Names as in `BertModel`, without the family prefix, the pretraining heads or the constant position ids."""
    kept = {}
    for name, tensor in tensors.items():
        if name.startswith(_PRETRAINING) or name.endswith("embeddings.position_ids"):
            continue
        short = name.removeprefix("bert.").removeprefix("roberta.")
        short = short.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if short in kept:
            raise BackboneError(f"{directory}: tensor {name!r} is there twice")
        kept[short] = tensor
    return kept


def build(config: BackboneConfig, tensors: dict[str, Tensor], kernel: LinearKernel, directory: Path) -> Bert:
    """Assemble the encoder from canonical `tensors`, consuming all of them."""
    source = _Source(dict(tensors), directory)
    hidden = config.hidden_size
    embeddings = Embeddings(
        tokens=source.take("embeddings.word_embeddings.weight", config.vocab_size, hidden),
        positions=source.take("embeddings.position_embeddings.weight", config.max_positions, hidden),
        types=source.take("embeddings.token_type_embeddings.weight", config.num_token_types, hidden),
        norm=source.norm("embeddings.LayerNorm", config),
    )
    layers = [_layer(source, f"encoder.layer.{i}", config, kernel) for i in range(config.num_layers)]
    # Masked-language-model checkpoints of RoBERTa have no pooler.
    pooler = kernel(*source.linear("pooler.dense", hidden, hidden)) if "pooler.dense.weight" in source.tensors else None
    if source.tensors:
        raise BackboneError(
            f"{directory}: {len(source.tensors)} tensors have no place in a {config.family} encoder, "
            f"such as {min(source.tensors)!r}"
        )
    return Bert(config, embeddings, layers, pooler)


def _layer(source: "_Source", name: str, config: BackboneConfig, kernel: LinearKernel) -> Layer:
    hidden, inner = config.hidden_size, config.intermediate_size
    parts = [source.linear(f"{name}.attention.self.{part}", hidden, hidden) for part in ("query", "key", "value")]
    return Layer(
        query_key_value=kernel(torch.cat([weight for weight, _ in parts]), torch.cat([bias for _, bias in parts])),
        attention_output=kernel(*source.linear(f"{name}.attention.output.dense", hidden, hidden)),
        attention_norm=source.norm(f"{name}.attention.output.LayerNorm", config),
        intermediate=kernel(*source.linear(f"{name}.intermediate.dense", inner, hidden)),
        output=kernel(*source.linear(f"{name}.output.dense", hidden, inner)),
        output_norm=source.norm(f"{name}.output.LayerNorm", config),
    )


@dataclass
class _Source:
    """Tensors not yet consumed."""

    tensors: dict[str, Tensor]
    directory: Path

    def take(self, name: str, *shape: int) -> Tensor:
        if name not in self.tensors:
            raise BackboneError(f"{self.directory}: tensor {name!r} is missing")
        tensor = self.tensors.pop(name)
        if tuple(tensor.shape) != shape:
            raise BackboneError(
                f"{self.directory}: tensor {name!r} has shape {tuple(tensor.shape)}, the configuration says {shape}"
            )
        return tensor

    def linear(self, name: str, out: int, width: int) -> tuple[Tensor, Tensor]:
        return self.take(f"{name}.weight", out, width), self.take(f"{name}.bias", out)

    def norm(self, name: str, config: BackboneConfig) -> LayerNorm:
        hidden = config.hidden_size
        return LayerNorm(self.take(f"{name}.weight", hidden), self.take(f"{name}.bias", hidden), config.norm_eps)


def _named_weights(model: Bert) -> Iterator[tuple[str, Tensor]]:
    embeddings = model.embeddings
    yield from (("tokens", embeddings.tokens), ("positions", embeddings.positions), ("types", embeddings.types))
    for index, norm in enumerate(model.norms()):
        yield from ((f"norm.{index}.weight", norm.weight), (f"norm.{index}.bias", norm.bias))
    linears: dict[str, Linear] = {}
    for index, layer in enumerate(model.layers):
        for part in ("query_key_value", "attention_output", "intermediate", "output"):
            linears[f"{index}.{part}"] = getattr(layer, part)
    if model.pooler is not None:
        linears["pooler"] = model.pooler
    for name, linear in linears.items():
        weight, bias = linear.weights()
        yield from ((f"{name}.weight", weight), (f"{name}.bias", bias))
