"""A directory that mirrors sources: their artifacts, each checked as an upload is, and a record of where they are from.

The record, sources.json, names the commit of each repository (the entity tag of each object of a bucket), so that the
next pull downloads only what has changed.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from peltier_adapters.artifact.artifact import read_artifact, to_bytes
from peltier_adapters.artifact.manifest import NAME_PATTERN
from peltier_adapters.artifact.source import digest_of
from peltier_adapters.durable import make_directory, write_file
from peltier_adapters.errors import AdapterError, ArtifactError
from peltier_adapters.golden.golden import check_golden
from peltier_adapters.hub.address import HubCollection, HubRepository, is_hub, parse_address
from peltier_adapters.hub.foreign import CONFIG, downloaded, origin_of
from peltier_adapters.hub.snapshot import HubSnapshot, repositories_of, resolve
from peltier_adapters.importers.run import Import, import_adapter
from peltier_backbone.backbone import Backbone
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from peltier_store.sources.artifact_files import ENDING, SourceError, artifacts_of, find_artifacts

RECORD = "sources.json"
State = Literal["new", "changed", "unchanged", "removed", "refused"]


class MirroredUnit(BaseModel):
    """A repository or an object as it was pulled: by which source, its version, and its files with their digests."""

    model_config = ConfigDict(extra="forbid")
    source: str
    version: str
    files: dict[str, str] = Field(default_factory=dict)


class _MirrorRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    units: dict[str, MirroredUnit] = Field(default_factory=dict)


@dataclass(frozen=True)
class Pulled:
    """What a pull did with one repository or object; `reason` says why it was refused."""

    address: str
    version: str
    state: State
    files: Sequence[str] = ()
    reason: str = ""


@dataclass(frozen=True)
class _Unit:
    """One repository or object: its version, and a function that returns the bytes of its artifacts."""

    address: str
    version: Callable[[], str]
    read: Callable[[str, Backbone], list[bytes]] = field(repr=False)


class Mirror:
    """The directory. `load` returns the backbone, which is loaded when the first artifact has to be checked."""

    def __init__(self, directory: Path, load: Callable[[], Backbone]) -> None:
        self._directory = directory
        self._load = load
        self._record = _read_record(directory / RECORD)

    def pull(self, source: str) -> Iterator[Pulled]:
        """Pulls every repository or object of a source that has changed, and removes the files of those that are gone.

        One that is refused keeps its former files, and the others go on. Raises AdapterError if the source itself
        cannot be read."""
        make_directory(self._directory)
        units = _units(source)
        for unit in units:
            yield self._pull(source, unit)
        present = {unit.address for unit in units}
        for address, gone in [*self._record.units.items()]:
            if gone.source == source and address not in present:
                self._replace(address, gone, {})
                yield Pulled(address, gone.version, "removed", [*gone.files])

    def files(self, source: str) -> list[Path]:
        """The artifacts of a source as of its last pull."""
        units = (unit for unit in self._record.units.values() if unit.source == source)
        return sorted(self._directory / name for unit in units for name in unit.files)

    def _pull(self, source: str, unit: _Unit) -> Pulled:
        known, version = self._record.units.get(unit.address), ""
        try:
            version = unit.version()
            if known is not None and known.version == version and self._is_whole(known):
                return Pulled(unit.address, version, "unchanged", [*known.files])
            found = self._checked(unit, version)
        except AdapterError as error:
            return Pulled(unit.address, version, "refused", reason=str(error))
        digests = {name: digest_of(data) for name, data in found.items()}
        self._replace(unit.address, MirroredUnit(source=source, version=version, files=digests), found)
        return Pulled(unit.address, version, "changed" if known else "new", [*found])

    def _checked(self, unit: _Unit, version: str) -> dict[str, bytes]:
        """The artifacts of a unit by their file names, after the checks of an upload."""
        backbone, found = self._load(), {}
        for data in unit.read(version, backbone):
            artifact = read_artifact(data, backbone)
            if reasons := check_golden(backbone, artifact):
                raise ArtifactError(reasons)
            name = f"{artifact.manifest.name}{ENDING}"
            if name in found:
                raise SourceError(f"{unit.address} has two adapters of the name {artifact.manifest.name!r}")
            self._require_free(name, unit.address)
            found[name] = data
        if not found:
            raise SourceError(f"{unit.address} has no artifact")
        return found

    def _require_free(self, name: str, address: str) -> None:
        owners = [other for other, unit in self._record.units.items() if name in unit.files]
        if owners not in ([], [address]):
            raise SourceError(f"{address} has an adapter of the file {name}, which is already that of {owners[0]}")
        if not owners and (self._directory / name).exists():
            raise SourceError(
                f"{self._directory / name} exists and is not of a source; move it, or use another --output"
            )

    def _replace(self, address: str, unit: MirroredUnit, found: dict[str, bytes]) -> None:
        """Writes the files, then the record, then removes files that the unit no longer has. A pull that is killed in
        between is repeated by the next."""
        old = self._record.units.get(address)
        for name, data in found.items():
            write_file(self._directory / name, data)
        self._record.units.pop(address, None)
        if found:
            self._record.units[address] = unit
        text = json.dumps(self._record.model_dump(mode="json"), indent=1, sort_keys=True)
        write_file(self._directory / RECORD, text.encode())
        for name in (old.files if old else {}).keys() - found.keys():
            (self._directory / name).unlink(missing_ok=True)

    def _is_whole(self, unit: MirroredUnit) -> bool:
        paths = {self._directory / name: digest for name, digest in unit.files.items()}
        return all(path.is_file() and digest_of(path.read_bytes()) == digest for path, digest in paths.items())


def _read_record(path: Path) -> _MirrorRecord:
    if not path.exists():
        return _MirrorRecord()
    try:
        record = _MirrorRecord.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise SourceError(f"{path} is not the record of a mirror: {error.errors()[0]['msg']}") from None
    names = [name for unit in record.units.values() for name in unit.files]
    if wrong := [name for name in names if not re.fullmatch(NAME_PATTERN, name.removesuffix(ENDING))]:
        raise SourceError(f"{path} is not the record of a mirror: {wrong[0]!r} is not the file of an adapter")
    return record


def _units(source: str) -> list[_Unit]:
    if not is_hub(source):
        return [
            _Unit(file.address, lambda file=file: file.version, lambda _, __, file=file: [file.read()])  # type: ignore[misc]
            for file in find_artifacts(source)
        ]
    address = parse_address(source)
    repositories = repositories_of(address) if isinstance(address, HubCollection) else [address]
    return [_Unit(str(one), partial(resolve, one), partial(_read_repository, one)) for one in repositories]


def _read_repository(address: HubRepository, commit: str, backbone: Backbone) -> list[bytes]:
    """The artifacts of a repository, or the one that its PEFT or AdapterHub adapter becomes."""
    snapshot = HubSnapshot.at(address, commit)
    if CONFIG not in snapshot.files:
        return [file.read() for file in artifacts_of(snapshot)]
    origin, name = origin_of(snapshot), address.name.rpartition("/")[2].lower()[:63]
    with downloaded(snapshot, origin) as directory:
        artifact = import_adapter(Import(origin, directory, name, source=snapshot.where), backbone)
    return [to_bytes(artifact.manifest, artifact.tensors)]
