"""Which checkpoint a run goes on from."""

from pathlib import Path

import pytest
from peltier_adapters.presets.presets import find_preset
from peltier_backbone.backbone import Backbone
from peltier_training.config.preparation import prepare
from peltier_training.errors import TrainingError
from peltier_training.fit.checkpoint import find_checkpoint, remove_checkpoints
from peltier_training.models.model import HeadedAdapter
from peltier_training.train import learn
from safetensors.torch import save_file

from tests.training.conftest import MakeRun


def create_model(bert: Backbone, outputs: int = 2) -> HeadedAdapter:
    settings = find_preset("lora").settings({}, bert.config)
    parts = find_preset("lora").compose(settings, bert.config, outputs=outputs)
    return HeadedAdapter(bert, parts, settings, seed=0)


def write_checkpoint(directory: Path, step: int, model: HeadedAdapter, *, whole: bool = True) -> Path:
    path = directory / f"checkpoint-{step}"
    path.mkdir(parents=True)
    save_file(model.state_dict(), path / "model.safetensors")
    if whole:
        (path / "trainer_state.json").write_text("{}")
    return path


def test_the_newest_whole_checkpoint_counts(bert: Backbone, tmp_path: Path):
    """By its number; one that was cut short while it was written does not count."""
    model = create_model(bert)
    paths = [write_checkpoint(tmp_path, step, model, whole=step < 100) for step in (9, 10, 100)]
    assert find_checkpoint(tmp_path, model) == paths[1]


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_without_a_checkpoint_nothing_resumes(bert: Backbone, tmp_path: Path, name: str):
    """Neither from a missing folder nor from an empty one."""
    with pytest.raises(TrainingError, match="there is no checkpoint to resume from in "):
        find_checkpoint(tmp_path / name, create_model(bert))


def test_another_adapters_checkpoint_is_refused(bert: Backbone, tmp_path: Path):
    """Loading what happens to fit would train nonsense."""
    write_checkpoint(tmp_path, 5, create_model(bert, outputs=3))
    with pytest.raises(
        TrainingError, match="checkpoint-5 belongs to another adapter; resume with the preset, settings"
    ):
        find_checkpoint(tmp_path, create_model(bert))


def test_a_damaged_checkpoint_is_named(bert: Backbone, tmp_path: Path):
    path = write_checkpoint(tmp_path, 5, create_model(bert)) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(TrainingError, match=r"checkpoint .*model\.safetensors cannot be read: "):
        find_checkpoint(tmp_path, create_model(bert))


def test_starting_anew_forgets_the_checkpoints(bert: Backbone, tmp_path: Path):
    """And nothing else of the folder."""
    write_checkpoint(tmp_path, 5, create_model(bert))
    (tmp_path / "notes.txt").write_text("mine")
    remove_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_fresh_run_is_never_resumed_from_an_older_one(make_run: MakeRun, bert: Backbone):
    """Checkpoints with higher numbers from a longer run before it are gone when a run starts anew."""
    run = make_run(epochs=1)
    write_checkpoint(run.directory, 500, create_model(bert))
    learn(prepare(run))
    assert [path.name for path in run.directory.glob("checkpoint-*")] == ["checkpoint-3"]
