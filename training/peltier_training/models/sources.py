"""The trainable sources of an adapter's served tensors, and the random numbers of a training pass."""

from collections.abc import Mapping

import numpy as np
import torch
from peltier_adapters.parts import init_tensors
from peltier_adapters.presets.composition import PresetSettings
from peltier_adapters.spec.parts import LoraSpec, Parts, PrefixSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig, T5Config
from torch import Tensor, nn
from torch.nn import functional as F

from peltier_training.config.preparation import routed_sides

_BITS = 16


class Stream:
    """The dropout and the routes of one pass, drawn in the order of the calls.

    They depend on `key` alone, such as a seed and a step: not on torch's global generator, not on other trainings in
    the process, and not on whether a training was resumed. Without a key torch's global generator chooses one.

    A step may be divided into several pieces. They have the same routes, unless each row has its own, and dropouts of
    their own."""

    def __init__(self, *key: int, piece: int = 0) -> None:
        whole = key or (int(torch.randint(2**62, ())),)
        self._key = (*whole, piece) if piece else whole
        self._generator = np.random.Generator(np.random.SFC64(self._key))
        self._of_whole = np.random.Generator(np.random.SFC64(whole)) if piece else self._generator
        self._on_device: torch.Generator | None = None

    def drop(self, x: Tensor, rate: float) -> Tensor:
        """`x` with elements set to 0 with probability `rate`, below 1, and the others scaled to the same mean."""
        if not rate:
            return x
        mask = self._cpu_mask(tuple(x.shape), rate) if x.device.type == "cpu" else self._device_mask(x, rate)
        return x * mask.to(x)

    def _cpu_mask(self, shape: tuple[int, ...], rate: float) -> Tensor:
        """`rate` is rounded to a multiple of 2^-16. Bits of numpy take a third of the time of torch's Bernoulli numbers
        on a CPU."""
        most = 2 ** (_BITS - 1)
        bits = torch.from_numpy(self._generator.integers(-most, most, size=shape, dtype=np.int16))
        dropped = round(rate * 2**_BITS)
        kept: Tensor = bits >= dropped - most
        return kept.float().mul_(2**_BITS / (2**_BITS - dropped))

    def _device_mask(self, x: Tensor, rate: float) -> Tensor:
        """Drawn on the device, because a copy to it would wait for the steps before."""
        if self._on_device is None:
            seed = int(np.random.SeedSequence(self._key).generate_state(1, np.uint64)[0] >> 1)
            self._on_device = torch.Generator(x.device).manual_seed(seed)
        return torch.empty_like(x).bernoulli_(1 - rate, generator=self._on_device).div_(1 - rate)

    def routes(self, copies: int, shape: tuple[int, ...]) -> Tensor:
        """Numbers below `copies`; the first dimension has the draws."""
        generator = self._of_whole if shape[0] == 1 else self._generator
        return torch.from_numpy(generator.integers(copies, size=shape))


def named_parameters(tensors: Mapping[str, Tensor]) -> nn.ParameterDict:
    """Parameters under their served names, with "/" for "." because module attributes cannot contain dots."""
    return nn.ParameterDict({name.replace(".", "/"): nn.Parameter(tensor) for name, tensor in tensors.items()})


def by_name(parameters: nn.ParameterDict) -> dict[str, Tensor]:
    """The inverse of `named_parameters`."""
    return {name.replace("/", "."): tensor for name, tensor in parameters.items()}


class Experts(nn.Module):
    """The copies of one projection: its tensors with a leading dimension of M in front of [S, L, …]."""

    def __init__(self, copies: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._copies = named_parameters(copies)

    def forward(self, stream: Stream | None = None) -> dict[str, Tensor]:
        """In training one draw, [S, L, …]; in evaluation the mean of the copies."""
        if not self.training:
            return {name: copies.mean(0) for name, copies in by_name(self._copies).items()}
        return {name: drawn[0] for name, drawn in self.draw(1, stream or Stream()).items()}

    def draw(self, num: int, stream: Stream) -> dict[str, Tensor]:
        """`num` draws, [num, S, L, …]: one copy per site and layer, the same for weight and bias."""
        tensors = by_name(self._copies)
        copies, sites, layers = next(iter(tensors.values())).shape[:3]
        route = stream.routes(copies, (num, sites, layers))
        site, layer = torch.arange(sites)[:, None], torch.arange(layers)[None]
        return {name: tensor[route, site, layer] for name, tensor in tensors.items()}

    def fixed(self, copy: int) -> dict[str, Tensor]:
        """The same copy everywhere, [S, L, …]."""
        return {name: copies[copy] for name, copies in by_name(self._copies).items()}


def consistency_loss(first: Tensor, second: Tensor, *, rows: int | None = None, multilabel: bool = False) -> Tensor:
    """Half the symmetric KL divergence of two passes' predictions, each against the other detached
    (docs/methods/adamix.md#eq-consistency).

    Logits are [predictions, labels]. The sum is divided by `rows`, None if each row is one prediction. A text is one
    row, and its divergence the sum over its tokens. Each independent label is a two-way distribution.
    """
    p, q = (_log_probabilities(logits, multilabel) for logits in (first, second))
    forward = F.kl_div(p, q.detach(), reduction="sum", log_target=True)
    backward = F.kl_div(q, p.detach(), reduction="sum", log_target=True)
    return 0.5 * (forward + backward) / (rows or len(first))


def _log_probabilities(logits: Tensor, multilabel: bool) -> Tensor:
    if multilabel:
        return torch.stack((F.logsigmoid(logits), F.logsigmoid(-logits)), -1)
    return logits.log_softmax(-1)


class Direct(nn.Module):
    """Parameters that are served unchanged."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._tensors = named_parameters(tensors)

    def forward(self) -> dict[str, Tensor]:
        return by_name(self._tensors)


class PrefixGroup(nn.Module):
    """The prefixes of `num_attentions` attentions from one embedding and one MLP (docs/methods/prefix.md)."""

    def __init__(self, spec: PrefixSpec, config: BackboneConfig, num_attentions: int, width: int) -> None:
        super().__init__()
        self._shape = (spec.length, num_attentions, 2, config.attention_size)
        self.embedding = nn.Parameter(torch.empty(spec.length, config.hidden_size).normal_(std=0.02))
        self.mlp = nn.Sequential(
            nn.Linear(config.hidden_size, width),
            nn.Tanh(),
            nn.Linear(width, 2 * num_attentions * config.attention_size),
        )
        for name, parameter in self.mlp.named_parameters():
            nn.init.zeros_(parameter) if name.endswith("bias") else nn.init.normal_(parameter, std=0.02)

    def forward(self) -> Tensor:
        """Keys and values, [2, attentions, length, attention size]."""
        flat: Tensor = self.mlp(self.embedding)
        return flat.view(self._shape).permute(2, 1, 0, 3)


class PrefixMlp(nn.Module):
    """Prefixes from MLPs that exist only in training. On T5 the encoder, the decoder and the cross-attentions are
    separate groups."""

    def __init__(self, spec: PrefixSpec, config: BackboneConfig, width: int) -> None:
        super().__init__()
        self.groups = nn.ModuleList(PrefixGroup(spec, config, num, width) for num in _groups(spec, config) if num)

    def forward(self) -> dict[str, Tensor]:
        keys, values = torch.cat([group() for group in self.groups], 1)
        return {"prefix.keys": keys, "prefix.values": values}


def _groups(spec: PrefixSpec, config: BackboneConfig) -> list[int]:
    """The number of attentions with a prefix in each group, in order."""
    if isinstance(config, T5Config):
        decoder = max(config.num_decoder_layers - spec.skip, 0)
        return [max(config.num_layers - spec.skip, 0), decoder, decoder]
    return [len(spec.attentions(config))]


def create_sources(backbone: Backbone, parts: Parts, settings: PresetSettings, seed: int) -> nn.ModuleList:
    """The sources of every tensor of `parts`, whose settings are checked (`preparation.check_settings`)."""
    generator = torch.Generator().manual_seed(seed)
    tensors = init_tensors(parts, backbone, generator)
    sources = nn.ModuleList()
    kind = "lora" if any(isinstance(part, LoraSpec) for part in parts) else "bottleneck"
    for side in routed_sides(settings):
        names = [name for name in tensors if f"{name}.".startswith(f"{kind}.{side}.")]
        others = range(int(settings["experts"]) - 1)
        # docs/methods.md#initialisation: copies of an adapter are drawn separately; copies of LoRA begin equal.
        draws = [tensors, *(tensors if kind == "lora" else init_tensors(parts, backbone, generator) for _ in others)]
        # A bottleneck's weight and bias have one route, each of LoRA's tensors the maps of another shape.
        for routed in [[name] for name in names] if kind == "lora" else [names]:
            sources.append(Experts({name: torch.stack([draw[name] for draw in draws]) for name in routed}))
        tensors = {name: tensor for name, tensor in tensors.items() if name not in names}
    spec = next((part for part in parts if isinstance(part, PrefixSpec)), None)
    if spec is not None and settings["mlp"]:
        sources.append(PrefixMlp(spec, backbone.config, int(settings["mlp"])))
        tensors = {name: t for name, t in tensors.items() if name not in ("prefix.keys", "prefix.values")}
    if settings.get("start") == "vocabulary":
        tensors["prompt.weight"] = _vocabulary(backbone, len(tensors["prompt.weight"]))
    sources.append(Direct(tensors))
    return sources


def _vocabulary(backbone: Backbone, length: int) -> Tensor:
    """The first embeddings of the checkpoint, from which PROMPT-T starts (docs/methods/prompt.md)."""
    return backbone.t5.embedding(torch.arange(length, device=backbone.device)).float()
