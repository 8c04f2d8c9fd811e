"""The commands for adapters: upload, list, download, delete, pin and unpin."""

from pathlib import Path
from typing import Annotated

import typer

from peltier_client.bulk.progress import transfer
from peltier_client.commands.arguments import OwnAdapter, Result, TaskArgument, checked
from peltier_client.commands.tables import print_adapters, shown_live
from peltier_client.errors import InvalidInput
from peltier_client.protocol.adapters import UploadedVersion
from peltier_client.protocol.aliases import Split
from peltier_client.protocol.names import TaskReference, check_alias, check_name
from peltier_client.resources.adapters import find_report
from peltier_client.synchronous import Client

ArtifactArgument = Annotated[
    Path, typer.Argument(metavar="F.safetensors", help="The artifact.", exists=True, dir_okay=False, readable=True)
]
NameOption = Annotated[
    str | None,
    typer.Option(metavar="TASK", help="Name to publish under. Default: the manifest's.", callback=checked(check_name)),
]
AtOnce = Annotated[
    str | None,
    typer.Option(metavar="ALIAS", help="Point this alias to the version.", callback=checked(check_alias)),
]
WithReport = Annotated[
    bool,
    typer.Option(
        "--report/--no-report",
        help="Send NAME.report.json beside the artifact, if it is of these bytes. It quotes validation rows.",
    ),
]
DownloadPath = Annotated[
    Path | None, typer.Option(help="The file to write. Default: NAME-VERSION.safetensors here.", dir_okay=False)
]


def upload(
    client: Client, file: ArtifactArgument, name: NameOption = None, alias: AtOnce = None, report: WithReport = True
) -> Result:
    """Publish an artifact. If a version with the same bytes exists, print that version instead."""
    told = find_report(file) if report else None
    with transfer(f"uploading {file.name}") as on_progress:
        version = client.upload(file, name, alias, on_progress=on_progress, report=told)
    return version, _uploaded(version)


def list_adapters(client: Client) -> Result:
    """List the published adapters."""
    adapters = list(client.adapters())
    none = "no adapters yet; publish one with: peltier upload F.safetensors"
    return {"adapters": adapters}, (lambda: print_adapters(adapters)) if adapters else none


def download(client: Client, task: TaskArgument, output: DownloadPath = None) -> Result:
    """Write the artifact of a version to a file, as it was uploaded. TASK alone is the version that answers."""
    name, version = _find(client, task)
    path = output or Path(f"{name}-{version}.safetensors")
    with transfer(f"downloading {name}@{version}") as report:
        client.download(name, version, path, on_progress=report)
    size_bytes = path.stat().st_size
    document = {"name": name, "version": version, "output": str(path), "size_bytes": size_bytes}
    return document, f"wrote {name}@{version} to {path} ({size_bytes:,} bytes)"


def delete(client: Client, task: TaskArgument) -> Result:
    """Delete an adapter, or one version of it (TASK@3)."""
    client.delete(task)
    return {"deleted": task}, f"deleted {task}"


def pin(client: Client, task: OwnAdapter) -> Result:
    """Keep an adapter on the device of every replica."""
    made = client.pin(task)
    return made, f"{task} is pinned by {made.pinned_by} at {made.pinned_at.astimezone():%Y-%m-%d %H:%M:%S}"


def unpin(client: Client, task: OwnAdapter) -> Result:
    """Release the pin of an adapter; it stays in memory until it is evicted."""
    client.unpin(task)
    return {"unpinned": task}, f"unpinned {task}"


def _uploaded(version: UploadedVersion) -> str:
    done = f"{version.name}@{version.version} already holds these bytes; nothing was published"
    if version.created:
        done = f"published {version.name} version {version.version} ({version.preset}, {version.digest})"
    is_new_live = version.created and set(version.live) == {version.version}
    # Older servers do not send `live`.
    return done if is_new_live or not version.live else f"{done} (live: {shown_live(version)})"


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
