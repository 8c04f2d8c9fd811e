"""What a tenant may ask for, and what is told of the rest."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.errors import AdapterError
from peltier_adapters.presets.presets import PRESETS
from peltier_backbone.backbone import Backbone
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.config.task_options import EmbeddingOptions, TextOptions
from peltier_training.errors import TrainingError
from peltier_training.service.request import Machine, RequestedTraining, create_run

Answer = dict[str, Any]


def run_of(machine: Machine, **asked: Any) -> Run:
    request = RequestedTraining.read({"task": "praise", **asked})
    return create_run(request, request.data(Path("train.jsonl"), Path("validation.jsonl")), machine)


def test_settings_are_of_the_preset_and_of_the_training(machine: Machine):
    """Each goes to where its name is known, as JSON writes it."""
    settings = {"learning_rate": 0.01, "epochs": 3, "rank": 4, "targets": ["query", "value"], "gated": False}
    run = run_of(machine, preset="lora", seed=7, settings=settings)
    assert (run.hyperparameters.learning_rate, run.hyperparameters.epochs, run.hyperparameters.seed) == (0.01, 3, 7)
    assert run.overrides == {"rank": "4", "targets": "query,value", "gated": "false"}
    run.check()


@pytest.mark.parametrize(
    ("settings", "texts", "maps"),
    [
        ({"targets": "query, value"}, None, "query, value"),
        ({"targets": ["query", "value"]}, None, "query,value"),
        ({"targets": "all-linear"}, None, "all-linear"),
        ({"label_targets": "words"}, "words", None),
        ({"label_targets": ["terrible", "great"]}, "terrible,great", None),
        ({"targets": "query", "label_targets": "key,value"}, "key,value", "query"),
    ],
)
def test_a_lora_on_a_t5_has_maps_and_texts_of_labels(settings, texts, maps, t5):
    """`targets` are the maps, and `label_targets` the texts, also beside them."""
    run = run_of(Machine(t5.name, "cpu", threads=1), preset="lora", settings=settings)
    assert run.text.targets == texts
    assert run.overrides.get("targets") == maps


@pytest.mark.parametrize("preset", ["lora", "vera"])
@pytest.mark.parametrize(
    ("targets", "wrong"), [("q,v", "q"), (["bad", "good"], "bad"), ("query,valu", "valu"), ("words", "words")]
)
def test_targets_that_are_no_maps_are_no_texts_of_labels(targets: Any, wrong: str, preset: str, t5: Backbone):
    """A misspelt map is refused on a T5, and the sentence names the setting of the texts."""
    rule = (
        rf"preset '{preset}' has no map '{wrong}'; its maps are query, .*, and the texts of labels are label_targets$"
    )
    with pytest.raises(TrainingError, match=rf"^targets is .*, and {rule}"):
        run_of(Machine(t5.name, "cpu", threads=1), preset=preset, settings={"targets": targets})


@pytest.mark.parametrize(
    "settings", [{"targets": "a,b", "label_targets": "c,d"}, {"label_targets": "c", "targets": "a"}]
)
def test_texts_of_labels_are_given_once(settings: Answer, t5: Backbone):
    """Else the last of the two would win."""
    with pytest.raises(
        TrainingError, match=r"^targets and label_targets are given, and with preset 'compacter' both are"
    ):
        run_of(Machine(t5.name, "cpu", threads=1), preset="compacter", settings=settings)


def test_texts_of_labels_that_a_training_has_not_are_refused_by_their_name(machine: Machine, t5: Backbone):
    """An encoder writes none, nor do other types of tasks have labels."""
    asked = {"preset": "lora", "settings": {"label_targets": "words"}}
    with pytest.raises(TrainingError, match=r"^label_targets is an option of T5; this backbone is of the family bert$"):
        run_of(machine, **asked)
    with pytest.raises(TrainingError, match=r"^label_targets is for classification; the task type is text2text$"):
        run_of(Machine(t5.name, "cpu", threads=1), task_type="text2text", **asked)


def test_other_presets_on_a_t5_have_texts_only(t5: Backbone):
    """The name of a map is a text then."""
    machine = Machine(t5.name, "cpu", threads=1)
    for name in ("targets", "label_targets"):
        run = run_of(machine, preset="compacter", settings={name: "key,value"})
        assert (run.text.targets, run.overrides) == ("key,value", {})


def test_texts_of_labels_are_no_file_of_the_worker(t5: Backbone):
    for name in ("targets", "label_targets"):
        rule = rf"^{name} is 'a\.json'; it must be digits, words or texts, not a file's name$"
        with pytest.raises(TrainingError, match=rule):
            run_of(Machine(t5.name, "cpu", threads=1), preset="compacter", settings={name: "a.json"})


def test_a_multiplier_is_of_the_learning_rate(machine: Machine):
    """Of the given one, or of the default."""
    rates = [
        run_of(machine, preset="lora", learning_rate_multiplier=factor, settings=settings).hyperparameters.learning_rate
        for factor, settings in ((1.0, {}), (0.5, {}), (0.5, {"learning_rate": 0.01}))
    ]
    assert rates[1:] == [rates[0] / 2, 0.005]


def test_columns_depend_on_the_type_of_the_task(machine: Machine):
    """A ranking has two texts; given columns win."""
    assert run_of(machine, task_type="ranking").data.text_columns == ("query", "document")
    own = run_of(
        machine, text_columns=["a"], label_column="b", labels=["no", "yes"], settings={"label_separator": None}
    )
    assert (own.data.text_columns, own.data.label_column, own.data.labels) == (("a",), "b", ("no", "yes"))


def test_no_preset_has_a_setting_that_hides_one_of_every_training():
    """Only LoRA's `targets`, which is another setting on a T5."""

    own = {name for preset in PRESETS.values() if preset.encoder for name in preset.encoder.defaults}
    every = {field.name for kind in (Hyperparameters, TextOptions, EmbeddingOptions) for field in fields(kind)}
    assert own & every == {"targets"}


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"settings": {"learning_rat": 1}}, r"^setting 'learning_rat' is unknown, the nearest is 'learning_rate'; "),
        ({"settings": {"open_end": True}}, r"^setting 'open_end' is unknown"),
        ({"settings": {"epochs": "many"}}, r"^epochs is 'many': input should be a valid integer"),
        ({"settings": {"rank": {"a": 1}}}, r"^setting 'rank' is \{'a': 1\}; it must be a number, a text"),
        ({"settings": {"batch_size": 100_000}}, r"^batch_size is 100000; it must be at most 1,024$"),
        ({"settings": {"epochs": 10**9}}, r"^epochs is 1000000000; it must be at most 10,000$"),
        ({"settings": "fast"}, r"^settings is 'fast': input should be a valid dictionary$"),
        ({"budget": {"steps": 0}}, r"^budget.steps is 0: input should be greater than or equal to 1$"),
        ({"budget": {"steps": 1, "minutes": 1}}, r"^the budget has steps and minutes; it has one of them$"),
        ({"budget": {"hours": 1}}, r"^budget.hours is 1: extra inputs are not permitted$"),
        ({"validation_share": 1}, r"^validation_share is 1: input should be less than 1$"),
        ({"seed": -1}, r"^seed is -1: input should be greater than or equal to 0$"),
        ({"task": None}, r"^task is \{'preset': 'lora'\}: field required$"),
        ({"labels": ["yes", 3]}, r"^labels is 3: input should be a valid string$"),
        ({"settings": {"epochs": "many " * 15}}, rf"^epochs is '{'many ' * 15}': input should be a valid integer"),
        ({"settings": {"epochs": "many " * 30}}, rf"^epochs is '{'many ' * 20}…': input should be a valid integer"),
        ({"task_type": "poetry"}, r"^task_type is 'poetry': input should be 'classification'"),
        ({"preset": "full"}, r"^preset 'full' changes the backbone's weights"),
        ({"preset": "compactor"}, r"^preset 'compactor' is unknown, the nearest is 'compacter'"),
        ({"recipe": "compacter/nothing"}, r"^recipe 'compacter/nothing' is unknown; similar names are"),
    ],
)
def test_what_cannot_be_is_told_in_one_sentence(machine: Machine, asked: Answer, reason: str):
    """It names the setting, the value and the rule."""
    with pytest.raises((TrainingError, AdapterError), match=reason):
        run_of(machine, **{"preset": "lora", **asked} if "recipe" not in asked else asked)
