"""What an adapter adds to its backbone, by part."""

from peltier_adapters.spec.maps import Spec
from peltier_adapters.spec.parts import Parts, count_parameters
from peltier_backbone.config import BackboneConfig
from torch import nn


class PartParameters(Spec):
    """The parameters that one part serves with, and what percentage of the backbone's they are."""

    part: str
    parameters: int
    percent: float


class Parameters(Spec):
    """`total` is without the head, as the papers count; `trained` is what the optimizer had, the head, all experts of
    AdaMix and the MLP of a prefix included."""

    backbone: int
    parts: tuple[PartParameters, ...]
    total: PartParameters
    trained: PartParameters

    @classmethod
    def create(cls, parts: Parts, config: BackboneConfig, model: nn.Module) -> "Parameters":
        """The count of each of `parts`, and of the trainable `model` that they came from."""
        rows = tuple(_row(part.kind, count_parameters((part,), config, head=True), config) for part in parts)
        return cls._of(rows, count_parameters(parts, config), config, model)

    @classmethod
    def create_tuned(cls, total: int, config: BackboneConfig, model: nn.Module) -> "Parameters":
        """Of a baseline's tuned `model`, which has no parts; its method counts `total`."""
        return cls._of((), total, config, model)

    @classmethod
    def _of(
        cls, parts: tuple[PartParameters, ...], total: int, config: BackboneConfig, model: nn.Module
    ) -> "Parameters":
        trained = sum(one.numel() for one in model.parameters() if one.requires_grad)
        return cls(
            backbone=config.num_parameters,
            parts=parts,
            total=_row("total", total, config),
            trained=_row("trained", trained, config),
        )


def _row(name: str, counted: int, config: BackboneConfig) -> PartParameters:
    return PartParameters(part=name, parameters=counted, percent=100 * counted / config.num_parameters)
