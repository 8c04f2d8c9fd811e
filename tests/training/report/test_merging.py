"""The merge report against what the trainable form itself computes, route by route."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from peltier_adapters.golden.proof import Candidate
from peltier_adapters.inputs import encode_input
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_training.data.examples import Example
from peltier_training.evaluate.adapters import evaluate_candidate
from peltier_training.models.model import HeadedAdapter
from peltier_training.report.merging import NUM_ENSEMBLES, NUM_PASSES, Merging, Spread, fixed_routes, random_routes
from peltier_training.report.page import report_paths
from peltier_training.report.plots import merging_svg
from peltier_training.report.report import Report
from peltier_training.train import train

from tests.training.conftest import MIXTURE, MakeRun, Train

TASK = TaskSpec(type="regression", labels=("value",), inputs="single", max_length=32)
WORDS = ("a", "film", "the", "plot", "is", "very", "actor", "and", "good", "bad")
EXAMPLES = [
    Example(f"{WORDS[number % 10]} {WORDS[number % 7]} {'very ' * (number % 4)}", float(np.sin(number)), "d:1")
    for number in range(24)
]


def create_mixture(backbone: Backbone) -> HeadedAdapter:
    """Experts far from each other, without dropout, so that a pass in training is its route alone."""
    settings = find_preset("adamix").settings({"experts": "3", "share": "none"}, backbone.config)
    parts = find_preset("adamix").compose(settings, backbone.config, outputs=1)
    model = HeadedAdapter(backbone, parts, settings, seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def compare(backbone: Backbone, model: HeadedAdapter) -> dict[str, Mapping[str, Spread]]:
    adapter = Candidate("toy", "adamix", model.parts, model.merged(), TASK)
    merged = evaluate_candidate(backbone, adapter, EXAMPLES)
    found = Merging.create(backbone, adapter, model, EXAMPLES, merged)
    return {way.name: way.metrics for way in found.ways}


@torch.no_grad()
def answer(backbone: Backbone, model: HeadedAdapter) -> np.ndarray:
    """One pass of the trainable form over all examples at once."""
    rows = [encode_input(backbone, TASK, example.input) for example in EXAMPLES]
    found: np.ndarray = model(backbone.pack(rows))[:, 0].double().numpy()
    return found


def pearson(answers: np.ndarray) -> float:
    return float(np.corrcoef(answers, [float(example.label) for example in EXAMPLES])[0, 1])


def test_random_routing_is_training_without_dropout(bert: Backbone):
    """Each value is that of one pass of the model in training; an ensemble is the mean over four of them."""
    model = create_mixture(bert)
    found = compare(bert, model)
    torch.manual_seed(0)
    model.train()
    passes = np.stack([answer(bert, model) for _ in range(NUM_ENSEMBLES * NUM_PASSES)])  # [passes, rows]
    values = [pearson(one) for one in passes]
    assert found["random routing"]["pearson"].values == pytest.approx(values, abs=1e-4)
    ensembles = passes.reshape(NUM_ENSEMBLES, NUM_PASSES, -1).mean(1)
    assert found["ensemble"]["pearson"].values == pytest.approx([pearson(one) for one in ensembles], abs=1e-4)
    assert np.std(values) > 0.01  # routes differ, or nothing was tested


def test_fixed_routing_is_a_model_of_one_expert(bert: Backbone):
    """Each value is that of a model whose copies are all the same one; merged is the evaluated mixture."""
    model = create_mixture(bert)
    found = compare(bert, model)
    assert found["merged"]["pearson"].values == pytest.approx([pearson(answer(bert, model.eval()))], abs=1e-4)
    values = []
    for copy in range(3):
        single = create_mixture(bert)
        state = single.state_dict()
        single.load_state_dict(
            {name: t[copy].expand_as(t) if "down" in name or "up" in name else t for name, t in state.items()}
        )
        values.append(pearson(answer(bert, single.eval())))
    assert found["fixed routing"]["pearson"].values == pytest.approx(values, abs=1e-4)


def test_a_spread_is_a_samples():
    """Mean and standard deviation with n - 1; one value has none."""
    assert Spread.create([1.0, 2.0, 4.0]).sd == pytest.approx(np.sqrt(7 / 3))
    assert Spread.create([1.0, 2.0, 4.0]).mean == pytest.approx(7 / 3)
    assert Spread.create([1.0]).sd is None


@pytest.mark.parametrize(
    ("family", "task_type", "num_ways"),
    [("bert", "classification", 4), ("t5", "regression", 4), ("t5", "text2text", 3)],
)
def test_a_run_of_a_mixture_compares(trained: Train, family: str, task_type: str, num_ways: int):
    """All ways in both files, merged with the artifact's own metrics; written texts have no ensemble."""
    done = trained(family, task_type, "adamix", overrides=MIXTURE)
    as_json, as_html = report_paths(done.run.output)
    merging = Report.model_validate_json(as_json.read_text()).merging
    assert (merging.experts, merging.share, merging.consistency, len(merging.ways)) == (2, "down", 0.5, num_ways)
    assert {name: spread.mean for name, spread in merging.ways[0].metrics.items()} == done.manifest.training.metrics
    assert [len(way.metrics[done.run.metric].values) for way in merging.ways] == [1, 8, 2, 2][:num_ways]
    assert "<h2>Merging</h2>" in as_html.read_text()
    assert merging_svg(merging, done.run.metric).startswith('<svg role="img"')  # the file was written without plots


@pytest.mark.slow
def test_comparing_changes_no_artifact(make_run: MakeRun):
    """The file is the same, bit for bit, and whoever does not want a comparison does not pay for it."""
    run = make_run("classification", "adamix", epochs=1, merge_report=False)
    train(run)
    plain = run.output.read_bytes()
    assert Report.model_validate_json(report_paths(run.output)[0].read_text()).merging is None
    train(make_run("classification", "adamix", epochs=1))
    assert run.output.read_bytes() == plain


EXPERTS = 3
BIAS = "bottleneck.down.bias"  # [S, L, bottleneck]


def create_wide_mixture(backbone: Backbone, share: str) -> HeadedAdapter:
    overrides = {"experts": str(EXPERTS), "share": share, "bottleneck": "8"}
    settings = find_preset("adamix").settings(overrides, backbone.config)
    parts = find_preset("adamix").compose(settings, backbone.config, outputs=2)
    model = HeadedAdapter(backbone, parts, settings, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    return model


def copies(model: HeadedAdapter, name: str) -> torch.Tensor:
    """The copies [M, …] of a tensor as a checkpoint holds them, or the one that is shared."""
    state = {key.split(".")[-1].replace("/", "."): tensor for key, tensor in model.state_dict().items()}
    return state[name]


@pytest.mark.parametrize(("share", "routed"), [("up", {"down"}), ("down", {"up"}), ("none", {"down", "up"})])
def test_a_fixed_route_is_one_copy_everywhere(bert: Backbone, share: str, routed: set[str]):
    """Every tensor of route 0 is the checkpoint's copy 0, or the shared one, and so on."""
    model = create_wide_mixture(bert, share)
    found = fixed_routes(model)
    assert len(found) == EXPERTS
    for copy, tensors in enumerate(found):
        assert tensors.keys() == model.merged().keys()
        for name, tensor in tensors.items():
            own = copies(model, name)
            assert torch.equal(tensor, own[copy] if name.split(".")[1] in routed else own)


def test_merging_is_the_mean_of_the_fixed_routes(bert: Backbone):
    """Tensor by tensor (AdaMix section 2.3)."""
    model = create_wide_mixture(bert, "none")
    found, merged = fixed_routes(model), model.merged()
    for name, tensor in merged.items():
        torch.testing.assert_close(tensor, torch.stack([route[name] for route in found]).mean(0))


def test_a_random_route_has_a_copy_a_layer(bert: Backbone):
    """Each layer's bias is one of the copies of that layer; over twenty routes each copy is met in each layer."""
    model = create_wide_mixture(bert, "up")
    drawn = torch.stack([tensors[BIAS] for tensors in random_routes(model, 20, seed=0)])  # [routes, S, L, bottleneck]
    same = (drawn[:, None] == copies(model, BIAS)[None]).all(-1)  # [routes, M, S, L]
    assert bool((same.sum(1) == 1).all())
    assert bool(same.any(0).all())


def test_routes_leave_no_trace(bert: Backbone):
    """The same seed draws the same routes, training's own random numbers go on as if nothing was drawn, and the model
    is merged as before."""
    model = create_wide_mixture(bert, "up")
    before, state = model.merged(), torch.get_rng_state()
    first, second = random_routes(model, 2, seed=5), random_routes(model, 2, seed=5)
    assert all(torch.equal(one[BIAS], other[BIAS]) for one, other in zip(first, second, strict=True))
    assert not torch.equal(first[0][BIAS], first[1][BIAS])
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.served().items())
