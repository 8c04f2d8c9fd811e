"""Where a checkpoint lies, in a directory or in the hub's cache, and the files beside its weights. Imports no torch."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from peltier_backbone.errors import BackboneError

# vocab.txt, merges.txt, spiece.model, tokenizer.json, chat_template.jinja, LICENSE, …; indices of shards are made anew.
_COMPANION = re.compile(r"(?!.*\.index\.json$)(?:[^.].*\.(?:json|txt|model|jinja|md)|(?:LICENSE|NOTICE|COPYING)[^/]*)")
_MODULE = "[0-9]_*/config.json"


def find_snapshot(path: Path) -> Path:
    """The directory with the config.json: `path`, or in a hub cache `models--OWNER--NAME` the revision of refs/main."""
    if not path.is_dir():
        raise BackboneError(f"{path} is no checkpoint: it is neither a directory nor a zip")
    if (path / "config.json").is_file():
        return path
    if (path / "snapshots").is_dir():
        return _main_revision(path)
    raise BackboneError(f"{path} is not a checkpoint directory: it has no config.json")


def find_unpacked(folder: Path) -> Path:
    """The same for a zip that was unpacked to `folder`; the zip may have one folder around it."""
    entries = list(folder.iterdir())
    return find_snapshot(entries[0] if len(entries) == 1 and entries[0].is_dir() else folder)


def _main_revision(cache: Path) -> Path:
    reference = cache / "refs" / "main"
    try:
        revision = reference.read_text().strip()
    except (OSError, ValueError):
        raise BackboneError(f"{cache} is a hub cache without refs/main; name one of its snapshots") from None
    snapshot = cache / "snapshots" / revision
    if not revision or snapshot.parent != cache / "snapshots" or revision == "..":
        raise BackboneError(f"{reference} holds {revision!r}, which is no revision")
    if not (snapshot / "config.json").is_file():
        raise BackboneError(f"{cache}: the revision {revision} of refs/main has no config.json in snapshots")
    return snapshot


def copy_companions(directory: Path, target: Path) -> int:
    """Copy the files beside the weights (configuration, tokenizer, licence) to the directory `target`, also the
    configurations of sentence-transformers' modules. Returns their number."""
    paths = list(_companions(directory))
    for path in paths:
        if not path.is_file():
            raise BackboneError(f"{path} is a link to a file that is not there")
        copy = target / path.relative_to(directory)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, copy)
    return len(paths)


def _companions(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if _COMPANION.fullmatch(path.name) and not path.is_dir():
            yield path
    yield from sorted(directory.glob(_MODULE))
