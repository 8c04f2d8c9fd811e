"""The parameters of an adapter, by part."""

from peltier_adapters.spec.maps import Spec
from peltier_adapters.spec.parts import Parts, count_parameters
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import nn


class PartParameters(Spec):
    """The served parameters of one part, and their percentage of the backbone's."""

    part: str
    parameters: int
    percent: float


class ParameterCounts(Spec):
    """`total` excludes the head, as in the papers; `trained` counts the optimizer's parameters, including the head, all
    experts of AdaMix and the MLP of a prefix."""

    backbone: int
    parts: tuple[PartParameters, ...]
    total: PartParameters
    trained: PartParameters

    @classmethod
    def create(cls, parts: Parts, config: BackboneConfig, model: nn.Module) -> "ParameterCounts":
        """The counts of `parts` and of their trainable `model`."""
        rows = tuple(_row(part.kind, count_parameters((part,), config, head=True), config) for part in parts)
        return cls._of(rows, count_parameters(parts, config), config, model)

    @classmethod
    def create_tuned(cls, total: int, config: BackboneConfig, model: nn.Module) -> "ParameterCounts":
        """The counts of a baseline's tuned `model`, which has no parts; its method gives `total`."""
        return cls._of((), total, config, model)

    @classmethod
    def _of(
        cls, parts: tuple[PartParameters, ...], total: int, config: BackboneConfig, model: nn.Module
    ) -> "ParameterCounts":
        trained = sum(weights.numel() for weights in model.parameters() if weights.requires_grad)
        return cls(
            backbone=config.num_parameters,
            parts=parts,
            total=_row("total", total, config),
            trained=_row("trained", trained, config),
        )


def _row(name: str, counted: int, config: BackboneConfig) -> PartParameters:
    return PartParameters(part=name, parameters=counted, percent=100 * counted / config.num_parameters)
