"""The manifest of an artifact, which is JSON in its header. Imports no torch."""

import json
import re
import reprlib
import struct
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from peltier_backbone.config import BackboneConfig
from pydantic import FailFast, Field, ValidationError, model_validator

from peltier_adapters.artifact.json_tokens import doubled_name, has_more_tokens
from peltier_adapters.errors import ArtifactError
from peltier_adapters.spec.maps import Spec
from peltier_adapters.spec.parts import HeadSpec, PartSpec, part_conflicts, position_offset
from peltier_adapters.spec.tasks import TaskSpec
from peltier_adapters.validation import sentences

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"
# Room for 4096 labels with 30 golden examples, or for 64 golden examples of 60 KB of text.
MAX_HEADER_BYTES = 4 * 1024 * 1024
MAX_JSON_TOKENS = 131_072

# Control characters, and characters that change the direction of the following text: people could not see the names.
_INVISIBLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Metric = Annotated[str, Field(max_length=128)]
Input = str | tuple[str, str] | tuple[str, str, str]
Precision = Literal["float32", "bfloat16", "int8"]
_FLOAT32: tuple[Precision, ...] = ("float32",)


class BackboneRef(Spec):
    """The backbone that an adapter was trained on. `name` is for people; only the fingerprint identifies it."""

    family: Literal["bert", "roberta", "t5"]
    fingerprint: Annotated[str, Field(pattern=DIGEST_PATTERN)]
    hidden_size: Annotated[int, Field(ge=1)]
    num_layers: Annotated[int, Field(ge=1)]
    num_parameters: Annotated[int, Field(ge=1)]
    name: str


class TrainingRecord(Spec):
    """How the adapter was made. The values are free-form, for people."""

    data: dict[str, Any] = Field(default_factory=dict)
    hyperparameters: dict[str, Any] = Field(default_factory=dict)
    # Bounded, because a list shows the metrics of a thousand adapters.
    metrics: dict[Metric, float] = Field(default_factory=dict, max_length=256)
    versions: dict[str, str] = Field(default_factory=dict)


class Golden(Spec):
    """An input and the trainer's output for it, in float32: the logits of the labels, on T5 the log-likelihoods of the
    targets, for text2text the mean log-probability of the tokens of `text`."""

    input: Input
    # Only the first error is reported: a hundred thousand errors would take a hundred megabytes.
    output: Annotated[tuple[Annotated[float, Field(allow_inf_nan=False)], ...], FailFast()]
    text: Annotated[str, Field(min_length=1)] | None = None


class Manifest(Spec):
    """One adapter version, without its weights.

    `proved` names the precisions of the backbone in which its maker reproduced the golden examples. If it is only
    float32, the artifact does not mention it, so releases that know no other precision read the artifact too.
    """

    format_version: Literal[1] = 1
    name: Name
    preset: Annotated[str, Field(min_length=1, max_length=64)]
    parts: tuple[PartSpec, ...] = Field(min_length=1, max_length=8)
    backbone: BackboneRef
    task: TaskSpec
    training: TrainingRecord = TrainingRecord()
    golden: tuple[Golden, ...] = Field(min_length=1, max_length=64)
    proved: tuple[Precision, ...] = Field(default=_FLOAT32, min_length=1, max_length=3, exclude_if=_FLOAT32.__eq__)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        kinds = [part.kind for part in self.parts]
        twice = sorted({kind for kind in kinds if kinds.count(kind) > 1})
        if twice:
            raise ValueError(f"part {twice[0]!r} occurs twice")
        if reasons := part_conflicts(self.parts):
            raise ValueError(reasons[0])
        if self.backbone.family == "t5":
            if self.task.template is None:
                raise ValueError("a T5 task needs a template")
        elif self.task.template is not None:
            raise ValueError(f"a template is for T5, not for {self.backbone.family}")
        else:
            self._check_head(kinds)
        self._check_golden()
        self._check_visible()
        return self

    def _check_head(self, kinds: Sequence[str]) -> None:
        if kinds[-1:] != ["head"]:
            raise ValueError("the last part must be the head")
        if self.head.outputs != len(self.task.labels):
            raise ValueError(f"the head has {self.head.outputs} outputs, the task {len(self.task.labels)} labels")
        if self.task.padded and self.head.pooling == "mean":
            raise ValueError("a head that reads the mean over tokens would read the pads of a padded task")

    def _check_golden(self) -> None:
        wrong = [number for number, golden in enumerate(self.golden) if len(golden.output) != self.task.num_outputs]
        if wrong:
            raise ValueError(f"golden example {wrong[0]} does not have one value per label")
        numbers = {1 if isinstance(golden.input, str) else len(golden.input) for golden in self.golden}
        if numbers != {self.task.num_texts}:
            raise ValueError(f"golden inputs do not fit a task of {self.task.inputs} inputs")
        texts = [golden.text is not None for golden in self.golden]
        if set(texts) != {self.task.type == "text2text"}:
            raise ValueError("golden examples have a text if and only if the task is text2text")

    def _check_visible(self) -> None:
        labels = {f"task label {number}": label for number, label in enumerate(self.task.labels)}
        for what, text in ({"preset": self.preset, "backbone name": self.backbone.name} | labels).items():
            if _INVISIBLE.search(text):
                raise ValueError(f"{what} is {reprlib.repr(text)}: it contains invisible characters")

    @property
    def head(self) -> HeadSpec:
        """The last part of an encoder's adapter."""
        head = self.parts[-1]
        assert isinstance(head, HeadSpec)
        return head


def backbone_mismatches(manifest: Manifest, config: BackboneConfig, fingerprint: str) -> list[str]:
    """Why an adapter does not fit this backbone; empty if it does."""
    found, wanted = manifest.backbone, config
    reasons = []
    for key in ("family", "hidden_size", "num_layers"):
        if getattr(found, key) != getattr(wanted, key):
            reasons.append(f"backbone {key} is {getattr(found, key)!r}; this backbone's is {getattr(wanted, key)!r}")
    if found.fingerprint != fingerprint:
        reasons.append(f"backbone fingerprint is {found.fingerprint}; this backbone's is {fingerprint}")
    offset = position_offset(manifest.parts)
    if manifest.task.max_length > config.max_tokens - offset:
        after = f" after a prefix that takes {offset} positions" if offset else ""
        takes = f"{max(config.max_tokens - offset, 0)} tokens{after}"
        reasons.append(f"task max_length is {manifest.task.max_length}; this backbone takes {takes}")
    return reasons + [problem for part in manifest.parts for problem in part.problems(config)]


def read_header(data: bytes) -> tuple[Manifest, dict[str, Any]]:
    """The manifest and the tensor table in the leading bytes of a safetensors file. Raises `ArtifactError`."""
    if len(data) < 8:
        raise ArtifactError([f"the file has {len(data)} bytes; a safetensors file begins with an 8-byte header length"])
    (length,) = struct.unpack("<Q", data[:8])
    if length > min(MAX_HEADER_BYTES, len(data) - 8):
        raise ArtifactError(
            [f"the header claims {length} bytes of {len(data)}: not a safetensors file, truncated, or oversized"]
        )
    text = data[8 : 8 + length]
    _check_tokens(text, "header")
    try:
        header = json.loads(
            text.decode(), object_pairs_hook=partial(_unique, "header"), parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError):
        raise ArtifactError(["the header is not JSON: this is not a safetensors file"]) from None
    metadata = header.pop("__metadata__", None) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or metadata.get("format") != "peltier":
        raise ArtifactError(["the header has no metadata with format 'peltier': this is not a Peltier artifact"])
    _check_table(header)
    manifest = _encode(metadata.get("manifest", ""))
    _require_unique(manifest, "manifest")
    return _validate(manifest), header


def _check_table(table: dict[str, Any]) -> None:
    """Refuses entries without a valid shape. `read_artifact` checks that the shapes are the expected ones."""
    for name, entry in table.items():
        shape = entry.get("shape") if isinstance(entry, dict) else None
        if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
            raise ArtifactError([f"tensor {reprlib.repr(name)} has shape {reprlib.repr(shape)}: not a list of sizes"])


def _unique(what: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses duplicate names, because readers may differ in which one they use."""
    name = doubled_name(pairs)
    if name is not None:
        raise ArtifactError([f"the {what} names {reprlib.repr(name)} twice"])
    return dict(pairs)


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _check_tokens(text: bytes, what: str) -> None:
    if has_more_tokens(text, MAX_JSON_TOKENS):
        raise ArtifactError([f"the {what} holds more than {MAX_JSON_TOKENS} strings, commas and brackets"])


def parse_manifest(text: object) -> Manifest:
    """A manifest from its JSON text."""
    return _validate(_encode(text))


def _encode(text: object) -> bytes:
    try:
        encoded = text.encode() if isinstance(text, str) else b""
    except UnicodeEncodeError:
        raise ArtifactError(["the manifest is not Unicode text"]) from None
    _check_tokens(encoded, "manifest")
    return encoded


def _require_unique(text: bytes, what: str) -> None:
    # The validation that follows refuses a text that is not JSON.
    with suppress(ValueError, RecursionError):
        json.loads(text, object_pairs_hook=partial(_unique, what))


def _validate(text: bytes) -> Manifest:
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        raise ArtifactError([f"manifest {sentence}" for sentence in sentences(error)]) from None


def read_file_header(path: Path) -> tuple[Manifest, dict[str, Any]]:
    """The manifest and the tensor table of an artifact file, without loading its weights."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            return read_header(start + file.read(min(length, MAX_HEADER_BYTES)))
    except OSError as error:
        raise ArtifactError([f"{path} cannot be read: {error.strerror}"]) from None


def read_manifest(path: Path) -> Manifest:
    """The manifest of an artifact file."""
    return read_file_header(path)[0]
