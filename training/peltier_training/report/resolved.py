"""The resolved settings of a run."""

from peltier_adapters.artifact.manifest import TrainingRecord
from peltier_adapters.spec.maps import Spec

from peltier_training.report.cost import Cost
from peltier_training.report.curves import Curves


class Resolved(Spec):
    """The used values of settings with a default or "auto". `steps` and `epochs` were trained, `best_step` and
    `best_epoch` were kept; `pooling` is None on T5, which has no head."""

    device: str
    dtype: str
    threads: int | None
    pooling: str | None
    metric: str
    learning_rate: float
    batch_size: int
    max_length: int
    epochs: float
    steps: int
    best_epoch: float | None
    best_step: int | None

    @classmethod
    def create(cls, metric: str, pooling: str | None, record: TrainingRecord, curves: Curves, cost: Cost) -> "Resolved":
        """From the record of a run."""
        points = curves.validation.get(metric, ())
        best = next((point for point in points if point.step == curves.best_step), None)
        numbers = record.hyperparameters
        return cls(
            device=cost.device,
            dtype=cost.dtype,
            threads=cost.threads,
            pooling=pooling,
            metric=metric,
            learning_rate=numbers["learning_rate"],
            batch_size=numbers["batch_size"],
            max_length=numbers["max_length"],
            epochs=points[-1].epoch if points else 0.0,
            steps=points[-1].step if points else 0,
            best_epoch=best.epoch if best else None,
            best_step=curves.best_step,
        )
