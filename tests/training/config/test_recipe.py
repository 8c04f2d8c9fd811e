"""The papers' hyper-parameters as data."""

import tomllib
from importlib.resources import files

import pytest
from peltier_adapters.presets.baselines import BASELINES, find_method
from peltier_adapters.presets.presets import Preset
from peltier_training.config.preparation import prepare
from peltier_training.config.recipe import (
    GivenValue,
    RecipeFile,
    ResolvedChoice,
    find_recipe,
    print_resolved,
    recipe_names,
)
from peltier_training.config.run import METRICS, Hyperparameters
from peltier_training.config.task_options import TEMPLATES, TextOptions
from peltier_training.data.labels import TaskType
from peltier_training.errors import TrainingError

from tests.support.published_counts import CONFIGS

BERT_TASKS = ("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte")
RUN = [name for name in recipe_names() if not name.endswith("/glue-output")]


@pytest.mark.parametrize("name", RUN)
def test_every_recipe_makes_a_run(name: str):
    """It names a real method, its settings compose on its backbone, and its numbers are possible."""
    recipe = find_recipe(name, "sst2")
    config, method = CONFIGS[recipe.backbone.removesuffix("-uncased")], find_method(recipe.preset)
    settings = method.settings(recipe.settings, config)
    if isinstance(method, Preset):
        assert method.compose(settings, config, outputs=2)
    Hyperparameters(**recipe.hyperparameters).check()
    assert recipe.source
    assert "learning_rate" in recipe.hyperparameters
    assert recipe.template is None or (config.generates and recipe.template in TEMPLATES)


@pytest.mark.parametrize("name", RUN)
def test_metrics_of_recipes_exist(name: str):
    """Each task's metric is one that its kind of task has: STS-B's labels are numbers, all others' are classes."""
    for task in (*BERT_TASKS, "boolq", "cb", "copa", "multirc", "record", "wic"):
        kind: TaskType = "regression" if task == "stsb" else "classification"
        assert find_recipe(name, task).hyperparameters.get("metric", METRICS[kind][0]) in METRICS[kind]


# Compacter's Tables 4, 10 and 11.
RATES = {
    "full": (3e-4, 3e-4, 3e-4),
    "houlsby": (3e-4, 3e-3, 3e-4),
    "pfeiffer": (3e-4, 3e-4, 3e-4),
    "adapterdrop": (3e-4, 3e-3, 3e-4),
    "lowrank": (3e-3, 3e-3, 3e-3),
    "prompt-r": (3e-2, 3e-2, 3e-2),
    "prompt-t": (3e-1, 3e-1, 3e-1),
    "intrinsic-said": (3e-2, 3e-2, 3e-3),
    "bitfit": (3e-4, 3e-3, 3e-4),
    "phm": (3e-3, 3e-3, 3e-3),
    "compacter": (3e-3, 3e-3, 3e-3),
    "compacter++": (3e-3, 3e-3, 3e-3),
}


@pytest.mark.parametrize("preset", RATES)
def test_learning_rates_of_compacter(preset: str):
    """Tables 4 (T5-base, GLUE), 10 (T5-small, GLUE) and 11 (T5-base, SuperGLUE), method by method."""
    places = ("t5-base/glue", "t5-small/glue", "t5-base/superglue")
    found = tuple(find_recipe(f"{preset}/{place}", "x").hyperparameters["learning_rate"] for place in places)
    assert found == RATES[preset]


# Compacter's Table 5.
OUTPUT_RATES = {
    "houlsby": 3e-3,
    "pfeiffer": 3e-4,
    "adapterdrop": 3e-4,
    "lowrank": 3e-3,
    "bitfit": 3e-4,
    "phm": 3e-3,
    "compacter": 3e-3,
    "compacter++": 3e-3,
}


def test_the_table_with_the_output_layer_is_known_and_refused():
    """Table 5 is data like the others; its runs tune weights that all tasks share, and the sentence says so."""
    text = (files("peltier_training") / "config/recipes/t5-base/glue-output.toml").read_text()
    found = {name: method.learning_rate for name, method in RecipeFile(**tomllib.loads(text)).methods.items()}
    assert found == OUTPUT_RATES
    for name in found:
        with pytest.raises(TrainingError, match="cannot be run: it tunes T5's output layer too, 24,652,800 weights"):
            find_recipe(f"{name}/t5-base/glue-output", "mrpc")


# UniPELT section 4.1.
UNIPELT = {
    "full": 2e-5,
    "pfeiffer": 1e-4,
    "prefix": 2e-4,
    "bitfit": 1e-4,
    "lora": 5e-4,
    "unipelt-ap": 5e-4,
    "unipelt-apl": 5e-4,
    "unipelt-ap-nogate": 5e-4,
    "unipelt-apl-nogate": 5e-4,
}


@pytest.mark.parametrize("preset", UNIPELT)
def test_numbers_of_unipelt(preset: str):
    """Batches of 16 for 50 epochs or until 10 were in vain, 128 tokens, each method with its rate."""
    numbers = find_recipe(f"{preset}/bert-base/glue", "cola").hyperparameters
    assert (numbers["batch_size"], numbers["epochs"], numbers["max_length"]) == (16, 50, 128)
    assert numbers["patience"] == 10
    assert (numbers["learning_rate"], numbers["metric"]) == (UNIPELT[preset], "matthews")


# AdaMix's released checkpoints: epochs, batch and learning rate of each task on BERT-base, then on RoBERTa-large.
ADAMIX = {
    "mnli": ((40, 64, 4e-4), (20, 64, 3e-4)),
    "qnli": ((20, 64, 4e-4), (20, 64, 3e-4)),
    "sst2": ((40, 64, 4e-4), (20, 64, 3e-4)),
    "qqp": ((60, 64, 5e-4), (80, 64, 5e-4)),
    "mrpc": ((100, 16, 4e-4), (60, 64, 3e-4)),
    "cola": ((100, 16, 5e-4), (80, 64, 3e-4)),
    "rte": ((80, 32, 5e-4), (60, 64, 5e-4)),
    "stsb": ((80, 32, 5e-4), (80, 64, 3e-4)),
}


@pytest.mark.parametrize("task", ADAMIX)
def test_adamix_differs_by_task(task: str):
    """Each task's row of the released checkpoints, by the recipe's own fourth word."""
    for backbone, wanted in zip(("bert-base", "roberta-large"), ADAMIX[task], strict=True):
        recipe = find_recipe(f"adamix/{backbone}/glue/{task}", "anything")
        numbers = recipe.hyperparameters
        assert (numbers["epochs"], numbers["batch_size"], numbers["learning_rate"]) == wanted
        assert (numbers["warmup"], numbers["weight_decay"]) == (0.06, 0.1)
        assert recipe.settings["bottleneck"] == {"bert-base": "48", "roberta-large": "16"}[backbone]
    assert ("consistency" in recipe.settings) == (task == "stsb")


def test_the_tasks_name_chooses_its_row():
    """A small set gets 20 epochs, a large one 3; a task that the benchmark does not have gets what all have."""
    found = {task: find_recipe("compacter/t5-base/glue", task) for task in ("mrpc", "mnli", "mine")}
    assert {task: one.hyperparameters["epochs"] for task, one in found.items()} == {"mrpc": 20, "mnli": 3, "mine": 20}
    assert {task: one.template for task, one in found.items()} == {"mrpc": "mrpc", "mnli": "mnli", "mine": None}
    assert found["mrpc"].settings == {"bottleneck": "24", "n": "4"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "compactor/t5-base/glue",
            "recipe 'compactor/t5-base/glue' is unknown; similar names are compacter/t5-base/glue, ",
        ),
        ("compacter", "recipe 'compacter' is unknown; similar names are "),
        ("compacter/t5-base/glue/mrpc/x", "recipe 'compacter/t5-base/glue/mrpc/x' is unknown; similar names are "),
        ("compacter/t5-base/glue/wnli", "recipe 'compacter/t5-base/glue' has no task 'wnli'; it has cola, sst2, mrpc"),
        ("../t5-base/glue", "recipe '../t5-base/glue' is unknown"),
    ],
)
def test_an_unknown_recipe_is_answered_with_its_neighbours(name: str, reason: str):
    with pytest.raises(TrainingError) as refused:
        find_recipe(name, "x")
    assert str(refused.value).startswith(reason)
    assert "\n" not in str(refused.value)


def test_baselines_have_recipes_too():
    assert {name.split("/")[0] for name in recipe_names()} >= BASELINES.keys()


@pytest.fixture
def table(make_run, capsys, monkeypatch):
    """`table(recipe, backbone, given)`: value and origin of each line that `peltier train` prints."""
    monkeypatch.setenv("COLUMNS", "200")

    def read(recipe: str, backbone: str, given: GivenValue) -> dict[str, tuple[str, str]]:
        choice = ResolvedChoice.find(recipe, "toy", None, backbone)
        numbers, text = Hyperparameters(**choice.numbers(given)), TextOptions(template=choice.template(given))
        own = {"hyperparameters": numbers, "text": text, "overrides": choice.settings(given)}
        print_resolved(prepare(make_run(preset=choice.preset, backbone=backbone, **own)).run, choice, given)
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("│")]
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
        return {name: (value, origin) for name, value, origin in rows}

    return read


def test_a_value_is_of_a_flag_of_the_recipe_or_a_default(table):
    """A flag is one also where the recipe names the same value. MiniLM's pooling file names the mean: neither "auto"
    nor a flag that nobody gave."""
    found = table("lora/bert-base/glue", "minilm", GivenValue())
    assert (found["set pooling"], found["epochs"]) == (("mean", "default"), ("50", "recipe"))
    found = table("lora/bert-base/glue", "minilm", GivenValue({"epochs": 50}, {"rank": "8", "pooling": "first"}))
    origins = {name: found[name][1] for name in ("epochs", "set rank", "set pooling", "set alpha")}
    assert origins == {"epochs": "flag", "set rank": "flag", "set pooling": "flag", "set alpha": "recipe"}


@pytest.mark.parametrize(
    ("task", "template", "wanted"),
    [("/sst2", None, ("sst2", "recipe")), ("", None, ("{text}", "default")), ("/sst2", "sst2", ("sst2", "flag"))],
)
def test_a_template_is_of_a_flag_a_recipe_or_neither(table, t5_directory, task, template, wanted):
    """A recipe has one for the tasks that its benchmark has."""
    given = GivenValue({}, {"bottleneck": "8"}, template)
    assert table(f"compacter/t5-base/glue{task}", str(t5_directory), given)["template"] == wanted
