"""The common part of the processes of `engines.py`: the rows to compute, and the cases of an engine.

It imports only numpy, because each of these processes measures its own memory.
"""

import itertools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from answering import Case, answer

Batch = list[list[int]]
Array = np.ndarray[Any, np.dtype[Any]]
# Computes the hidden states of a batch: [rows, width, hidden] with padding or [tokens, hidden] without.
Run = Callable[[Batch], Array]


@dataclass(frozen=True)
class Arguments:
    """The command line of an engine's process: `folder` has the rows and takes the hidden states, `model` is the folder
    of the model that the engine makes of the checkpoint."""

    name: str
    precision: str
    num_threads: int
    checkpoint: str
    folder: Path
    model: Path

    @classmethod
    def read(cls) -> "Arguments":
        name, precision, num_threads, checkpoint, folder, model = sys.argv[1:7]
        return cls(name, precision, int(num_threads), checkpoint, Path(folder), Path(model))

    @property
    def library(self) -> str:
        """The first word of the name."""
        return self.name.partition(" ")[0]

    @property
    def states(self) -> Path:
        """Where the hidden states go."""
        return self.folder / f"{self.name}.npy"

    @property
    def texts(self) -> Path:
        """Where texts go."""
        return self.folder / f"{self.name}.json"

    def read_work(self) -> "Work":
        return Work(**json.loads((self.folder / "work.json").read_text()))

    def read_calibration(self) -> Batch:
        """Rows that no workload has."""
        rows: Batch = json.loads((self.folder / "calibration.json").read_text())
        return rows


@dataclass(frozen=True)
class Work:
    """Token ids of rows: batches by the name of their workload, and one row for each tenant."""

    batches: dict[str, list[Batch]]
    tenants: Batch


def pad(batch: Batch) -> dict[str, Array]:
    """The inputs of a BERT, [rows, longest]."""
    width = max(map(len, batch))
    ids, mask = np.zeros((2, len(batch), width), np.int64)
    for number, row in enumerate(batch):
        ids[number, : len(row)] = row
        mask[number, : len(row)] = 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def run_all(run: Callable[[Any], object], batches: Sequence[Any]) -> None:
    """Every batch, one after the other."""
    for batch in batches:
        run(batch)


def save_states(run: Run, work: Work, file: Path) -> None:
    """Writes the hidden states of the real tokens of the random batches, [tokens, hidden]."""
    np.save(file, np.concatenate([_real_tokens(run(batch), batch) for batch in work.batches["random"]]))


def _real_tokens(states: Array, batch: Batch) -> Array:
    if states.ndim == 2:
        return states
    return np.concatenate([own[: len(row)] for own, row in zip(states, batch, strict=True)])


def serve(
    arguments: Arguments, load: Callable[[], Run], convert: Callable[[], None] | None = None, *,
    has_tenants: bool = True,
) -> None:  # fmt: skip
    """Answers until standard input ends, or with `--convert` makes the engine's own form of the checkpoint.

    `load` makes one more model: the n-th computes the row of tenant n, and the first everything else. Without tenants
    there is one model."""
    if "--convert" in sys.argv:
        if convert is not None:
            convert()
        return
    work, models = arguments.read_work(), [load()]

    def tenants() -> None:
        for run, row in zip(itertools.cycle(models), work.tenants, strict=False):
            run([row])

    cases: dict[str, Case] = {name: lambda own=own: run_all(models[0], own) for name, own in work.batches.items()}
    cases["states"] = lambda: save_states(models[0], work, arguments.states)
    if has_tenants:
        cases |= {"load": lambda: models.append(load()), "tenants": tenants}
    answer(cases)
