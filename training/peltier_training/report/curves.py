"""Curves of the loss and the metrics."""

from collections.abc import Iterator, Sequence

from peltier_adapters.spec.maps import Spec

from peltier_training.fit.trainer import History

_VALIDATION = "eval_"
_TRAINED = ("loss", "learning_rate")
_NO_METRICS = ("runtime", "samples_per_second", "steps_per_second")


class CurvePoint(Spec):
    """A value after a number of steps, and that number in epochs."""

    step: int
    epoch: float
    value: float


class Curves(Spec):
    """`training` has the loss, a mean over the steps since the previous point, and the learning rate. `validation` has
    each metric at each validation, in the run's dtype and on the rows that choose the epoch."""

    training: dict[str, tuple[CurvePoint, ...]]
    validation: dict[str, tuple[CurvePoint, ...]]
    best_step: int | None

    @classmethod
    def create(cls, history: History) -> "Curves":
        training: dict[str, list[CurvePoint]] = {}
        validation: dict[str, list[CurvePoint]] = {}
        for name, point in _points(history):
            if name in _TRAINED:
                training.setdefault(name, []).append(point)
            elif name.startswith(_VALIDATION) and name.removeprefix(_VALIDATION) not in _NO_METRICS:
                validation.setdefault(name.removeprefix(_VALIDATION), []).append(point)
        return cls(
            training={name: tuple(points) for name, points in training.items()},
            validation={name: tuple(points) for name, points in validation.items()},
            best_step=history.best_step,
        )

    def thinned(self, most: int) -> "Curves":
        """The curves with about `most` evenly spaced points each, and those of the best step."""
        values = {
            part: {name: tuple(self._spaced(points, most))[::-1] for name, points in getattr(self, part).items()}
            for part in ("training", "validation")
        }
        return self.model_copy(update=values)

    def _spaced(self, points: Sequence[CurvePoint], most: int) -> Iterator[CurvePoint]:
        interval = max(len(points) // most, 1)
        for place, point in enumerate(reversed(points)):  # the last one is kept
            if place % interval == 0 or point.step == self.best_step:
                yield point


def _points(history: History) -> Iterator[tuple[str, CurvePoint]]:
    for entry in history.log:
        for name, value in entry.items():
            if name not in ("step", "epoch"):
                yield name, CurvePoint(step=int(entry["step"]), epoch=entry["epoch"], value=value)
