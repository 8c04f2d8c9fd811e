"""Fuzzes the reader of artifacts: header, manifest and specification, without weights.

    python tests/fuzz/seed.py VALID.safetensors SEEDS
    python tests/fuzz/fuzz_artifact.py SEEDS -dict=tests/fuzz/artifact.dict -max_total_time=600

Any exception but an `ArtifactError`, any reason that is no readable line, and any input that takes a minute or two
gigabytes ends it with a traceback and a file to repeat it with. The flags are libFuzzer's own (`-help=1`).
"""

import json
import struct
import sys

import atheris

with atheris.instrument_imports(include=["peltier_adapters", "peltier_backbone"]):
    from peltier_adapters.artifact.manifest import backbone_mismatches, read_header
    from peltier_adapters.errors import ArtifactError
    from peltier_adapters.spec.parts import pooler_users, tensor_shapes
    from peltier_backbone.checkpoint.config import parse_config

# The shape of the backbone that the seeds are for; its weights have no part in this.
CONFIG = parse_config(
    {
        "model_type": "bert",
        "vocab_size": 64,
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 88,
        "max_position_embeddings": 96,
        "type_vocab_size": 2,
    },
    "fuzz",
)
FINGERPRINT = "sha256:" + "0" * 64


def read(data: bytes) -> None:
    """What `read_artifact` does before it touches a weight."""
    try:
        manifest, table = read_header(data)
        reasons = backbone_mismatches(manifest, CONFIG, FINGERPRINT)
        if manifest.backbone.family == CONFIG.family:
            shapes = tensor_shapes(manifest.parts, CONFIG)
            reasons += [f"tensor {name} is missing" for name in shapes if name not in table]
            pooler_users(manifest.parts)
        if reasons:
            raise ArtifactError(reasons)
    except ArtifactError as error:
        check(error.reasons)


def check(reasons: list[str]) -> None:
    """There is one, and each is a line that a person can read."""
    assert reasons, "a refusal without a reason"
    assert all(reason.isprintable() and len(reason) <= 501 for reason in reasons), reasons


def fuzz(data: bytes) -> None:
    """The input as a file, as the header of one, and as the manifest in one: a fuzzer seldom finds the length or the
    escapes that belong to a text."""
    read(data)
    read(_file(data))
    manifest = data.decode("utf-8", errors="surrogateescape")
    read(_file(json.dumps({"__metadata__": {"format": "peltier", "manifest": manifest}}).encode()))


def _file(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header


if __name__ == "__main__":
    atheris.Setup([*sys.argv, "-timeout=60", "-rss_limit_mb=2048"], fuzz)
    atheris.Fuzz()
