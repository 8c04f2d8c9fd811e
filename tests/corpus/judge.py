"""Reads every file of the corpus in its own process, and prints each outcome as a line of JSON.

`python tests/corpus/judge.py BACKBONE VALID.safetensors` needs Linux, which can forget the peak of a process's memory.
"""

import hashlib
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import build
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.errors import ArtifactError
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def judge(case: build.Case, backbone: Backbone) -> dict[str, object]:
    """The reasons against one file (none if it reads), the CPU seconds and the growth of memory at its peak."""
    _CLEAR.write_text("5")
    before, started = _memory("VmRSS"), time.process_time()
    try:
        read_artifact(case.data, backbone)
        reasons = []
    except ArtifactError as error:
        reasons = error.reasons
    seconds, grown = time.process_time() - started, _memory("VmHWM") - before
    digest = hashlib.sha256(case.data).hexdigest()
    size = {"size_bytes": len(case.data), "grown_bytes": max(0, grown), "seconds": seconds}
    return {"name": case.name, "digest": digest, "reasons": reasons, **size}


def _memory(field: str) -> int:
    match = re.search(rf"^{field}:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    assert match is not None
    return 1024 * int(match[1])


def _cases(valid: bytes) -> Iterator[build.Case]:
    yield from build.refused(valid)
    yield from build.flips(valid)
    yield build.Case("denormal", build.denormal(valid))


if __name__ == "__main__":
    backbone, valid = load_backbone(sys.argv[1]), Path(sys.argv[2]).read_bytes()
    read_artifact(valid, backbone)  # what the first reading loads for good is not a case's
    for case in _cases(valid):
        print(json.dumps(judge(case, backbone)))
