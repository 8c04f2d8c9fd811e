"""`peltier pull` and `peltier push`. They import torch only when they run."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from peltier_adapters.commands import JsonOption
from peltier_adapters.errors import AdapterError
from peltier_adapters.hub.address import parse_repository
from peltier_client.commands.arguments import ApiKey, Url, connect
from peltier_client.errors import AdapterNotFound
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.synchronous import Client

from peltier_store.sources.source import check_source

if TYPE_CHECKING:
    from peltier_backbone.backbone import Backbone

    from peltier_store.sources.pull import Pulled

SourceArgument = Annotated[
    str,
    typer.Argument(
        help="hf://OWNER/NAME@REVISION, or s3://, gs:// or az://BUCKET/PREFIX with the options of a store's URL."
    ),
]
UploadOption = Annotated[
    bool, typer.Option("--upload", help="Then publish the artifacts that the server does not have yet.")
]


def pull(  # noqa: PLR0913 - each is a word of the command line
    source: SourceArgument,
    output: Annotated[
        Path, typer.Option(help="The folder for NAME.safetensors of each artifact.", file_okay=False)
    ] = Path("."),
    backbone: Annotated[str, typer.Option(help="What the artifacts are checked on, and imported for.")] = "minilm",
    upload: UploadOption = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    json_output: JsonOption = False,
) -> None:
    """Pull the artifacts of a repository or a bucket, check each as an upload, and replace files of their names.

    Adapters of PEFT and AdapterHub are imported.
    """
    check_source(source)
    from peltier_store.sources import pull as pulling

    @cache
    def load() -> "Backbone":
        from peltier_backbone.load import load_backbone

        return load_backbone(backbone)

    pulled = [_told(one, json_output) for one in pulling.pull(source, output, load)]
    published = []
    if upload:
        with connect(url, api_key) as client:
            published = [_publish(client, Path(one.path)) for one in pulled if one.path]
    _print_result(pulled, published, json_output)
    if any(one.state == "refused" for one in pulled):
        raise typer.Exit(1)


def push(  # noqa: PLR0913 - each is a word of the command line
    artifact: Annotated[Path, typer.Argument(help="The artifact, *.safetensors.", exists=True, dir_okay=False)],
    target: Annotated[str, typer.Argument(help="hf://OWNER/NAME or hf://OWNER/NAME@BRANCH.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    card: Annotated[bool, typer.Option(help="Write README.md, the model card, from the manifest.")] = True,
    base_model: Annotated[str | None, typer.Option(help="The backbone's repository on the hub, for the card.")] = None,
    json_output: JsonOption = False,
) -> None:
    """Push an artifact and its model card to the Hugging Face hub.

    The card quotes labels, figures and golden examples, as the artifact does.
    """
    repository = parse_repository(target)
    from peltier_store.sources.push import PushOptions, push_artifact

    pushed = push_artifact(artifact, repository, PushOptions(private, card, base_model))
    document = {"repository": pushed.name, "commit": pushed.revision, "address": str(pushed)}
    print(json.dumps(document) if json_output else f"pushed {artifact} to {pushed}")


def _told(one: "Pulled", json_output: bool) -> "Pulled":
    if not json_output:
        print(f"{one.state} {one.address}: {one.reason or one.path}", flush=True)
    return one


def _publish(client: Client, path: Path) -> str:
    """The version with the bytes of `path`, which is uploaded unless the server has it."""
    from peltier_adapters.artifact.source import digest_of

    name, digest = path.name.removesuffix(".safetensors"), digest_of(path.read_bytes())
    try:
        known = [version.version for version in client.versions(name) if version.digest == digest]
    except AdapterNotFound:
        known = []
    return f"{name}@{known[0] if known else client.upload(path, name).version}"


def _print_result(pulled: Sequence["Pulled"], published: Sequence[str], json_output: bool) -> None:
    if json_output:
        print(json.dumps({"pulled": [asdict(one) for one in pulled], "published": published}))
    elif not pulled:
        raise AdapterError("the source has no artifacts")
    elif published:
        print(f"the server has {', '.join(published)}")
