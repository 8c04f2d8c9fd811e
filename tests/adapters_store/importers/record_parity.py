"""Records what PEFT and AdapterHub save and answer, for the tests of the gate:

    python -m tests.adapters_store.importers.record_parity

It runs `test_parity.py`, which installs both from PyPI, and keeps the cases below. It is needed after a change of the
scripts in `foreign`, of the versions of the libraries, or of the small backbones.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pytest

from tests.adapters_store.importers.parity import OUTCOMES

_HERE = Path(__file__).parent
# Each adapter enters lines of the importers, or adapts maps of a family, that no other of them does. Those that are
# refused are recorded too.
SERVED = {
    "peft": (
        "bert-lora-patterns", "bert-lora-ffn", "bert-lora-features", "bert-dora-everywhere", "bert-vera", "bert-ia3",
        "bert-ln", "bert-prefix-projected", "roberta-lora-everywhere", "roberta-lora-span", "roberta-ia3", "roberta-ln",
        "roberta-prefix", "distilbert-lora", "distilbert-lora-tokens", "electra-lora", "electra-lora-tokens",
        "mpnet-lora-everywhere", "mpnet-ia3-tokens", "eurobert-lora-keys", "eurobert-dora-keys", "eurobert-ia3-keys",
        "gte-lora-tokens", "jina-lora-tokens", "nomic_bert-lora-tokens", "nomic_bert-lora-saved", "modernbert-dora",
        "modernbert-vera", "modernbert-ia3", "modernbert-ln", "t5-lora-everywhere", "t5-ia3", "t5-ln", "t5-prompt",
        "t5_gated-lora-everywhere", "t5_gated-dora", "t5_gated-ia3",
    ),
    "adapterhub": (
        "bert-seq_bn-scaled", "bert-seq_bn-flexible", "bert-seq_bn-multilabel", "bert-seq_bn-tagging", "bert-seq_bn-qa",
        "bert-compacter++", "bert-phm", "bert-prefix-flat", "bert-unipelt", "roberta-double_seq_bn",
        "roberta-compacter++", "roberta-unipelt", "roberta-lora-plain-qa", "t5-seq_bn", "t5-double_seq_bn",
        "t5-compacter-flexible",
    ),
}  # fmt: skip
RECORDED = {
    origin: (*served, *(case for case, reason in OUTCOMES[origin].items() if reason is not None))
    for origin, served in SERVED.items()
}
# The time of every file in an archive, so that equal files make equal archives.
_TIME = (1980, 1, 1, 0, 0, 0)
_SKIPPED = ("README.md",)


def unpack(origin: str, case: str, folder: Path) -> Path:
    """A folder in `folder` with what the library saved for one case, and `expected.json`."""
    with ZipFile(_archive(origin)) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(f"{case}/")])
    return folder / case


def _archive(origin: str) -> Path:
    return _HERE / "recorded" / f"{origin}.zip"


def _pack(origin: str, folder: Path) -> None:
    """Writes the archive of the cases in `folder`. Configurations name the backbone without its path here."""
    with ZipFile(_archive(origin), "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for case in RECORDED[origin]:
            for path in sorted((folder / origin / case).iterdir()):
                if path.name not in _SKIPPED:
                    name, data = ZipInfo(f"{case}/{path.name}", _TIME), path.read_bytes()
                    name.compress_type = ZIP_DEFLATED
                    archive.writestr(name, data.replace(f"{folder}/backbones/".encode(), b""))


def main() -> int:
    with TemporaryDirectory() as folder:
        if status := pytest.main(["-q", f"--basetemp={folder}/saved", str(_HERE / "test_parity.py")]):
            return int(status)
        (saved,) = Path(folder, "saved").glob("foreign[0-9]")
        for origin in RECORDED:
            _pack(origin, saved)
            print(f"{_archive(origin)}: {len(RECORDED[origin])} cases, {_archive(origin).stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
