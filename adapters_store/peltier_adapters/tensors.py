"""The tensors that the groups of a slice have, by their names."""

from collections.abc import Iterator, Mapping, Sequence

from peltier_backbone.native.scattered import Offsets, Scattered
from torch import Tensor

from peltier_adapters.map_spec import Shape
from peltier_adapters.weights import Layout


class Tensors(Mapping[str, Tensor]):
    """Tensors with a leading dimension of groups, [G, …]."""

    def __init__(self, stacked: Mapping[str, Tensor]) -> None:
        self._stacked = stacked

    def __getitem__(self, name: str) -> Tensor:
        return self._stacked[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stacked)

    def __len__(self) -> int:
        return len(self._stacked)

    def shape(self, name: str) -> Shape:
        """Of one group's tensor."""
        return tuple(self._stacked[name].shape[1:])

    def apart(self, name: str) -> Scattered:
        """Each group's own, for kernels that read them where they lie."""
        return Scattered.of(self[name])

    def under(self, prefix: str) -> "Tensors":
        """Those whose names begin with `prefix`, by the rest of their names."""
        return Tensors({name.removeprefix(prefix): one for name, one in self.items() if name.startswith(prefix)})


class Gathered(Tensors):
    """Tensors of several adapters, each [length] of one layout. They are copied side by side each time they are read,
    which few are: whatever is large, kernels read apart."""

    def __init__(self, layout: Layout, flats: Sequence[Tensor], offsets: Offsets, prefix: str = "") -> None:
        super().__init__({})
        self._layout, self._flats, self._offsets, self._prefix = layout, flats, offsets, prefix
        self._names = {name.removeprefix(prefix): name for name in layout if name.startswith(prefix)}

    def __getitem__(self, name: str) -> Tensor:
        return self._layout.stack(self._names[name], self._flats)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def shape(self, name: str) -> Shape:
        """Without a copy."""
        return tuple(self._layout.view(self._names[name], self._flats[0]).shape)

    def apart(self, name: str) -> Scattered:
        """Without a copy."""
        return Scattered(self._layout.view(self._names[name], self._flats[0]), self._offsets, self._flats)

    def under(self, prefix: str) -> Tensors:
        """Without a copy."""
        return Gathered(self._layout, self._flats, self._offsets, self._prefix + prefix)
