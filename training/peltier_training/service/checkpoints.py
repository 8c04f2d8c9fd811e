"""Checkpoints as one archive, by which another worker goes on with a training."""

import io
import json
import re
import tarfile
from pathlib import Path

from peltier_training.errors import TrainingError
from peltier_training.fit.checkpoint import newest_checkpoint

MAX_BYTES = 4 * 2**30
_MEMBER = re.compile(r"checkpoint-[0-9]{1,12}/[A-Za-z0-9_][A-Za-z0-9_.-]*")


def pack(directory: Path) -> bytes:
    """The newest checkpoint of a run's directory and the weights of the best one, as a tar file. The same files give
    the same bytes. Raises a `TrainingError` if there is no checkpoint."""
    newest = newest_checkpoint(directory)
    files = [path for path in sorted(newest.iterdir()) if path.is_file()]
    best = json.loads((newest / "trainer_state.json").read_text(encoding="utf-8")).get("best_model_checkpoint")
    if best is not None and Path(best).name != newest.name:
        files += sorted((directory / Path(best).name).glob("*.safetensors"))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in files:
            data = path.read_bytes()
            member = tarfile.TarInfo(f"{path.parent.name}/{path.name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def unpack(data: bytes, directory: Path) -> None:
    """Write the checkpoints of `pack` into a run's directory.

    Raises a `TrainingError` for anything else than files of checkpoints, before it writes one of them."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            members = archive.getmembers()
            _check(members)
            for member in members:
                path = directory / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                file = archive.extractfile(member)
                assert file is not None, "it is a regular file"
                path.write_bytes(file.read())
    except tarfile.TarError as error:
        raise TrainingError(f"the checkpoint cannot be read: {error}") from None


def _check(members: list[tarfile.TarInfo]) -> None:
    for member in members:
        if not member.isreg() or _MEMBER.fullmatch(member.name) is None:
            raise TrainingError(f"the checkpoint has {member.name!r}, which is not a file of a checkpoint")
    if (total := sum(member.size for member in members)) > MAX_BYTES:
        raise TrainingError(f"the checkpoint has {total:,} bytes; at most {MAX_BYTES:,} are read")
    if len({member.name for member in members}) != len(members):
        raise TrainingError("the checkpoint has a file twice")
