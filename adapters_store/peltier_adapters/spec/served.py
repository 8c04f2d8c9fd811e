"""The parts of an adapter in the form in which a server holds them. Imports no torch.

Maps are built once, when the adapter is loaded: a PHM map becomes a dense map, and the rule of an LPHM map is folded
into its smaller factor. So batches build nothing, and the tensors on the device have exactly the shapes of these parts.
"""

from functools import lru_cache

from peltier_adapters.spec.maps import DenseMap, FoldedLphmMap, LphmMap, PhmMap, ServedMapSpec
from peltier_adapters.spec.parts import BottleneckSpec, Parts, PartSpec


@lru_cache(maxsize=1024)
def served_parts(parts: Parts) -> Parts:
    """The parts as a device holds them; parts without maps to build are the same object."""
    served = tuple(_served(part) for part in parts)
    return parts if served == parts else served


def _served(part: PartSpec) -> PartSpec:
    if not isinstance(part, BottleneckSpec):
        return part
    built: ServedMapSpec = part.map
    match part.map:
        case PhmMap():
            built = DenseMap()
        case LphmMap(n=n, rank=rank):
            built = FoldedLphmMap(n=n, rank=rank)
    return part if built is part.map else part.model_copy(update={"map": built})
