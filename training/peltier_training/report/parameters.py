"""What an adapter adds to its backbone, by part."""

from peltier_adapters.map_spec import Spec
from peltier_adapters.spec import Parts, count_parameters
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
        whole = config.num_parameters

        def row(name: str, counted: int) -> PartParameters:
            return PartParameters(part=name, parameters=counted, percent=100 * counted / whole)

        trained = sum(one.numel() for one in model.parameters() if one.requires_grad)
        return cls(
            backbone=whole,
            parts=tuple(row(part.kind, count_parameters((part,), config, head=True)) for part in parts),
            total=row("total", count_parameters(parts, config)),
            trained=row("trained", trained),
        )
