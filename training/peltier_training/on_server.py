"""`peltier train --server`: a server trains and publishes the adapter. Imports no torch."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer
from peltier_adapters.spec.tasks import parse_names
from peltier_client.commands.arguments import checked, connect
from peltier_client.commands.training_lines import follow, print_training
from peltier_client.errors import InvalidInput
from peltier_client.exchange.connection import check_url
from peltier_client.protocol.names import check_alias
from peltier_client.protocol.trainings import Training
from peltier_client.resources.rollouts import GuardOptions
from peltier_client.resources.trainings import TrainingOptions, succeeded

from peltier_training.config.run import Hyperparameters
from peltier_training.config.task_options import LABEL_TARGETS, EmbeddingOptions, TextOptions
from peltier_training.errors import TrainingError

ServerOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Send the examples to this server, which trains on its backbone and publishes the adapter as TASK.",
        callback=checked(check_url),
    ),
]


def parse_guard(text: str) -> GuardOptions:
    """A guard of the command line: `shadow`, or a share of the requests. Raises `InvalidInput`."""
    if text == "shadow":
        return {"shadow": True}
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise InvalidInput(f"guard {text!r} is neither shadow nor a share between 0 and 1")
    return {"share": share}


@dataclass(frozen=True)
class SentOptions:
    """What only a server is asked for."""

    alias: Annotated[
        str | None, typer.Option(help="The alias that then means the published version.", callback=checked(check_alias))
    ] = None
    guard: Annotated[
        str | None,
        typer.Option(
            metavar="shadow|SHARE",
            help="With --alias: try the version first, beside the answers or with this share of the requests.",
            callback=checked(parse_guard),
        ),
    ] = None
    validation_share: Annotated[
        float | None, typer.Option(help="Share of the examples to validate on. Default: 0.2 without --validation.")
    ] = None
    budget_steps: Annotated[int | None, typer.Option(help="The most steps.")] = None
    budget_minutes: Annotated[float | None, typer.Option(help="The most minutes of a worker.")] = None


# What the server decides, or what concerns files of this machine.
_LOCAL = ("backbone", "output", "directory", "resume", "device", "dtype", "merge_report", "threads", "skip_bad_rows")
_SENT = ("task_type", "preset", "recipe", "seed", "text_columns", "label_column", "alias")
_SETTINGS = {field.name for kind in (Hyperparameters, TextOptions, EmbeddingOptions) for field in fields(kind)} | {
    "label_separator"
}


@dataclass(frozen=True)
class ServerTraining:
    """The options that were `given` on the command line, by name, with the settings of the preset as texts, and the
    names of the labels."""

    given: Mapping[str, Any]
    overrides: Mapping[str, str]
    labels: str | None

    @property
    def validation(self) -> Path | float | None:
        """The file, or the share of the examples. Raises a `TrainingError` for both."""
        path: Path | None = self.given.get("validation")
        share: float | None = self.given.get("validation_share")
        if path is not None and share is not None:
            raise TrainingError("--validation and --validation-share are given; a training has one of them")
        return share if path is None else path

    def options(self) -> TrainingOptions:
        """What the server is asked for. Raises a `TrainingError` for an option of local trainings."""
        local = [name for name in _LOCAL if name in self.given]
        if local:
            flags = " and ".join(f"--{name.replace('_', '-')}" for name in local)
            what = "an option" if len(local) == 1 else "options"
            raise TrainingError(f"{flags} with --server is not possible: {what} of a training on this machine")
        settings = {name: value for name, value in self.given.items() if name in _SETTINGS - {"seed"}}
        if "targets" in settings:  # LoRA's are among the overrides
            settings[LABEL_TARGETS] = settings.pop("targets")
        settings |= self.overrides
        options = TrainingOptions()
        for name in _SENT:
            if name in self.given:
                options[name] = self.given[name]  # type: ignore[literal-required]
        if budget := {name: value for name in ("steps", "minutes") if (value := self.given.get(f"budget_{name}"))}:
            options["budget"] = budget
        if settings:
            options["settings"] = settings
        if "guard" in self.given:
            if "alias" not in self.given:
                raise TrainingError("--guard is not possible without --alias, the alias that it guards")
            options["guard"] = parse_guard(self.given["guard"])
        if self.labels is not None:
            options["labels"] = parse_names("labels", self.labels)
        return options


def given_options(context: typer.Context) -> dict[str, Any]:
    """The options that stand on the command line, by the names of their parameters."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name: context.params[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def train_on_server(training: ServerTraining, url: str, api_key: str | None, *, as_json: bool) -> None:
    """Train on a server, with its progress on stderr, and print the result. Ctrl-C leaves the training running."""
    options, given, validation = training.options(), training.given, training.validation
    with connect(url, api_key) as client:
        begun = client.train(given["task"], given["train"], validation=validation, wait=False, **options)
        typer.echo(f"training {begun.id} on {url}", err=True)
        done = follow(client, begun.id, f" --url {url}")
        succeeded(done)
    _print_result(done, as_json=as_json)


def _print_result(training: Training, *, as_json: bool) -> None:
    if as_json:
        found = {"metrics": training.metrics or {}, "adapter": training.adapter, "training": training.id}
        typer.echo(json.dumps(found))
    else:
        print_training(training)
