"""The merged adapter of AdaMix compared with single routes through its unmerged experts (AdaMix section 3.3)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from peltier_adapters.golden.proof import Candidate
from peltier_adapters.spec.maps import Spec
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_training.data.examples import Example
from peltier_training.evaluate.adapters import evaluate_candidate, judge_scores
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.models.model import TrainableAdapter
from peltier_training.models.sources import Experts, Stream

NUM_PASSES = 4  # random routes of an ensemble, as in the paper
NUM_ENSEMBLES = 2
_SEED = 0
RouteTensors = dict[str, Tensor]


class Spread(Spec):
    """One metric of one or several adapters; `sd` is the sample standard deviation, None for a single value."""

    values: tuple[float, ...]
    mean: float
    sd: float | None

    @classmethod
    def create(cls, values: Sequence[float]) -> "Spread":
        sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return cls(values=tuple(values), mean=float(np.mean(values)), sd=sd)


class Way(Spec):
    """One way to answer with the experts. Fixed routing has a value for each copy, random routing for each drawn route,
    and an ensemble uses the mean scores of several drawn routes."""

    name: Literal["merged", "random routing", "fixed routing", "ensemble"]
    metrics: dict[str, Spread]


class Merging(Spec):
    """All ways on all validation rows. Generated texts have no mean and thus no ensemble."""

    experts: int
    share: str
    consistency: float
    passes: int
    ways: tuple[Way, ...]

    @classmethod
    def create(
        cls,
        backbone: Backbone,
        adapter: Candidate,
        model: TrainableAdapter,
        examples: Sequence[Example],
        merged: Evaluation,
    ) -> "Merging":
        """Measure the routes of `model`; `adapter` is its merged form, and `merged` the evaluation of that."""
        random, fixed = (
            [evaluate_candidate(backbone, replace(adapter, tensors=tensors), examples) for tensors in routes]
            for routes in (random_routes(model, NUM_ENSEMBLES * NUM_PASSES, _SEED), fixed_routes(model))
        )
        groups = [random[first : first + NUM_PASSES] for first in range(0, len(random), NUM_PASSES)]
        ensembles = [found for group in groups if (found := _ensemble(backbone, adapter, examples, group))]
        ways = (
            _way("merged", [merged]),
            _way("random routing", random),
            _way("fixed routing", fixed),
            _way("ensemble", ensembles),
        )
        return cls(
            experts=int(model.settings["experts"]),
            share=str(model.settings["share"]),
            consistency=float(model.settings["consistency"]),
            passes=NUM_PASSES,
            ways=tuple(way for way in ways if way.metrics),
        )


def _ensemble(
    backbone: Backbone, adapter: Candidate, examples: Sequence[Example], passes: Sequence[Evaluation]
) -> Evaluation | None:
    scores = [evaluation.scores for evaluation in passes if evaluation.scores is not None]
    return judge_scores(backbone, adapter.task, torch.stack(scores).mean(0), examples) if scores else None


def _way(
    name: Literal["merged", "random routing", "fixed routing", "ensemble"], evaluations: Sequence[Evaluation]
) -> Way:
    names = evaluations[0].metrics if evaluations else ()
    return Way(
        name=name,
        metrics={metric: Spread.create([evaluation.metrics[metric] for evaluation in evaluations]) for metric in names},
    )


@torch.no_grad()
def fixed_routes(model: TrainableAdapter) -> list[RouteTensors]:
    """Artifact tensors of each copy, used in every projection and layer; the paper's fixed routing is the first."""
    model.eval()
    return [
        _clone({name: tensor for source in model.sources for name, tensor in _fixed(source, copy).items()})
        for copy in range(int(model.settings["experts"]))
    ]


@torch.no_grad()
def random_routes(model: TrainableAdapter, num: int, seed: int) -> list[RouteTensors]:
    """Artifact tensors of `num` routes drawn as in training: a copy for each projection and layer
    (docs/methods/adamix.md)."""
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        drawn = [_clone(model.served(Stream())) for _ in range(num)]
    model.eval()
    return drawn


def _fixed(source: torch.nn.Module, copy: int) -> RouteTensors:
    tensors: RouteTensors = source.fixed(copy) if isinstance(source, Experts) else source()
    return tensors


def _clone(tensors: RouteTensors) -> RouteTensors:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
