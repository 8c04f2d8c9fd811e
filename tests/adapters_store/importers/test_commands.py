import json
import sys
from pathlib import Path

import pytest
import torch
from peltier_adapters.artifact.artifact import load_artifact
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.commands import import_
from peltier_adapters.importers.run import Import, TaskOptions, import_adapter
from peltier_adapters.importers.shared.imported import ImportedAdapter
from peltier_backbone.backbone import Backbone
from peltier_client import cli
from safetensors.torch import save_file

from tests.adapters_store.importers.conftest import SaveAdapterHub, SavePeft
from tests.support import commands_once

CLASSIFIER = "base_model.model.classifier"
QUERY = "bert.encoder.layer.0.attention.self.query.loras.intents"


def test_a_directory_becomes_an_artifact_that_loads(save_peft, bert, tmp_path, capsys):
    """The file is an artifact of this backbone with the directory's name, numbered labels and golden examples."""
    output = tmp_path / "out.safetensors"
    import_("peft", save_peft(), bert.name, output, json_output=True)
    manifest = load_artifact(output, bert).manifest
    assert (manifest.name, manifest.preset, manifest.task.labels) == ("intents", "peft-lora", ("0", "1"))
    assert len(manifest.golden) == 4
    assert manifest.training.data["imported"]["library"] == "peft"
    assert json.loads(capsys.readouterr().out)["bytes"] == output.stat().st_size


def test_what_the_checkpoint_does_not_say_is_told_by_options(save_peft, bert, tmp_path):
    examples, output = tmp_path / "examples.txt", tmp_path / "out.safetensors"
    examples.write_text('["a good film", "bad"]\n["bad", "a film"]\n')
    import_("peft", save_peft(), bert.name, output, name="nli", labels="no, yes", inputs="pair", examples=examples)
    manifest = load_artifact(output, bert).manifest
    assert (manifest.name, manifest.task.labels, manifest.task.inputs) == ("nli", ("no", "yes"), "pair")
    assert [golden.input for golden in manifest.golden] == [("a good film", "bad"), ("bad", "a film")]


def test_a_head_may_lie_elsewhere(save_peft: SavePeft, bert: Backbone, tmp_path: Path) -> None:
    """An adapter without a classifier takes one from the file of --head; one output is a regression."""
    head, output = tmp_path / "head.safetensors", tmp_path / "out.safetensors"
    save_file({"classifier.weight": torch.ones(1, bert.config.hidden_size), "classifier.bias": torch.ones(1)}, head)
    bare = save_peft({f"{CLASSIFIER}.weight": None, f"{CLASSIFIER}.bias": None})
    import_("peft", bare, bert.name, output, head=head)
    assert load_artifact(output, bert).manifest.task.type == "regression"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"labels": "a,b,c"}, "3 labels were given; the checkpoint's head has 2 outputs"),
        ({"name": "No Name"}, "is not a task's name"),
        ({"head": Path("nowhere")}, "has its own head"),
        ({"template": "{text}"}, "template is an option of T5"),
        ({"inputs": "quadruple"}, "task inputs"),
        ({"examples": Path("nowhere.txt")}, "nowhere.txt cannot be read"),
        ({"labels": "nowhere.json"}, "nowhere.json cannot be read as JSON"),
    ],
)
def test_options_that_cannot_be_are_refused(options, sentence, save_peft, bert, tmp_path):
    """Each invalid option gives one sentence, and no file."""
    output = tmp_path / "out.safetensors"
    with pytest.raises(AdapterError, match=sentence):
        import_("peft", save_peft(), bert.name, output, **options)
    assert not output.exists()


def test_unknown_origin_and_folder_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    """The error lists the origins, or says that the output cannot be written."""
    with pytest.raises(AdapterError, match="origin 'hub' is unknown; it is one of peft"):
        import_("hub", tmp_path, "nowhere", tmp_path / "out.safetensors", name="a")
    with pytest.raises(AdapterError, match="it must be a file in a writable folder that exists"):
        import_("peft", tmp_path, "nowhere", tmp_path / "no" / "out.safetensors", name="a")


def test_a_refusal_is_one_line_and_status_one(bert, tmp_path, monkeypatch, capsys):
    """A directory without an adapter is one sentence on stderr."""
    words = ["import", "peft", str(tmp_path), "--backbone", bert.name, "--output", str(tmp_path / "a.safetensors")]
    monkeypatch.setattr(sys, "argv", ["peltier", *words, "--name", "a"])
    monkeypatch.setattr(cli, "create_command", commands_once.create_command)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr() == ("", f"error: {tmp_path} has none of the files adapter_config.json\n")


def test_a_repository_of_the_hub_is_imported_in_one_step(hub, save_peft, bert, tmp_path):
    """Its name is the task's, and the artifact names the commit. An error names the file in the repository."""
    commit = hub.add("acme/Intents", {path.name: path.read_bytes() for path in save_peft().iterdir()})
    output = tmp_path / "out.safetensors"
    import_("peft", "hf://acme/Intents", bert.name, output, labels="no,yes")
    manifest = load_artifact(output, bert).manifest
    assert (manifest.name, manifest.task.labels) == ("intents", ("no", "yes"))
    assert manifest.training.data["imported"]["source"] == f"hf://acme/Intents@{commit}"
    commit = hub.add("acme/Intents", {"adapter_config.json": b'{"peft_type": "OFT"}'})
    with pytest.raises(AdapterError, match=f"^hf://acme/Intents@{commit}/adapter_config.json: peft_type is 'OFT'"):
        import_("peft", "hf://acme/Intents", bert.name, output)
    with pytest.raises(AdapterError, match="origin 'unipelt' has no repositories on the hub"):
        import_("unipelt", "hf://acme/Intents", bert.name, output)


def test_a_part_beyond_what_is_served_is_one_sentence(save_adapterhub: SaveAdapterHub, bert: Backbone) -> None:
    tensors = {
        f"{QUERY}.lora_A": None,
        f"{QUERY}.lora_B": None,
        "bert.prefix_tuning.prefix_tunings.intents.self_prefix.control_trans": torch.zeros(600 * 6 * 48),
    }
    config = {"architecture": "prefix_tuning", "flat": True, "prefix_length": 600}
    wanted = Import("adapterhub", save_adapterhub(tensors, config=config), "imported")
    with pytest.raises(AdapterError, match=r"cannot be served: prefix length is 600: .* less than or equal to 512"):
        import_adapter(wanted, bert)


def test_a_regression_has_one_output(save_peft: SavePeft, bert: Backbone) -> None:
    wanted = Import("peft", save_peft(), "imported", options=TaskOptions(task_type="regression"))
    with pytest.raises(AdapterError, match="a regression has one output; the checkpoint's head has 2"):
        import_adapter(wanted, bert)


BARE = ImportedAdapter("lora", ())


def test_a_task_on_t5_writes_as_it_is_told(t5: Backbone) -> None:
    decoding = TaskOptions(max_new_tokens=7, completion_temperature=0.0).task(BARE, t5).decoding
    assert decoding is not None
    assert (decoding.answer, decoding.max_new_tokens, decoding.completion_temperature) == ("generate", 7, 0.0)
    assert TaskOptions().task(BARE, t5).decoding.completion_temperature == 1.0


def test_a_temperature_out_of_bounds_is_one_sentence(t5: Backbone) -> None:
    with pytest.raises(AdapterError, match=r"completion_temperature is 3\.0: .* less than or equal to 2"):
        TaskOptions(completion_temperature=3.0).task(BARE, t5)
