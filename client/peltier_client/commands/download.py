"""`peltier download`: the artifact of a version."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel

from peltier_client.bulk.progress import transfer
from peltier_client.commands.arguments import ApiKey, Json, TaskArgument, Url, connect, print_result
from peltier_client.errors import InvalidInput
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.protocol import Split, TaskReference
from peltier_client.synchronous.client import Client

DownloadPath = Annotated[
    Path | None, typer.Option(help="The file to write. Default: NAME-VERSION.safetensors here.", dir_okay=False)
]


class Downloaded(BaseModel):
    """What `peltier download --json` prints."""

    name: str
    version: int
    output: str
    size_bytes: int


def download(
    task: TaskArgument, output: DownloadPath = None, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False
) -> None:
    """Write the artifact of a version to a file, as it was uploaded. TASK alone is the version that answers."""
    with connect(url, api_key) as client:
        name, version = _find(client, task)
        path = output or Path(f"{name}-{version}.safetensors")
        with transfer(f"downloading {name}@{version}") as report:
            client.download(name, version, path, on_progress=report)
    document = Downloaded(name=name, version=version, output=str(path), size_bytes=path.stat().st_size)
    print_result(document, f"wrote {name}@{version} to {path} ({document.size_bytes:,} bytes)", json=json)


def _find(client: Client, task: str) -> tuple[str, int]:
    reference = TaskReference.parse(task)
    if reference.tenant is not None:
        raise InvalidInput(f"task {task!r} cannot be downloaded: it is another tenant's")
    if reference.version is not None:
        return reference.name, reference.version
    adapter = client.adapter(reference.name)
    split: Split = adapter.live if reference.alias is None else adapter.aliases.get(reference.alias, {})
    versions = list(split) or ([adapter.latest.version] if reference.alias is None else [])
    if len(versions) != 1:
        found = f"answers from versions {', '.join(map(str, versions))}" if versions else "is no alias"
        raise InvalidInput(
            f"task {task!r} {found}: name one version, such as {reference.name}@{adapter.latest.version}"
        )
    return reference.name, versions[0]
