"""Executors of trials: local processes or Ray."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from peltier_training.errors import TrainingError
from peltier_training.sweep.runner import ProcessRunner, TrialPlaces
from peltier_training.sweep.trial import Trial, TrialOutcome

EXECUTORS = ("processes", "ray")
_RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# Despite its name, it makes Ray listen on 127.0.0.1 only.
_LOCAL_RAY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


class Executor(Protocol):
    """Runs trials in parallel, `width` at a time."""

    @property
    def width(self) -> int: ...

    def run(self, trials: Sequence[Trial], folder: Path) -> Iterator[tuple[Trial, TrialOutcome]]:
        """Each trial when it ends, with its files in `folder`/KEY. Closing the iterator ends the running trials."""
        ...


@contextmanager
def open_executor(name: str, device: str, workers: int | None) -> Iterator[Executor]:
    """The executor called `name` for trials on `device`, `workers` at a time or as many as the machine has room for."""
    if workers is not None and workers < 1:
        raise TrainingError(f"workers is {workers}; it must be a number of at least 1")
    if name not in EXECUTORS:
        raise TrainingError(f"executor {name!r} is unknown; it is one of {', '.join(EXECUTORS)}")
    if name == "processes":
        yield ProcessRunner(TrialPlaces.find(device, workers))
        return
    for variable, value in (_RAY | ({} if "RAY_ADDRESS" in os.environ else _LOCAL_RAY)).items():
        os.environ.setdefault(variable, value)  # Ray reads them at its import
    try:
        from peltier_training.sweep.ray_runner import open_cluster
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise TrainingError("executor 'ray' needs Ray: pip install \"peltier[training,ray]\"") from None
    with open_cluster(device, workers) as runner:
        yield runner
