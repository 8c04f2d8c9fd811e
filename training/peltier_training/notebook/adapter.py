"""An adapter in Python: it predicts, is measured, saved, pushed to a hub and published to a server."""

import html
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from peltier_adapters.artifact.artifact import Artifact, read_artifact
from peltier_adapters.artifact.manifest import Manifest, TaskInput
from peltier_adapters.durable import write_file
from peltier_adapters.hub.address import parse_repository
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_client import Client
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.protocol.adapters import UploadedVersion
from peltier_store.sources.push import PushOptions, push_artifact

from peltier_training.data.data import Data, read_file
from peltier_training.errors import TrainingError, refuse
from peltier_training.evaluate.answering import answer_all
from peltier_training.evaluate.examination import evaluate
from peltier_training.notebook.examples import Examples, short_name, write_rows

_SHOWN_METRICS = 4


@cache
def _backbone(name: str, device: str) -> Backbone:
    """All adapters of a process share a backbone."""
    return load_backbone(name, device=device)


def load(path: Path | str, *, backbone: str = "minilm", device: str = "auto") -> "Adapter":
    """The adapter of an artifact. Raises an `ArtifactError` with every reason if `backbone` cannot serve it."""
    adapter = Adapter(Path(path).read_bytes(), backbone, device)
    _ = adapter.artifact  # checked now, and not at its first use
    return adapter


@dataclass(frozen=True)
class Adapter:
    """A trained adapter with the bytes of its artifact. One that `train` has returned also has its report, as JSON and
    as a page, and the pre-flight report of its examples."""

    data: bytes = field(repr=False)
    backbone: str = "minilm"
    device: str = "auto"
    report: bytes | None = field(default=None, repr=False)
    page: bytes | None = field(default=None, repr=False)
    preflight: Mapping[str, Any] | None = field(default=None, repr=False)

    @cached_property
    def artifact(self) -> Artifact:
        """The artifact, checked as a server checks an upload."""
        return read_artifact(self.data, _backbone(self.backbone, self.device))

    @property
    def manifest(self) -> Manifest:
        """The name, task, method and training of the adapter."""
        return self.artifact.manifest

    @property
    def name(self) -> str:
        """Its name, which is also that of its task."""
        return self.manifest.name

    @property
    def metrics(self) -> dict[str, float]:
        """What it reached on the validation examples of its training."""
        return dict(self.manifest.training.metrics)

    def predict(self, inputs: Sequence[TaskInput]) -> list[dict[str, Any]]:
        """The answer to each input, with the fields of a server's prediction: `label`, `score` and `scores` of a
        classification, `value`, `labels`, `embedding`, `entities`, `text` and so on.

        An input is a text, or as many texts as the task has. Raises an `InputError` that names what is wrong with one.
        """
        if isinstance(inputs, str):
            raise TrainingError("the inputs are one text; give a list of inputs")
        return answer_all(_backbone(self.backbone, self.device), self.artifact, inputs)

    def evaluate(self, examples: Examples) -> dict[str, float]:
        """The metrics of its task on labelled examples with the columns of its training. Raises a `TrainingError`."""
        trained, task = self.manifest.training.data, self.manifest.task
        columns = tuple(trained.get("text_columns") or ("text",))
        label = str(trained.get("label_column") or "label")
        with TemporaryDirectory(prefix="peltier-") as folder:
            path = short_name(write_rows(examples, Path(folder) / "examples.jsonl", (*columns, label)), Path(folder))
            data = Data(path, path, columns, label, labels=task.labels, label_separator=trained.get("label_separator"))
            with chdir(folder):
                rows = read_file(data, path, task.type, task.labels)
        refuse(rows.bad)
        return evaluate(_backbone(self.backbone, self.device), self.artifact, rows.examples)

    def save(self, path: Path | str) -> Path:
        """Writes the artifact, and beside it the report of its training, if it has one; returns the artifact's path."""
        path = Path(path)
        write_file(path, self.data)
        for suffix, content in ((".report.json", self.report), (".report.html", self.page)):
            if content is not None:
                write_file(path.with_suffix(suffix), content)
        return path

    def push(self, repository: str, *, private: bool = False) -> str:
        """Pushes the artifact and its model card to the hub, `hf://OWNER/NAME`; returns the address of the commit."""
        with TemporaryDirectory(prefix="peltier-") as folder:
            path = self.save(Path(folder) / f"{self.name}.safetensors")
            return str(push_artifact(path, parse_repository(repository), PushOptions(private)))

    def publish(
        self, url: str = DEFAULT_URL, *, api_key: str | None = None, name: str | None = None, alias: str | None = None
    ) -> UploadedVersion:
        """Uploads the artifact with its report to a server, as its next version. Raises a `PeltierError`, such as
        `ArtifactRefused` with every reason."""
        with Client(url, api_key=api_key) as client:
            return client.upload(self.data, name, alias=alias, report=self.report)

    def __repr__(self) -> str:
        manifest = self.manifest
        return f"<Adapter {manifest.name}: {manifest.preset} on {manifest.backbone.name}, {_metrics(self.metrics)}>"

    def _repr_html_(self) -> str:
        """The name, the method, the labels and the metrics as a table, for notebooks."""
        manifest = self.manifest
        rows = {
            "method": manifest.preset,
            "backbone": manifest.backbone.name,
            "task": manifest.task.type,
            "labels": ", ".join(manifest.task.labels[:10]) + ("…" if len(manifest.task.labels) > 10 else ""),
            "size": f"{len(self.data) / 1000:,.0f} kB",
            "metrics": _metrics(self.metrics),
        }
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td style='text-align:left'>"
            f"{html.escape(value)}</td></tr>"
            for name, value in rows.items()
            if value
        )
        return f"<b>{html.escape(manifest.name)}</b><table>{cells}</table>"


def _metrics(found: Mapping[str, float]) -> str:
    shown = sorted(found.items())[:_SHOWN_METRICS]
    return ", ".join(f"{name} {value:.4f}" for name, value in shown)
