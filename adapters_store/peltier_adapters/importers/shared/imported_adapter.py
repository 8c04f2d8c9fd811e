"""The adapter that an importer found in a foreign checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from peltier_adapters.importers.shared.imported_part import ImportedPart
from peltier_adapters.spec.parts import Parts


@dataclass(frozen=True)
class ImportedAdapter:
    """An adapter as parts. `method` becomes the name of its preset, and `origin` is recorded for people. `head` is None
    on a T5 and if the checkpoint has none; `labels` are in the order of the head's outputs; `task_type` is known only
    from some heads; `padded` is as in `TaskSpec`."""

    method: str
    pieces: Sequence[ImportedPart]
    head: ImportedPart | None = None
    labels: tuple[str, ...] | None = None
    task_type: str | None = None
    origin: dict[str, Any] = field(default_factory=dict)
    padded: bool = False

    @property
    def parts(self) -> Parts:
        """The specs in order, the head last."""
        return tuple(piece.spec for piece in self._all())

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor as the artifact names it."""
        return {name: tensor for piece in self._all() for name, tensor in piece.named().items()}

    def _all(self) -> list[ImportedPart]:
        return [*self.pieces, *([self.head] if self.head is not None else [])]
