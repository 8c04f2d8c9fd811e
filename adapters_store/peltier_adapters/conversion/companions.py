"""The files beside the weights of a checkpoint: configuration, tokenizer, licence. Imports no torch."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from peltier_backbone.errors import BackboneError

# vocab.txt, merges.txt, spiece.model, tokenizer.json, chat_template.jinja, LICENSE, …; indices of shards are made anew.
_COMPANION = re.compile(r"(?!.*\.index\.json$)(?:[^.].*\.(?:json|txt|model|jinja|md)|(?:LICENSE|NOTICE|COPYING)[^/]*)")
_MODULE = "[0-9]_*/config.json"


def copy_companions(directory: Path, target: Path) -> int:
    """Copy them to the directory `target`, also the configurations of sentence-transformers' modules. Returns their
    number."""
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
