"""Tuning of a whole transformers model: each weight separately, or all in a low-dimensional subspace."""

import math
from collections.abc import Mapping
from copy import deepcopy
from inspect import signature
from typing import Any

import torch
from peltier_adapters.ops.torch import multiply_all
from peltier_adapters.parts import head
from peltier_adapters.spec.parts import HeadSpec
from peltier_backbone.backbone import Backbone
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from transformers import AutoModel, PreTrainedConfig

from peltier_training.data.dataset import IGNORED
from peltier_training.errors import TrainingError
from peltier_training.models.sources import by_name, named_parameters

_BITS = 6  # of the index that one matrix product transforms, for few passes over memory
_DROPOUTS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "attention_dropout",
    "embedding_dropout",
    "mlp_dropout",
)


class _Hadamard(torch.autograd.Function):
    """The unnormalised Walsh-Hadamard transform of a vector whose length is a power of two.

    Its gradient is divided by the root of the length, as in the paper's code: learning rates depend on it
    (docs/methods/baselines.md#intrinsic-said).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _transform(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        length = len(gradients[0])
        return _transform(gradients[0]) / math.sqrt(length)


def _transform(x: Tensor) -> Tensor:
    """H is a Kronecker product of small matrices. Each step transforms the leading digit of the index and rotates it to
    the end."""
    bits = len(x).bit_length() - 1
    while bits > 0:
        digit = min(bits, _BITS)
        x = (x.view(1 << digit, -1).T @ _matrix(digit).to(x)).reshape(-1)
        bits -= digit
    return x


def _matrix(bits: int) -> Tensor:
    matrix = torch.ones(1, 1)
    for _ in range(bits):
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), matrix)
    return matrix


def hadamard(x: Tensor) -> Tensor:
    """H x for x [2 ** k]."""
    result: Tensor = _Hadamard.apply(x)  # type: ignore[no-untyped-call]
    return result


class Fastfood(nn.Module):
    """The random projection of intrinsic SAID, in n log n (Li et al. 2018, Aghajanyan et al. 2020;
    docs/methods/baselines.md#intrinsic-said): `size` numbers from a vector, H G P H B over the next power of two,
    scaled to keep the vector's length. A longer vector is truncated to that power, so a small tensor depends on the
    first coordinates only."""

    signs: Tensor
    order: Tensor
    gauss: Tensor

    def __init__(self, size: int, generator: torch.Generator) -> None:
        super().__init__()
        self._size = size
        length = 1 << (size - 1).bit_length()
        signs = torch.randint(0, 2, (length,), generator=generator) * 2 - 1
        gauss = torch.randn(length, generator=generator)
        self.register_buffer("signs", signs.to(torch.int8))
        self.register_buffer("order", torch.randperm(length, generator=generator).to(torch.int32))
        self.register_buffer("gauss", gauss)
        self._divisor = float((size * gauss.double().square().sum()).sqrt())

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(x, (0, len(self.signs) - len(x)))
        mixed = hadamard(padded * self.signs).index_select(0, self.order)
        return hadamard(mixed * self.gauss)[: self._size] / self._divisor


def check_dimension(dimension: int, num_tensors: int) -> None:
    """Raise a `TrainingError` for a dimension that leaves no trainable number besides the scales."""
    if dimension <= num_tensors:
        raise TrainingError(f"setting 'dimension' is {dimension}; it must exceed the backbone's {num_tensors} tensors")


class Subspace(nn.Module):
    """Intrinsic SAID: theta_i = theta_i0 + lambda_i fastfood_i(theta) for each tensor i
    (docs/methods/baselines.md#intrinsic-said).

    `dimension` numbers are trained: one lambda per tensor, the rest is theta. `seed` determines the projections.
    """

    def __init__(self, model: nn.Module, *, dimension: int, seed: int) -> None:
        super().__init__()
        self.model = model.requires_grad_(False)
        self._shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
        num = len(self._shapes)
        check_dimension(dimension, num)
        generator = torch.Generator().manual_seed(seed)
        self.theta = nn.Parameter(torch.zeros(dimension - num))
        self.scales = nn.Parameter(torch.ones(num))
        self.maps = nn.ModuleList(Fastfood(shape.numel(), generator) for shape in self._shapes.values())

    def forward(self, **inputs: Any) -> Any:
        """The outputs of the model with moved weights."""
        return functional_call(self.model, self._moved(), kwargs=inputs)

    def tuned(self) -> nn.Module:
        """A copy of the model with moved weights."""
        copy = deepcopy(self.model)
        with torch.no_grad():
            moved = self._moved()
            for name, parameter in copy.named_parameters():
                parameter.copy_(moved[name])
        return copy

    def _moved(self) -> dict[str, Tensor]:
        frozen = dict(self.model.named_parameters())
        places = zip(self._shapes.items(), self.maps, self.scales, strict=True)
        return {
            name: frozen[name] + scale * projection(self.theta).view(shape)
            for (name, shape), projection, scale in places
        }


def pooler_option(config: PreTrainedConfig, *, pooled: bool) -> dict[str, bool]:
    """The option of transformers that makes a model of `config` with a pooler or without. Models that never have one do
    not know it."""
    kind: Any = AutoModel._model_mapping[type(config)]
    known = "add_pooling_layer" in signature(kind).parameters
    return {"add_pooling_layer": pooled} if known else {}


def dropout_rates(config: PreTrainedConfig, rate: float) -> dict[str, float]:
    """The fields of an encoder's `config` for one `rate` of all its dropouts."""
    return {name: rate for name in _DROPOUTS if hasattr(config, name)}


class TunedEncoder(nn.Module):
    """A tuned encoder with the head of an adapter; logits [rows, outputs], or those of all tokens [tokens, outputs]."""

    def __init__(self, body: nn.Module, spec: HeadSpec, backbone: Backbone, dropout: float) -> None:
        super().__init__()
        self.body, self._spec, self._dropout = body, spec, dropout
        drawn = head.init(spec, backbone, torch.Generator().manual_seed(torch.initial_seed() % 2**63))
        self.head = named_parameters(drawn)

    def forward(self, **inputs: Tensor) -> Tensor:
        output = self.body(**inputs)
        hidden, mask = output.last_hidden_state, inputs["attention_mask"][..., None]
        match self._spec.pooling:
            case "pooler":
                pooled = output.pooler_output
            case "first":
                pooled = hidden[:, 0]
            case "mean":
                pooled = (hidden * mask).sum(1) / mask.sum(1)
            case "max":
                pooled = hidden.masked_fill(mask == 0, -torch.inf).amax(1)
            case "tokens":
                pooled = hidden[mask[..., 0].bool()]
        return multiply_all(
            head.steps(self._spec, by_name(self.head)), F.dropout(pooled, self._dropout, self.training).float()
        )


class TunedPairs(TunedEncoder):
    """A tuned encoder that embeds texts; neighbouring rows are pairs, and its outputs are [pairs, 2, size]."""

    def forward(self, **inputs: Tensor) -> Tensor:
        outputs = super().forward(**inputs)
        return outputs.view(-1, 2, outputs.shape[-1])


class TunedT5(nn.Module):
    """A tuned T5; next-token logits [labelled tokens, vocabulary]."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, *, label_grid: Tensor, **inputs: Tensor) -> Tensor:
        """`label_grid` [rows, tokens] is `IGNORED` where a token has no label."""
        logits: Tensor = self.body(**inputs).logits
        return logits[label_grid != IGNORED]


def create_body(model: nn.Module, settings: Mapping[str, Any], seed: int) -> nn.Module:
    """The model itself for full fine-tuning, else its `Subspace`."""
    return Subspace(model, dimension=int(settings["dimension"]), seed=seed) if "dimension" in settings else model
