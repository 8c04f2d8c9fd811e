"""The parts of an adapter as a server holds them; imports no torch.

Whatever its maps are made of is built once, when the adapter is loaded: a PHM map becomes the dense one that it stands
for, and an LPHM map gets its rule folded into its smaller factor. A batch then builds nothing, and what the device
holds is exactly what these parts' shapes say.
"""

from peltier_adapters.spec.maps import DenseMap, FoldedLphmMap, LphmMap, PhmMap, ServedMapSpec
from peltier_adapters.spec.parts import BottleneckSpec, Parts, PartSpec


def served_parts(parts: Parts) -> Parts:
    """The parts as a device has them; the same where nothing is to be built."""
    return tuple(_served(part) for part in parts)


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
