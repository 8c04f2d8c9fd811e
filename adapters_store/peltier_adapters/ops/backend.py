"""The interface of the backends that run ops. `choice.py` chooses one for a device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from peltier_backbone.linear.norm import Norm
from torch import Tensor

from peltier_adapters.ops.op import Program

RecordedGates = dict[str, dict[int, Tensor]]


@dataclass(frozen=True, eq=False)
class AdapterGroup:
    """The next `rows` rows of a batch, which share an adapter or have none: its `program` and its `flat` weights (None
    if the program's ops have the weights). `gates`, unless None, collects gates [rows] by label and layer."""

    rows: int
    program: Program | None = None
    flat: Tensor | None = None
    gates: RecordedGates | None = None

    def record(self, label: str, number: int, gates: Tensor) -> None:
        """Keep the gates [rows] of a layer, if the caller requested gates."""
        if self.gates is not None:
            self.gates.setdefault(label, {})[number] = gates


class GroupedOps(Protocol):
    """The ops of all groups of a batch. Tensors are [tokens, width], all rows of the batch back to back."""

    def act(self, site: str, number: int, y: Tensor, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """y plus everything that the groups add at a site of a layer; may change y in place, and y may be x."""

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        """Norm `index` of x or x + residual, which may overwrite x; `base` for groups without own weights."""

    def prefix_gates(self, number: int, x: Tensor) -> Tensor | None:
        """The gates [rows, 1] of the prefixes of attention `number`, whose queries are computed from x. A row without a
        gate has 1; the result may be None if no row has a gate, or if kernels read prefixes where they lie."""
        return None


class Prepared(NamedTuple):
    """How adapters are kept: the `program` of their weights once these were changed by `change`; None leaves them as
    they are. Every backend computes the same from both: on a GPU another one may take over."""

    program: Program
    change: Callable[[Tensor], Tensor] | None = None

    def weights(self, flat: Tensor) -> Tensor:
        """The weights of an adapter as they are kept."""
        return flat if self.change is None else self.change(flat)


class Backend(Protocol):
    """Runs the ops of a batch, in one way for one device."""

    name: str

    @property
    def element_bytes(self) -> int:
        """The bytes of each element of an adapter's weights, as the backend keeps them."""
        return 4

    def prepare(self, program: Program, length: int) -> Prepared:
        """How the backend keeps adapters of a program, whose weights are [length]."""
        return Prepared(program)

    def group(self, groups: Sequence[AdapterGroup], lengths: Sequence[int]) -> GroupedOps:
        """The ops of the groups of a batch, whose rows have `lengths` tokens."""
