"""The addresses of adapters, of their versions and of their aliases; uploads and downloads of artifacts."""

import hashlib
import json
from os import PathLike
from pathlib import Path

import httpx2

from peltier_client.errors import InvalidInput, UnexpectedAnswer
from peltier_client.exchange.request import Request, read_body, read_content
from peltier_client.exchange.transfer import OnProgress
from peltier_client.protocol.adapters import UploadedVersion
from peltier_client.protocol.names import TaskReference, check_alias, check_name
from peltier_client.protocol.reports import MAX_REPORT_BYTES


def adapter_path(name: str) -> str:
    """The address of an adapter of the caller."""
    return f"/v1/adapters/{check_name(name)}"


def version_path(name: str, number: int) -> str:
    """The address of one version."""
    return f"{adapter_path(name)}/versions/{number:d}"


def alias_path(name: str, alias: str) -> str:
    """The address of an alias of an adapter."""
    return f"{adapter_path(name)}/aliases/{check_alias(alias)}"


def named_version_path(task: str) -> str:
    """The address of the version that `name@3` names. Raises `InvalidInput` for another reference."""
    reference = TaskReference.parse(task)
    if reference.tenant is not None or reference.version is None:
        raise InvalidInput(f"task {task!r} is not a version of an adapter of your own, written as name@3")
    return version_path(reference.name, reference.version)


def deletable_path(task: str) -> str:
    """The address of an adapter (`name`) or of one version (`name@3`). Raises `InvalidInput` for another reference."""
    reference = TaskReference.parse(task)
    if reference.tenant is not None or reference.alias is not None:
        raise InvalidInput(
            f"task {task!r} cannot be deleted: give an adapter of your own as name, or one version as name@3"
        )
    return adapter_path(reference.name) if reference.version is None else named_version_path(task)


def upload(
    artifact: str | PathLike[str] | bytes,
    name: str | None,
    alias: str | None,
    on_progress: OnProgress | None,
    report: str | PathLike[str] | bytes | None,
) -> Request[UploadedVersion]:
    """Publish an artifact, a path or bytes, under `name` or its manifest's name, and point `alias` to it. `report` is
    that of its training, as JSON."""
    form = {"name": check_name(name)} if name is not None else {}
    form |= {"alias": check_alias(alias)} if alias is not None else {}
    file = _named_file(artifact, "artifact.safetensors")
    told = None if report is None else _named_file(report, "artifact.report.json")
    return Request("POST", "/v1/adapters", _read_upload, form=form, file=file, report=told, on_progress=on_progress)


def _read_upload(response: httpx2.Response) -> UploadedVersion:
    version = read_body(response, UploadedVersion)
    # The status has it too, for older servers without `created` in the body.
    return version.model_copy(update={"created": response.status_code == httpx2.codes.CREATED})


def _named_file(content: str | PathLike[str] | bytes, name: str) -> tuple[str, bytes]:
    """The name and bytes of a file; `name` is that of bytes."""
    return (name, content) if isinstance(content, bytes) else (Path(content).name, Path(content).read_bytes())


def find_report(artifact: Path) -> Path | None:
    """NAME.report.json beside NAME.safetensors, which `peltier train` writes; None unless it is a report of these bytes
    that a server takes."""
    path = artifact.with_name(f"{artifact.name.removesuffix('.safetensors')}.report.json")
    try:
        if path.stat().st_size > MAX_REPORT_BYTES:
            return None
        described = json.loads(path.read_bytes())["artifact"]["digest"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    digest = hashlib.sha256(artifact.read_bytes()).hexdigest()
    return path if described == f"sha256:{digest}" else None


def read_artifact(response: httpx2.Response) -> bytes:
    """The artifact of one version, with its digest checked."""
    content = read_content(response)
    expected = response.headers.get("x-adapter-digest")
    received = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if expected is not None and received != expected:
        raise UnexpectedAnswer(f"the downloaded artifact has digest {received}; the server announced {expected}")
    return content
