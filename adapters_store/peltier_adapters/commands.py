"""`peltier presets` and `peltier inspect`."""

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Annotated, Any

import typer
from peltier_backbone.checkpoint.config import BackboneConfig
from rich.console import Console
from rich.table import Table
from rich.text import Text

from peltier_adapters.artifact.manifest import Manifest, read_file_header
from peltier_adapters.errors import AdapterError
from peltier_adapters.presets.baselines import BASELINES, Baseline, find_method
from peltier_adapters.presets.composition import PresetSettings, override, parse_overrides
from peltier_adapters.presets.presets import PRESETS, Preset, presets_for
from peltier_adapters.spec.parts import count_parameters

# Columns of the output to a pipe: wider than any table.
_PIPE_WIDTH = 1_000_000

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def presets(
    backbone: Annotated[str, typer.Option(help="A directory with a config.json, a hub id or minilm.")] = "minilm",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, NAME=VALUE, for the presets that have it.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """List presets and baselines with their parameters on a backbone, without the task head. Loads no weights."""
    from peltier_backbone.checkpoint.checkpoint import find_checkpoint
    from peltier_backbone.checkpoint.config import load_config

    config = load_config(find_checkpoint(backbone, config_only=True))
    total, overrides = config.num_parameters, parse_overrides(set_ or [])
    _check_names(overrides, [*presets_for(config), *BASELINES.values()], config)
    methods: list[Preset | Baseline] = [*PRESETS.values(), *BASELINES.values()]
    rows = [_row(method, overrides, config) for method in methods]
    if json_output:
        print(json.dumps({"backbone": backbone, "backbone_parameters": total, "presets": rows}))
        return
    table = Table(
        "preset", "parameters", "%", "source", title=Text(f"{backbone}: {total:,} parameters"), title_justify="left"
    )
    for row in rows:
        count, percent = row["parameters"], row["percent"]
        shown = ("-", "-") if count is None else (f"{count:,}", f"{percent:.3f}")
        table.add_row(str(row["preset"]), *shown, Text(_remark(row)))
    _print(table)


def _check_names(overrides: Mapping[str, str], methods: Sequence[Preset | Baseline], config: BackboneConfig) -> None:
    known = {name for method in methods for name in method.settings({}, config)}
    for name in overrides:
        if name not in known:
            raise AdapterError(
                f"no preset has a setting {name!r} on this backbone; known settings: {', '.join(sorted(known))}"
            )


def _row(method: Preset | Baseline, overrides: Mapping[str, str], config: BackboneConfig) -> dict[str, Any]:
    """One row of the list. A method that is not served has a reason; one that does not fit has no counts."""
    row: dict[str, Any] = {"preset": method.name, "servable": isinstance(method, Preset)}
    try:
        known = method.settings({}, config)
    except AdapterError as error:
        return row | _unavailable(error)
    settings = override(method.name, known, {name: text for name, text in overrides.items() if name in known})
    try:
        count = _count(method, settings, config)
    except AdapterError as error:
        return row | _unavailable(error)
    reason = {"reason": method.reason(config)} if isinstance(method, Baseline) else {}
    return row | {"parameters": count, "percent": round(100 * count / config.num_parameters, 4)} | reason


def _remark(row: Mapping[str, Any]) -> str:
    """The source of a method, and why it has no artifact."""
    source = find_method(str(row["preset"])).source
    if row["servable"]:
        return source
    return str(row["reason"]) if row["parameters"] is None else f"{source}: {row['reason']}"


def _unavailable(error: AdapterError) -> dict[str, Any]:
    return {"parameters": None, "percent": None, "servable": False, "reason": str(error)}


def _count(method: Preset | Baseline, settings: PresetSettings, config: BackboneConfig) -> int:
    if isinstance(method, Preset):
        return count_parameters(method.compose(settings, config, outputs=2), config)
    return method.count_parameters(settings, config)


def inspect(
    artifact: Annotated[Path, typer.Argument(help="The artifact, *.safetensors.")], json_output: JsonOption = False
) -> None:
    """Show an artifact's manifest, its parameters and its size. Loads no weights."""
    manifest, tensors = read_file_header(artifact)
    sizes = {name: prod(entry["shape"]) for name, entry in tensors.items()}
    head = sum(size for name, size in sizes.items() if name.startswith("head."))
    body = sum(sizes.values()) - head
    facts = {
        "parameters": body,
        "head_parameters": head,
        "percent": round(100 * body / manifest.backbone.num_parameters, 4),
        "bytes": artifact.stat().st_size,
    }
    if json_output:
        print(json.dumps({**facts, "manifest": manifest.model_dump(mode="json")}))
        return
    _print_manifest(artifact, manifest, facts)


def _print_manifest(path: Path, manifest: Manifest, facts: dict[str, Any]) -> None:
    task, backbone = manifest.task, manifest.backbone
    shown = ", ".join(task.labels[:8]) + (", …" if len(task.labels) > 8 else "")
    table = Table(show_header=False, title=Text(str(path)), title_justify="left")
    table.add_row("name", manifest.name)
    table.add_row("preset", f"{manifest.preset} ({', '.join(part.kind for part in manifest.parts)})")
    table.add_row("backbone", Text(f"{backbone.name} ({backbone.fingerprint[:19]}…)"))
    table.add_row("task", f"{task.type}, {task.inputs} input, at most {task.max_length} tokens")
    # Text, because labels may contain Rich's markup.
    table.add_row("labels", Text(f"{len(task.labels)}: {shown}"))
    table.add_row("parameters", f"{facts['parameters']:,} ({facts['percent']:.3f} % of the backbone)")
    table.add_row("head", f"{facts['head_parameters']:,} parameters")
    examples = f"{len(manifest.golden)} golden examples, proved in {', '.join(manifest.proved)}"
    table.add_row("file", f"{facts['bytes']:,} bytes, {examples}")
    for name, value in manifest.training.metrics.items():
        table.add_row(name, f"{value:.4f}")
    _print(table)


def _print(table: Table) -> None:
    """Wraps rows to the width of a terminal; in a pipe, every row is one line."""
    console = Console()
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    console.print(table)
