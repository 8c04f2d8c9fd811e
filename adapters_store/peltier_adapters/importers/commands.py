"""`peltier import`. It imports torch only when it runs."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console

from peltier_adapters.artifact.manifest import NAME_PATTERN, Manifest
from peltier_adapters.errors import AdapterError
from peltier_adapters.hub.address import is_hub, parse_repository
from peltier_adapters.spec.parts import PoolingKind
from peltier_adapters.spec.tasks import TaskType, parse_names

_T5 = "On a T5"

PathArgument = Annotated[
    str,
    typer.Argument(help="The saved adapter: a directory, the authors' file, or hf://OWNER/NAME@REVISION of the hub."),
]
HeadOption = Annotated[
    Path | None,
    typer.Option(
        help="File with the head's tensors, or directory of a model of transformers or sentence-transformers, if PATH "
        "has no head."
    ),
]
TypeOption = Annotated[
    str | None,
    typer.Option(
        help="classification, multilabel, regression, ranking, token-classification, span, embedding, sparse-embedding "
        "or text2text. Default: by the head."
    ),
]
InputsOption = Annotated[
    str | None, typer.Option(help="Texts of one input: single, pair or triple. Default: by the task type.")
]
PoolingOption = Annotated[
    str | None,
    typer.Option(help="Pooling of embeddings without a head: first, mean, max or pooler. Default: the backbone's."),
]
TermsOption = Annotated[int | None, typer.Option(help="Maximum terms of a sparse embedding. Default 256.")]
StrideOption = Annotated[
    int | None,
    typer.Option(help="Tokens that neighbouring windows of a long text share, for token-classification and span."),
]
ExamplesOption = Annotated[
    Path | None, typer.Option(help="Texts for the golden examples, one per line; pairs as JSON lists.")
]
TemplateOption = Annotated[
    str | None,
    typer.Option(help="Text of the input, with the placeholders {text}, {pair}, {third}.", rich_help_panel=_T5),
]
ImportTemperature = Annotated[
    float, typer.Option(help="Temperature of /v1/completions requests without one; 0 is greedy.", rich_help_panel=_T5)
]


def import_(  # noqa: PLR0913 - one parameter per flag
    origin: Annotated[str, typer.Argument(help="adapterhub, peft, splade, compacter, unipelt or adamix.")],
    path: PathArgument,
    backbone: Annotated[str, typer.Option(help="The backbone it was trained on: a directory, a hub id or minilm.")],
    output: Annotated[Path, typer.Option(help="The artifact to write, *.safetensors.")],
    name: Annotated[str | None, typer.Option(help="Name of the task. Default: the name of PATH.")] = None,
    head: HeadOption = None,
    labels: Annotated[str | None, typer.Option(help="Names of the labels in order: a,b,c or a JSON file.")] = None,
    task_type: TypeOption = None,
    inputs: InputsOption = None,
    pooling: PoolingOption = None,
    stride: StrideOption = None,
    terms: TermsOption = None,
    max_length: Annotated[int, typer.Option(help="Longest input in tokens.")] = 128,
    examples: ExamplesOption = None,
    template: TemplateOption = None,
    targets: Annotated[str | None, typer.Option(help="Text of each label. Default 0,1,….", rich_help_panel=_T5)] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Longest generated answer.", rich_help_panel=_T5)] = 64,
    completion_temperature: ImportTemperature = 1.0,
    json_output: Annotated[bool, typer.Option("--json", help="Print the manifest as one JSON document.")] = False,
) -> None:
    """Convert an adapter of AdapterHub, PEFT or the methods' authors, or the head of a SPLADE, to an artifact."""
    chosen = _checked_name(name, path)
    _check_output(output)
    from peltier_backbone.load import load_backbone

    from peltier_adapters.artifact.artifact import write_artifact
    from peltier_adapters.importers import extensions  # noqa: F401 - it registers its readers
    from peltier_adapters.importers.run import READERS, Import, TaskOptions, import_adapter

    if origin not in READERS:
        raise AdapterError(f"origin {origin!r} is unknown; it is one of {', '.join(READERS)}")
    options = TaskOptions(
        inputs=inputs,
        task_type=cast("TaskType | None", task_type),  # an unknown type is refused with the task
        pooling=cast("PoolingKind | None", pooling),
        stride=stride,
        terms=terms,
        labels=parse_names("labels", labels) if labels is not None else None,
        template=template,
        targets=parse_names("targets", targets) if targets is not None else None,
        max_length=max_length,
        max_new_tokens=max_new_tokens,
        completion_temperature=completion_temperature,
    )
    with _located(path, origin) as (directory, source):
        wanted = Import(origin, directory, chosen, head, examples, options, source)
        artifact = import_adapter(wanted, load_backbone(backbone))
    write_artifact(output, artifact.manifest, artifact.tensors)
    _print_result(output, artifact.manifest, json_output)


def _print_result(output: Path, manifest: Manifest, json_output: bool) -> None:
    if json_output:
        print(json.dumps({"bytes": output.stat().st_size, "manifest": manifest.model_dump(mode="json")}))
        return
    parts = ", ".join(part.kind for part in manifest.parts)
    Console().print(f"{output}: {manifest.preset} ({parts}) for {manifest.name}", soft_wrap=True)


@contextmanager
def _located(path: str, origin: str) -> Iterator[tuple[Path, str | None]]:
    """The local path of an adapter, and the address with its commit if it is from the hub."""
    if not is_hub(path):
        yield Path(path), None
        return
    from peltier_adapters.hub.foreign import fetched

    with fetched(path, origin) as found:
        yield found


def _checked_name(name: str | None, path: str) -> str:
    own = parse_repository(path).name if is_hub(path) else str(path)
    chosen = name or Path(own).absolute().name.split(".")[0].lower()
    if not re.fullmatch(NAME_PATTERN, chosen):
        raise AdapterError(f"name {chosen!r} is not a task's name; give one with --name that matches {NAME_PATTERN}")
    return chosen


def _check_output(output: Path) -> None:
    if not output.parent.is_dir() or output.is_dir() or not os.access(output.parent, os.W_OK):
        raise AdapterError(f"output {output} cannot be written: it must be a file in a writable folder that exists")
