"""T5 with the Compacter authors' modules, stated anew from docs/methods.md around transformers' own model, so
that its state dictionary has the authors' names."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import T5ForConditionalGeneration

TASK = "superglue-boolq"


class Dense(nn.Linear):
    """A dense map of an adapter."""


class Phm(nn.Module):
    """x H + b with H = sum A_i (x) B_i, B_i factored where `rank` is given."""

    def __init__(self, before: int, after: int, n: int, rule: nn.Parameter, rank: int | None) -> None:
        super().__init__()
        self.phm_rule, self.b = rule, nn.Parameter(torch.zeros(after))
        if rank is None:
            self.W = nn.Parameter(torch.zeros(n, before // n, after // n))
        else:
            self.W_left = nn.Parameter(torch.zeros(n, before // n, rank))
            self.W_right = nn.Parameter(torch.zeros(n, rank, after // n))

    def forward(self, x: Tensor) -> Tensor:
        factors = self.W if hasattr(self, "W") else self.W_left @ self.W_right
        whole = sum(torch.kron(rule, factor) for rule, factor in zip(self.phm_rule, factors, strict=True))
        return x @ whole + self.b


class LowRank(nn.Module):
    """x (left right) + b; the authors multiply the factors element by element."""

    def __init__(self, before: int, after: int, rank: int = 1) -> None:
        super().__init__()
        self.W_left, self.W_right = nn.Parameter(torch.zeros(before, rank)), nn.Parameter(torch.zeros(rank, after))
        self.b = nn.Parameter(torch.zeros(after))

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.W_left * self.W_right) + self.b


class Adapter(nn.Module):
    """act(x D + b) U + b."""

    def __init__(self, down: nn.Module, up: nn.Module) -> None:
        super().__init__()
        self.down_sampler, self.up_sampler = down, up

    def forward(self, x: Tensor) -> Tensor:
        return self.up_sampler(F.gelu(self.down_sampler(x), approximate="tanh"))


class AdapterController(nn.Module):
    """The adapters of one place by task."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.adapters = nn.ModuleDict({TASK: adapter})


def add_adapters(model: T5ForConditionalGeneration, method: str, *, first: int = 0, attention: bool = True) -> None:
    """An adapter after self-attention and feed-forward of every block from `first` on, and trained norms."""
    if method == "compacter":
        model.phm_rule = nn.Parameter(torch.zeros(4, 4, 4))
    for stack in (model.encoder, model.decoder):
        for block in list(stack.block)[first:]:
            sites = [(block.layer[-1], block.layer[-1].DenseReluDense)]
            sites += [(block.layer[0], block.layer[0].SelfAttention)] if attention else []
            for layer, module in sites:
                layer.adapter_controller = AdapterController(Adapter(*_maps(model, method)))
                module.register_forward_hook(_adding(layer.adapter_controller.adapters[TASK]))
    shake(model, "adapter_controller", "phm_rule", "layer_norm")


def _maps(model: T5ForConditionalGeneration, method: str, size: int = 12) -> tuple[nn.Module, nn.Module]:
    sizes = ((model.config.d_model, size), (size, model.config.d_model))
    match method:
        case "adapter":
            return tuple(Dense(*pair) for pair in sizes)  # type: ignore[return-value]
        case "lowrank":
            return tuple(LowRank(*pair) for pair in sizes)  # type: ignore[return-value]
        case "phm":
            return tuple(Phm(*pair, 4, nn.Parameter(torch.zeros(4, 4, 4)), None) for pair in sizes)  # type: ignore[return-value]
    return tuple(Phm(*pair, 4, model.phm_rule, 1) for pair in sizes)  # type: ignore[return-value]


def _adding(adapter: Adapter) -> Any:
    def hook(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (output[0] + adapter(output[0]), *output[1:])
        return output + adapter(output)

    return hook


def add_biases(model: T5ForConditionalGeneration) -> None:
    """BitFit: a bias on every map and block norm, and on the output layer."""
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear):
            module.bias = nn.Parameter(torch.zeros(module.out_features))
        elif name.endswith(".layer_norm"):
            module.bias = nn.Parameter(torch.zeros(model.config.d_model))
            module.register_forward_hook(lambda one, _, output: output + one.bias)
    shake(model, ".bias")


def add_prompt(model: T5ForConditionalGeneration, length: int) -> None:
    """A prompt in front of the encoder's tokens, saved once more for each stack."""
    model.prefix_shared = nn.Parameter(torch.zeros(length, model.config.d_model))
    model.encoder.prefix_emb = model.decoder.prefix_emb = model.prefix_shared
    shake(model, "prefix")


def shake(model: nn.Module, *parts: str) -> None:
    """Move the parameters whose names have one of `parts` to values that matter."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(part in name for part in parts):
                parameter.add_(torch.empty_like(parameter).normal_(generator=generator) * 0.4)


@torch.no_grad()
def likelihood(model: T5ForConditionalGeneration, ids: tuple[int, ...], target: tuple[int, ...]) -> float:
    """The log-likelihood of `target`, end included, after a text."""
    embeds = model.shared(torch.tensor([ids]))
    if hasattr(model, "prefix_shared"):
        embeds = torch.cat((model.prefix_shared[None], embeds), 1)
    steps = model(inputs_embeds=embeds, labels=torch.tensor([target])).logits[0].log_softmax(-1)
    return float(steps.gather(1, torch.tensor(target)[:, None]).sum())


def save(model: T5ForConditionalGeneration, path: Path) -> Path:
    """The whole model, as the authors' training script leaves it."""
    torch.save(model.state_dict(), path)
    return path
