"""Requests about adapters, their versions and their aliases: publish, list, fetch, change, delete."""

import hashlib
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

import httpx2

from peltier_client.errors import InvalidInput, UnexpectedAnswer
from peltier_client.exchange.request import Request, page_query, raise_for_error, read_body, reader, to_json
from peltier_client.exchange.transfer import OnProgress
from peltier_client.protocol.adapters import (
    Adapter,
    AdapterChange,
    AdapterPage,
    AdapterPin,
    AdapterVersion,
    DeprecationRequest,
    PinRequest,
    UploadedVersion,
    VersionList,
    VersionManifest,
)
from peltier_client.protocol.aliases import Alias, AliasChange, AliasHistory, AliasList, AliasRequest
from peltier_client.protocol.names import TaskReference, check_alias, check_name
from peltier_client.protocol.reports import MAX_REPORT_BYTES, TrainingReport, VersionReport


def upload(
    artifact: str | PathLike[str] | bytes,
    name: str | None,
    alias: str | None = None,
    on_progress: OnProgress | None = None,
    report: str | PathLike[str] | bytes | None = None,
) -> Request[UploadedVersion]:
    """Publish an artifact, a path or bytes, under `name` or its manifest's name, and point `alias` to it. `report` is
    that of its training, as JSON."""

    def read(response: httpx2.Response) -> UploadedVersion:
        version = read_body(response, UploadedVersion)
        # The status has it too, for older servers without `created` in the body.
        return version.model_copy(update={"created": response.status_code == httpx2.codes.CREATED})

    form = {"name": check_name(name)} if name is not None else {}
    form |= {"alias": check_alias(alias)} if alias is not None else {}
    file = _named_file(artifact, "artifact.safetensors")
    told = None if report is None else _named_file(report, "artifact.report.json")
    return Request("POST", "/v1/adapters", read, form=form, file=file, report=told, on_progress=on_progress)


def list_adapters(containing: str, cursor: str | None) -> Request[AdapterPage]:
    """The page at `cursor` of adapters whose names contain a text; None is the first page."""
    query = page_query(cursor) | ({"q": containing} if containing else {})
    return Request("GET", "/v1/adapters", reader(AdapterPage), query=query)


def get_adapter(name: str) -> Request[Adapter]:
    return Request("GET", f"/v1/adapters/{check_name(name)}", reader(Adapter))


def list_versions(name: str, cursor: str | None = None) -> Request[VersionList]:
    """The page of an adapter's live versions at `cursor`; None is the newest."""
    return Request("GET", f"/v1/adapters/{check_name(name)}/versions", reader(VersionList), query=page_query(cursor))


def get_version(name: str, number: int) -> Request[AdapterVersion]:
    return Request("GET", f"/v1/adapters/{check_name(name)}/versions/{number:d}", reader(AdapterVersion))


def get_manifest(name: str, number: int) -> Request[VersionManifest]:
    path = f"/v1/adapters/{check_name(name)}/versions/{number:d}/manifest"
    return Request("GET", path, reader(VersionManifest))


def get_report(name: str, number: int) -> Request[TrainingReport | None]:
    def read(response: httpx2.Response) -> TrainingReport | None:
        return read_body(response, VersionReport).report

    return Request("GET", f"/v1/adapters/{check_name(name)}/versions/{number:d}/report", read)


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


def download(name: str, version: int, on_progress: OnProgress | None = None) -> Request[bytes]:
    """The artifact of one version, with its digest checked."""
    path = f"/v1/adapters/{check_name(name)}/versions/{version:d}/artifact"
    return Request("GET", path, _read_artifact, on_progress=on_progress)


def delete(task: str) -> Request[None]:
    """Delete an adapter with all its versions (`name`), or one version (`name@3`)."""
    reference = TaskReference.parse(task)
    if reference.tenant is not None or reference.alias is not None:
        raise InvalidInput(
            f"task {task!r} cannot be deleted: give an adapter of your own as name, or one version as name@3"
        )
    if reference.version is not None:
        return Request("DELETE", _version(task), raise_for_error)
    return Request("DELETE", f"/v1/adapters/{reference.name}", raise_for_error)


def undelete_version(task: str) -> Request[AdapterVersion]:
    return Request("POST", f"{_version(task)}/undelete", reader(AdapterVersion))


def deprecate_version(task: str, reason: str | None) -> Request[AdapterVersion]:
    """Deprecate a version (`name@3`), or remove its deprecation without a reason."""
    json = to_json(DeprecationRequest, {"reason": reason})
    return Request("POST", f"{_version(task)}/deprecate", reader(AdapterVersion), json=json)


def change_adapter(name: str, public: bool) -> Request[Adapter]:
    json = to_json(AdapterChange, {"public": public})
    return Request("PATCH", f"/v1/adapters/{check_name(name)}", reader(Adapter), json=json)


def pin_adapter(name: str) -> Request[AdapterPin]:
    return Request("PUT", f"/v1/adapters/{check_name(name)}/pin", reader(AdapterPin), json=to_json(PinRequest, {}))


def unpin_adapter(name: str) -> Request[None]:
    return Request("DELETE", f"/v1/adapters/{check_name(name)}/pin", raise_for_error)


def _named_file(content: str | PathLike[str] | bytes, name: str) -> tuple[str, bytes]:
    """The name and bytes of a file; `name` is that of bytes."""
    return (name, content) if isinstance(content, bytes) else (Path(content).name, Path(content).read_bytes())


def _read_artifact(response: httpx2.Response) -> bytes:
    raise_for_error(response)
    expected = response.headers.get("x-adapter-digest")
    received = f"sha256:{hashlib.sha256(response.content).hexdigest()}"
    if expected is not None and received != expected:
        raise UnexpectedAnswer(f"the downloaded artifact has digest {received}; the server announced {expected}")
    return response.content


def _version(task: str) -> str:
    reference = TaskReference.parse(task)
    if reference.tenant is not None or reference.version is None:
        raise InvalidInput(f"task {task!r} is not a version of an adapter of your own, written as name@3")
    return f"/v1/adapters/{reference.name}/versions/{reference.version}"


def list_aliases(name: str) -> Request[list[Alias]]:

    def read(response: httpx2.Response) -> list[Alias]:
        return read_body(response, AliasList).aliases

    return Request("GET", f"/v1/adapters/{check_name(name)}/aliases", read)


def alias_history(name: str, alias: str) -> Request[list[AliasChange]]:

    def read(response: httpx2.Response) -> list[AliasChange]:
        return read_body(response, AliasHistory).changes

    return Request("GET", f"{_alias(name, alias)}/history", read)


def set_alias(name: str, alias: str, version: int | Mapping[int, float]) -> Request[Alias]:
    """Point an alias to a version, or to several with the share of requests that each gets."""
    meant = {"version": version} if isinstance(version, int) else {"versions": version}
    return Request("PUT", _alias(name, alias), reader(Alias), json=to_json(AliasRequest, meant))


def rollback_alias(name: str, alias: str) -> Request[Alias]:
    """Undo the last change of an alias. Not retried, because a second request goes two steps back."""
    return Request("POST", f"{_alias(name, alias)}/rollback", reader(Alias), retried=False)


def delete_alias(name: str, alias: str) -> Request[None]:
    return Request("DELETE", _alias(name, alias), raise_for_error)


def _alias(name: str, alias: str) -> str:
    return f"/v1/adapters/{check_name(name)}/aliases/{check_alias(alias)}"
