"""The command `peltier presets`."""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from peltier_adapters.presets.baselines import BASELINES
from peltier_adapters.presets.presets import PRESETS
from peltier_backbone.checkpoint.config import load_config
from peltier_client import cli

from tests.support import commands_once
from tests.support.published_configs import CONFIG_FILES
from tests.support.published_counts import COMPACTER

Presets = Callable[..., str]
T5_MINI = Path(__file__).parents[2] / "examples/backbones/t5-mini"


@pytest.fixture
def presets(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Presets:
    """`presets(arguments…)` is what the command prints, on standard error too."""

    def run(*arguments: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", ["peltier", "presets", *map(str, arguments)])
        monkeypatch.setattr(cli, "create_command", commands_once.create_command)
        with suppress(SystemExit):
            cli.main()
        captured = capsys.readouterr()
        return captured.out + captured.err

    return run


@pytest.fixture
def t5_base(tmp_path: Path) -> Path:
    """The configuration of t5-base with the vocabulary that the Compacter paper cropped it to."""
    sizes = {"d_model": 768, "d_ff": 3072, "d_kv": 64, "num_layers": 12, "num_heads": 12, "vocab_size": 32100}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5", "n_positions": 512, **sizes}))
    return tmp_path


def test_the_table_is_that_of_the_compacter_paper(presets: Presets, t5_base: Path):
    """It has the counts and percentages of docs/methods.md#counts for the methods of the paper, with the baselines."""
    found = {row["preset"]: row for row in json.loads(presets("--backbone", t5_base, "--json"))["presets"]}
    counts = {
        row.preset: row.served for row in COMPACTER if row.backbone == "t5-base" and row.overrides in ({}, {"n": "4"})
    }
    counts |= {"full": 222_882_048, "intrinsic-said": 20_000}
    assert len(counts) == 12
    assert {name: found[name]["parameters"] for name in counts} == counts
    assert (found["compacter"]["percent"], found["full"]["percent"]) == (0.0726, 100)
    assert [name for name, row in found.items() if not row["servable"]] == ["full", "intrinsic-said"]
    for name in ("full", "intrinsic-said"):
        assert found[name]["reason"].endswith("it would need a second backbone of 892 MB")


@pytest.mark.parametrize("name", CONFIG_FILES)
def test_counts_of_published_backbones(name: str, presets: Presets, tmp_path: Path):
    """A config.json is enough to list every preset of the backbone, in percent of its parameters."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG_FILES[name]))
    config, printed = load_config(tmp_path), json.loads(presets("--backbone", tmp_path, "--json"))["presets"]
    found = {row["preset"]: row for row in printed}
    own = [one.name for one in PRESETS.values() if (one.t5 if config.generates else one.encoder) is not None]
    assert found.keys() >= {*own, "full"}
    assert found["full"]["parameters"] == config.num_parameters
    # Two targets of rank 8 in each attention.
    attentions, hidden, width = config.num_attentions, config.hidden_size, config.attention_size
    assert found["lora"]["parameters"] == attentions * 2 * 8 * (hidden + width)
    assert found["lora"]["percent"] == pytest.approx(
        100 * found["lora"]["parameters"] / config.num_parameters, abs=1e-4
    )


def test_settings_go_to_the_presets_that_have_them(presets: Presets, t5_base: Path):
    """n applies to PHM, and dimension to SAID; an unknown name is one clear sentence."""
    arguments = ["--backbone", t5_base, "--set", "n=12", "--set", "dimension=400", "--json"]
    found = {row["preset"]: row["parameters"] for row in json.loads(presets(*arguments))["presets"]}
    assert (found["phm"], found["compacter"], found["intrinsic-said"]) == (398_976, 163_392, 400)
    refused = presets("--backbone", t5_base, "--set", "m=12")
    assert refused.startswith(
        "error: no preset has a setting 'm' on this backbone; known settings: activation, alpha, "
    )
    assert refused.count("\n") == 1
    assert presets("--set", "n=many") == "error: setting 'n' is 'many'; it must be an integer\n"


def test_the_table_names_every_method(presets: Presets):
    """On an encoder it has each method with its paper, also those that are not served or only defined on T5."""
    table = presets("--backbone", "minilm")
    for name in ("pfeiffer-attention", "unipelt-apl-central", "adamix-lora", "full", "intrinsic-said"):
        assert f" {name} " in table
    assert "it changes every weight of the backbone" in " ".join(table.replace("│", " ").split())
    found = {row["preset"]: row for row in json.loads(presets("--backbone", "minilm", "--json"))["presets"]}
    for name in ("prompt-r", "prompt-t"):
        assert (found[name]["parameters"], found[name]["servable"]) == (None, False)
        assert found[name]["reason"] == f"preset '{name}' is not defined on a bert backbone"
    assert found.keys() == {*PRESETS, *BASELINES}


def test_a_method_that_does_not_fit_says_why(presets: Presets):
    """AdapterDrop leaves no adapters on a T5 of three blocks; the other methods are listed."""
    found = {row["preset"]: row for row in json.loads(presets("--backbone", T5_MINI, "--json"))["presets"]}
    dropped = found["adapterdrop"]
    assert (dropped["parameters"], dropped["servable"]) == (None, False)
    assert "skip = 5 leaves no block of 3 with an adapter" in dropped["reason"]
    assert found["compacter"]["parameters"] == 13_920


def test_a_pipe_gets_whole_rows_and_a_terminal_wrapped_ones(presets: Presets, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe has each source on one line; a terminal of 80 columns wraps it between words."""
    piped = presets().splitlines()
    for preset in PRESETS.values():
        assert any(preset.name in line and preset.source in line for line in piped if "not defined" not in line) or any(
            preset.name in line and "is not defined on" in line for line in piped
        )
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")
    wrapped = presets().splitlines()
    assert len(wrapped) > len(piped)
    assert max(map(len, wrapped)) <= 80
