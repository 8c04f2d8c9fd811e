"""The manifest of an artifact, which is JSON in its header. Imports no torch."""

import json
import reprlib
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_backbone.checkpoint.shape import TEXT_FAMILIES, Family
from pydantic import AfterValidator, FailFast, Field, ValidationError, model_validator

from peltier_adapters.artifact.header import TensorTable, has_more_tokens, split_header, unique_names
from peltier_adapters.artifact.source import ByteSource, MemorySource
from peltier_adapters.errors import ArtifactError, sentences
from peltier_adapters.spec.maps import Spec, is_none
from peltier_adapters.spec.parts import HeadSpec, Parts, PartSpec, part_conflicts, part_problems, position_offset
from peltier_adapters.spec.tasks import MAX_VECTOR_SIZE, TaskSpec
from peltier_adapters.spec.text_rules import INVISIBLE, label_problem

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"
# Room for 4096 labels with 30 golden examples, or for 64 golden examples of 60 KB of text.
MAX_HEADER_BYTES = 4 * 1024 * 1024
MAX_JSON_TOKENS = 131_072

AdapterName = Annotated[str, Field(pattern=NAME_PATTERN)]
Metric = Annotated[str, Field(max_length=128)]
TaskInput = str | tuple[str, str] | tuple[str, str, str]
Precision = Literal["float32", "bfloat16", "int8"]
_Output = tuple[Annotated[float, Field(allow_inf_nan=False)], ...]
# Only the first error is reported: a hundred thousand errors would take a hundred megabytes.
_FIRST_ERROR = FailFast()
_UNIQUE = json.JSONDecoder(object_pairs_hook=partial(unique_names, "manifest"))
_FLOAT32: tuple[Precision, ...] = ("float32",)


@lru_cache(maxsize=1024)
def _intern(parts: Parts) -> Parts:
    """Equal parts as one object, so that a look-up by parts compares no fields."""
    return parts


class BackboneRef(Spec):
    """The backbone that an adapter was trained on. `name` is for people; only the fingerprint identifies it."""

    family: Family
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
    """An input and the trainer's output for it, in float32: the logits of the labels, one token after another if the
    task reads tokens; the values of an embedding, the number and the logit of each term, or the vectors of at most 16
    tokens; on T5 the log-likelihoods of the targets, and for text2text the mean log-probability of the tokens of
    `text`."""

    input: TaskInput
    output: Annotated[_Output, _FIRST_ERROR]
    text: Annotated[str, Field(min_length=1)] | None = None


class Manifest(Spec):
    """One adapter version, without its weights.

    `substitute_output` is the adapter's output for a fixed row on the backbone's substitute (`golden/identity.py`);
    artifacts of older releases have none.

    `proved` names the precisions of the backbone in which its maker reproduced the golden examples. If it is only
    float32, the artifact does not mention it, so releases that know no other precision read the artifact too.
    """

    format_version: Literal[1] = 1
    name: AdapterName
    preset: Annotated[str, Field(min_length=1, max_length=64)]
    parts: Annotated[tuple[PartSpec, ...], Field(min_length=1, max_length=8), AfterValidator(_intern)]
    backbone: BackboneRef
    task: TaskSpec
    training: TrainingRecord = TrainingRecord()
    golden: tuple[Golden, ...] = Field(min_length=1, max_length=64)
    substitute_output: Annotated[_Output | None, _FIRST_ERROR] = Field(default=None, exclude_if=is_none)
    proved: tuple[Precision, ...] = Field(default=_FLOAT32, min_length=1, max_length=3, exclude_if=_FLOAT32.__eq__)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        kinds = [part.kind for part in self.parts]
        twice = sorted({kind for kind in kinds if kinds.count(kind) > 1})
        if twice:
            raise ValueError(f"part {twice[0]!r} occurs twice")
        if reasons := part_conflicts(self.parts):
            raise ValueError(reasons[0])
        if self.backbone.family in TEXT_FAMILIES:
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
        head, task = self.head, self.task
        if task.embeds:
            outputs = head.outputs
        else:
            outputs = len(task.labels)
            if not head.projection:
                raise ValueError(f"a head without a projection is for embeddings; the task is {task.type}")
        if head.outputs != outputs:
            raise ValueError(f"the head has {head.outputs} outputs, the task {outputs} labels")
        if (head.terms is not None) != (task.type == "sparse-embedding"):
            has = "no terms" if head.terms is None else "terms"
            raise ValueError(
                f"a head has terms if and only if the task is sparse-embedding; this {task.type} has {has}"
            )
        if task.type == "multi-vector-embedding" and head.outputs > MAX_VECTOR_SIZE:
            raise ValueError(f"{task.type} has vectors of at most {MAX_VECTOR_SIZE:,} values, not {head.outputs:,}")
        if (head.pooling == "tokens") != task.has_token_head:
            wanted = "of every token" if task.has_token_head else "of one vector for each input"
            raise ValueError(f"a {task.type} task needs a head {wanted}, not one with pooling {head.pooling!r}")
        if task.padded and self.backbone.family in ("modernbert", "deberta-v2"):
            raise ValueError(
                "padded tasks are for encoders in which each token attends to the whole row; "
                f"{self.backbone.family}'s do not"
            )
        if task.padded and (head.pooling in ("mean", "max") or (task.embeds and task.has_token_head)):
            raise ValueError(
                f"a padded {task.type} task cannot have a head with pooling {head.pooling!r}, which would include the "
                "padding"
            )

    def _check_golden(self) -> None:
        wrong = [number for number, golden in enumerate(self.golden) if not self._is_output(golden.output)]
        if wrong:
            raise ValueError(f"golden example {wrong[0]} does not have {self._golden_values}")
        numbers = {1 if isinstance(golden.input, str) else len(golden.input) for golden in self.golden}
        if numbers != {self.task.num_texts}:
            raise ValueError(f"golden inputs do not fit a task of {self.task.inputs} inputs")
        texts = [golden.text is not None for golden in self.golden]
        if set(texts) != {self.task.type == "text2text"}:
            raise ValueError("golden examples have a text if and only if the task is text2text")

    @property
    def _golden_values(self) -> str:
        match self.task.type:
            case "sparse-embedding":
                return "the number and the logit of each term"
            case "multi-vector-embedding":
                return "one value per output of the head and token"
            case "embedding":
                return "one value per output of the head"
        return "one value per label and token" if self.task.reads_tokens else "one value per label"

    def _is_output(self, output: Sequence[float]) -> bool:
        if self.task.has_output_per_token:
            width = self.head.outputs if self.task.embeds else self.task.num_outputs
            return len(output) > 0 and len(output) % width == 0
        return len(output) == (self.head.num_values if self.task.embeds else self.task.num_outputs)

    def _check_visible(self) -> None:
        for what, text in {"preset": self.preset, "backbone name": self.backbone.name}.items():
            if INVISIBLE.search(text):
                raise ValueError(f"{what} is {reprlib.repr(text)}: it contains invisible characters")
        for number, label in enumerate(self.task.labels):
            if (problem := label_problem(label)) is not None:
                raise ValueError(f"task label {number} is {reprlib.repr(label)}: it {problem}")

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
    return [*reasons, *_part_problems(manifest.parts, config)]


@lru_cache(maxsize=1024)
def _part_problems(parts: Parts, config: BackboneConfig) -> tuple[str, ...]:
    return tuple(part_problems(parts, config))


@dataclass(frozen=True, eq=False)
class Header:
    """A header of an artifact whose manifest is not validated yet, and the bytes of the tensors that follow it."""

    manifest: object
    table: TensorTable
    num_bytes: int

    def validate(self) -> Manifest:
        """The manifest; an ArtifactError has every reason."""
        encoded = _encode(self.manifest)
        _require_unique(encoded)
        return _validate(encoded)


def read_header(data: bytes) -> tuple[Manifest, Mapping[str, Any]]:
    """The manifest and the tensor table in the leading bytes of a safetensors file. Raises `ArtifactError`."""
    header = split_file(MemorySource(data))
    return header.validate(), header.table.entries


def split_file(source: ByteSource) -> Header:
    """The header of a safetensors file, whose tensors follow in `source`."""
    start = source.read(min(8, source.num_bytes))
    if len(start) < 8:
        raise ArtifactError(
            [f"the file has {len(start)} bytes; a safetensors file begins with an 8-byte header length"]
        )
    (length,) = struct.unpack("<Q", start)
    if length > min(MAX_HEADER_BYTES, source.num_bytes - 8):
        raise ArtifactError(
            [f"the header claims {length} bytes of {source.num_bytes}: not a safetensors file, truncated, or oversized"]
        )
    return _parse_header(source.read(length), source.num_bytes - 8 - length)


def _parse_header(text: bytes, num_bytes: int) -> Header:
    _check_tokens(text, "header")
    try:
        metadata, table = split_header(text.decode())
    except (ValueError, RecursionError):
        raise ArtifactError(["the header is not JSON: this is not a safetensors file"]) from None
    if not isinstance(metadata, dict) or metadata.get("format") != "peltier":
        raise ArtifactError(["the header has no metadata with format 'peltier': this is not a Peltier artifact"])
    if table.problem is not None:
        raise ArtifactError([table.problem])
    return Header(metadata.get("manifest", ""), table, num_bytes)


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


def _require_unique(text: bytes) -> None:
    # The validation that follows refuses a text that is not JSON.
    with suppress(ValueError, RecursionError):
        _UNIQUE.decode(text.decode())


def _validate(text: bytes) -> Manifest:
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        raise ArtifactError([f"manifest {sentence}" for sentence in sentences(error)]) from None


def read_file_header(path: Path) -> tuple[Manifest, Mapping[str, Any]]:
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
