"""The adapter that an importer found in a foreign checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.head import SavedHead
from peltier_adapters.importers.shared.imported_part import ImportedPart
from peltier_adapters.spec.parts import Parts
from peltier_adapters.spec.tasks import TaskType


@dataclass(frozen=True)
class ImportedAdapter:
    """An adapter as parts. `method` becomes the name of its preset, and `origin` is recorded for people. `head` is None
    on a T5 and if the checkpoint has none; `labels` are in the order of the head's outputs; `task_type` is known only
    from some heads; `padded` and `normalized` are as in `TaskSpec`. `pooled`: it adapts the pooler, which only a head
    of its own checkpoint can read."""

    method: str
    pieces: Sequence[ImportedPart]
    head: ImportedPart | None = None
    labels: tuple[str, ...] | None = None
    task_type: TaskType | None = None
    origin: dict[str, Any] = field(default_factory=dict)
    padded: bool = False
    normalized: bool = False
    pooled: bool = False

    def with_head(self, saved: SavedHead, where: Path) -> Self:
        """The adapter with a head that was saved in `where`."""
        assert saved.piece is not None, "it was found"
        if self.pooled and getattr(saved.piece.spec, "pooling", None) == "pooler":
            raise AdapterError(f"{where} has a head that reads the pooler, which the adapter changes without a head")
        return replace(
            self, head=saved.piece, labels=saved.labels, task_type=saved.task_type, normalized=saved.normalized
        )

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
