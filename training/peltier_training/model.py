"""The trainable form of an adapter: parameters that become served tensors, applied by the server's own parts."""

from collections.abc import Mapping

import torch
from peltier_adapters.batch import Pooled
from peltier_adapters.composition import Setting
from peltier_adapters.mixture import Mixture, create_slice
from peltier_adapters.parts import head, init_tensors
from peltier_adapters.spec import MAX_SIZE, HeadSpec, Parts, PrefixSpec
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Packed
from torch import Tensor, nn
from torch.nn import functional as F

from peltier_training.errors import TrainingError
from peltier_training.experts import Experts, by_name, named_parameters, routed_sides

Settings = Mapping[str, Setting]
# Settings that shape the training alone: no served part's spec checks them.
_BOUNDS: Mapping[str, tuple[float, float]] = {"experts": (1, 64), "consistency": (0, 1000), "mlp": (0, MAX_SIZE)}


class Direct(nn.Module):
    """Parameters that are served as they are."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._tensors = named_parameters(tensors)

    def forward(self) -> dict[str, Tensor]:
        return by_name(self._tensors)


class PrefixMlp(nn.Module):
    """Prefixes drawn through an MLP while training (methods.md 1.12); only its output is served."""

    def __init__(self, spec: PrefixSpec, backbone: Backbone, width: int) -> None:
        super().__init__()
        config = backbone.config
        self._shape = (spec.length, config.num_layers, 2, config.hidden_size)
        self.embedding = nn.Parameter(torch.empty(spec.length, config.hidden_size).normal_(std=0.02))
        self.mlp = nn.Sequential(
            nn.Linear(config.hidden_size, width),
            nn.Tanh(),
            nn.Linear(width, 2 * config.num_layers * config.hidden_size),
        )
        for name, parameter in self.mlp.named_parameters():
            nn.init.zeros_(parameter) if name.endswith("bias") else nn.init.normal_(parameter, std=0.02)

    def forward(self) -> dict[str, Tensor]:
        keys, values = self.mlp(self.embedding).view(self._shape).permute(2, 1, 0, 3)
        return {"prefix.keys": keys, "prefix.values": values}


class TrainableAdapter(nn.Module):
    """An adapter on a frozen backbone. Its state dict holds the adapter alone: the backbone is not a module.

    `forward` takes packed rows and gives logits [rows, outputs]; `served` gives the tensors of the artifact.
    """

    def __init__(self, backbone: Backbone, parts: Parts, settings: Settings, *, dropout: float, seed: int) -> None:
        super().__init__()
        _check(settings)
        self.backbone, self.parts, self.settings, self._dropout = backbone, parts, settings, dropout
        generator = torch.Generator().manual_seed(seed)
        tensors = init_tensors(parts, backbone, generator)
        self.sources = nn.ModuleList()
        for side in _routed(settings):
            prefix = f"bottleneck.{side}."
            draws = [tensors] + [init_tensors(parts, backbone, generator) for _ in range(int(settings["experts"]) - 1)]
            names = [name for name in tensors if name.startswith(prefix)]
            self.sources.append(Experts({name: torch.stack([draw[name] for draw in draws]) for name in names}))
            tensors = {name: tensor for name, tensor in tensors.items() if name not in names}
        spec = next((part for part in parts if isinstance(part, PrefixSpec)), None)
        if spec is not None and settings["mlp"]:
            self.sources.append(PrefixMlp(spec, backbone, int(settings["mlp"])))
            tensors = {name: t for name, t in tensors.items() if name not in ("prefix.keys", "prefix.values")}
        self.sources.append(Direct(tensors))

    @property
    def head_spec(self) -> HeadSpec:
        """The last part."""
        spec = self.parts[-1]
        assert isinstance(spec, HeadSpec)
        return spec

    @property
    def is_mixture(self) -> bool:
        """Whether two passes in training differ by their routes."""
        return any(isinstance(source, Experts) for source in self.sources)

    def center(self, mean: float) -> None:
        """Start a regression at the mean of its targets."""
        for name, parameter in self.named_parameters():
            if name.endswith("head/bias"):
                nn.init.constant_(parameter, mean)

    @torch.no_grad()
    def merged(self) -> dict[str, Tensor]:
        """Artifact tensors: experts averaged, prefixes evaluated."""
        self.eval()
        return {name: tensor.detach().clone() for name, tensor in self.served().items()}

    def served(self) -> dict[str, Tensor]:
        """Artifact tensors of this pass: routed in training, merged in evaluation; differentiable."""
        return {name: tensor for source in self.sources for name, tensor in source().items()}

    def forward(self, packed: Packed) -> Tensor:
        tensors = {name: tensor[None] for name, tensor in self.served().items()}
        rows = create_slice(self.backbone, packed, 0, [0] * len(packed.lengths), self.parts, tensors)
        hidden = self.backbone.model(packed, Mixture(self.backbone, [rows]))
        pooled = Pooled(self.backbone, packed, [rows], hidden)(self.head_spec.pooling)
        own = {name.removeprefix("head."): t[0] for name, t in tensors.items() if name.startswith("head.")}
        return head.apply(self.head_spec, own, F.dropout(pooled, self._dropout, self.training))


def _check(settings: Settings) -> None:
    for name, (least, most) in _BOUNDS.items():
        if name in settings and not least <= float(settings[name]) <= most:
            raise TrainingError(f"setting {name!r} is {settings[name]}; it must be from {least} to {most}")
    if "experts" in settings and settings["map"] != "dense":
        # The mean of factors is not the factors of the mean.
        raise TrainingError(f"setting 'map' is {settings['map']!r}; experts are merged, and that needs 'dense'")


def _routed(settings: Settings) -> tuple[str, ...]:
    return routed_sides(str(settings["share"])) if "experts" in settings else ()
