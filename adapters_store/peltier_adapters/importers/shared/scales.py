"""Makes one part of the factors that a library has for the inputs and outputs of linear maps (IA3)."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.imported import ImportedPart
from peltier_adapters.importers.shared.module_sites import ModuleSite
from peltier_adapters.spec.parts import ScaleSite, ScaleSpec

# The columns of the maps that a module computes: the site, and which of the equal ranges of the site's columns.
_OUTPUTS: Mapping[str, tuple[tuple[ScaleSite, int], ...]] = {
    "query": (("query", 0),),
    "key": (("key", 0),),
    "value": (("value", 0),),
    "query_key_value": (("query", 0), ("key", 0), ("value", 0)),
    "attention_output": (("attention_output", 0),),
    "intermediate": (("intermediate", 0),),
    "intermediate_factor": (("intermediate", 1),),
    "gated_intermediate": (("intermediate", 0), ("intermediate", 1)),
    "output": (("output", 0),),
}
# The input of the output map of an attention is a mean of values, so factors of both multiply.
_INPUTS: Mapping[str, tuple[tuple[ScaleSite, int], ...]] = {
    "attention_output": (("value", 0),),
    "output": (("activated", 0),),
}


@dataclass(frozen=True)
class Factors:
    """Factors of the outputs of a linear map, or of its inputs."""

    values: Tensor
    of_input: bool


def create_scale(found: Mapping[ModuleSite, Factors], config: BackboneConfig) -> ImportedPart:
    """The part of factors by projection and its attention or block; those that are missing are 1. Raises an
    `AdapterError` for factors of an input that no site has, or of another width than the map's."""
    placed = [piece for place, own in found.items() for piece in _split(place, own)]
    spec = ScaleSpec(sites=tuple(dict.fromkeys(site for site, *_ in placed)))
    tensors = {site: torch.ones(shape) for site, shape in spec.shapes(config).items()}
    for site, number, which, values in placed:
        whole = tensors[site][spec.numbers(site, config).index(number)]
        halves = config.expansion_size // config.intermediate_size if site == "intermediate" else 1
        part = whole.chunk(halves)[which]
        if len(part) != len(values):
            raise AdapterError(f"the factors of {site!r} are {len(values)}; on this backbone they must be {len(part)}")
        part *= values
    return ImportedPart(spec, tensors)


def _split(place: ModuleSite, own: Factors) -> list[tuple[ScaleSite, int, int, Tensor]]:
    site, number = place
    columns = (_INPUTS if own.of_input else _OUTPUTS).get(site)
    if columns is None:
        raise AdapterError(
            f"factors of the input of {site!r} are not supported; those of inputs may be at {', '.join(_INPUTS)}"
        )
    pieces = own.values.chunk(len(columns))
    return [(to, number, which, piece) for (to, which), piece in zip(columns, pieces, strict=True)]
