"""Pulls of artifacts from a source into a directory, each checked as an upload is."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from peltier_adapters.artifact.artifact import read_artifact, to_bytes
from peltier_adapters.durable import make_directory, write_file
from peltier_adapters.errors import AdapterError, ArtifactError
from peltier_adapters.golden.golden import check_golden
from peltier_adapters.hub.address import is_hub, parse_repository
from peltier_adapters.hub.download import Download, download
from peltier_adapters.hub.foreign import CONFIG, importable, origin_of
from peltier_adapters.importers import extensions  # noqa: F401 - it registers its readers
from peltier_adapters.importers.run import Import, import_adapter
from peltier_backbone.backbone import Backbone

from peltier_store.blobs.errors import BlobError
from peltier_store.sources.artifact_files import ENDING, SourceError, SourceFile, artifacts_of, find_artifacts

State = Literal["new", "changed", "unchanged", "refused"]


@dataclass(frozen=True)
class Pulled:
    """What became of one file of a source: the path that was written, or the reason why it was refused."""

    address: str
    state: State
    path: str = ""
    reason: str = ""


def pull(source: str, directory: Path, load: Callable[[], Backbone]) -> Iterator[Pulled]:
    """Writes each artifact of a source to `directory`, in place of a file of its name.

    One that is refused is not written, and the others go on. Raises AdapterError if the source itself cannot be read.
    `load` returns the backbone, which is loaded when the first artifact has to be checked.
    """
    make_directory(directory)
    written = dict[Path, str]()
    for file in _files(source, load):
        try:
            path, data = _checked(file, directory, load())
            if path in written:
                raise SourceError(f"{file.address} has the name of {written[path]}")
        except BlobError:  # of the source, not of the file
            raise
        except AdapterError as error:
            yield Pulled(file.address, "refused", reason=str(error))
            continue
        written[path] = file.address
        yield Pulled(file.address, _write(path, data), str(path))


def _files(source: str, load: Callable[[], Backbone]) -> Sequence[SourceFile]:
    if not is_hub(source):
        return find_artifacts(source)
    found = download(parse_repository(source))
    if CONFIG not in found.files:
        return artifacts_of(found)
    return [SourceFile(found.address, 0, partial(_import, found, load))]


def _import(found: Download, load: Callable[[], Backbone]) -> bytes:
    """The artifact that a repository of PEFT or AdapterHub becomes."""
    origin, name = origin_of(found), parse_repository(found.address).name.rpartition("/")[2].lower()[:63]
    with importable(found, origin) as directory:
        artifact = import_adapter(Import(origin, directory, name, source=found.address), load())
    return to_bytes(artifact.manifest, artifact.tensors)


def _checked(file: SourceFile, directory: Path, backbone: Backbone) -> tuple[Path, bytes]:
    data = file.read()
    artifact = read_artifact(data, backbone)
    if reasons := check_golden(backbone, artifact):
        raise ArtifactError(reasons)
    return directory / f"{artifact.manifest.name}{ENDING}", data


def _write(path: Path, data: bytes) -> State:
    state: State = "new"
    if path.exists():
        state = "unchanged" if path.read_bytes() == data else "changed"
    if state != "unchanged":
        write_file(path, data)
    return state
