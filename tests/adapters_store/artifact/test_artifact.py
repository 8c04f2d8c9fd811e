"""Parsing: for any bytes an artifact is read exactly or refused with readable reasons."""

import copy
import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peltier_adapters.artifact.artifact import load_stored, read_artifact, to_bytes, write_artifact
from peltier_adapters.artifact.manifest import Manifest, read_header, read_manifest
from peltier_adapters.artifact.source import MemorySource
from peltier_adapters.errors import AdapterError, ArtifactError
from peltier_backbone.backbone import Backbone

from tests.corpus.build import join, split, with_manifest
from tests.support.full_disk import room_for

Json = dict[str, Any]
DOCS = Path(__file__).parents[3] / "docs"
OTHER = f"sha256:{'0' * 64}"


@pytest.fixture(scope="module")
def valid(bert: Backbone, make_artifact: Callable[..., bytes]) -> bytes:
    """The bytes of one valid artifact."""
    return make_artifact(bert, "unipelt-apl", labels=("no", "yes", "perhaps"))


def _refused(data: bytes, backbone: Backbone) -> list[str]:
    """The reasons, of an upload as of a load; each is one readable sentence that fits on a screen."""
    with pytest.raises(ArtifactError) as caught:
        read_artifact(data, backbone)
    with pytest.raises(ArtifactError) as loading:
        load_stored(MemorySource(data), backbone, "sha256:0")
    assert loading.value.reasons == caught.value.reasons
    for reason in caught.value.reasons:
        assert reason
        assert "\n" not in reason
        assert len(reason) < 1000
        assert "Traceback" not in reason
    return caught.value.reasons


def _survives(data: bytes, valid: bytes, backbone: Backbone) -> None:
    """Refused, or read as the same adapter, but for LoRA's alpha, which fits any shape: golden examples judge it."""
    original = read_artifact(valid, backbone)
    try:
        artifact = read_artifact(data, backbone)
    except ArtifactError:
        return
    assert _unscaled(artifact.manifest) == _unscaled(original.manifest)
    for one in (artifact, load_stored(MemorySource(data), backbone, artifact.digest)):
        assert one.manifest == artifact.manifest
        assert one.tensors.keys() == original.tensors.keys()
        assert all(torch.equal(one.tensors[name], t) for name, t in original.tensors.items())


def _unscaled(manifest: Manifest) -> list[Json]:
    return [part.model_dump(exclude={"alpha"}) for part in manifest.parts]


@given(cut=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(cut: float, valid: bytes, bert: Backbone):
    assert _refused(valid[: int(cut * len(valid))], bert)


@settings(max_examples=2 * settings().max_examples)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_in_the_header_never_gives_other_numbers(place: float, bit: int, valid: bytes, bert: Backbone):
    """The bit may be in a value that nothing computes with, such as a training record or a label."""
    (length,) = struct.unpack("<Q", valid[:8])
    broken = bytearray(valid)
    broken[int(place * (8 + length))] ^= 1 << bit
    _survives(bytes(broken), valid, bert)


@given(data=st.binary(max_size=400))
def test_noise_is_refused(data: bytes, bert: Backbone):
    assert _refused(data, bert)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(header=JSON)
def test_any_json_header_is_refused(header: object, bert: Backbone):
    """A header of the wrong shape is a reason, not an exception."""
    assert _refused(join(header, b""), bert)


@given(value=JSON, data=st.data())
def test_any_json_in_the_manifest_is_judged(value: object, data: st.DataObject, valid: bytes, bert: Backbone):

    def change(manifest: Json) -> None:
        target: Any = manifest
        while True:
            keys = list(target) if isinstance(target, dict) else list(range(len(target)))
            key = data.draw(st.sampled_from(keys))
            if not isinstance(target[key], dict | list) or not target[key] or data.draw(st.booleans()):
                target[key] = value
                return
            target = target[key]

    _survives(with_manifest(valid, change), valid, bert)


@given(entry=st.fixed_dictionaries({"dtype": JSON, "shape": JSON, "data_offsets": JSON}) | JSON, data=st.data())
def test_any_json_in_the_tensor_table_is_judged(entry: object, data: st.DataObject, valid: bytes, bert: Backbone):
    header, body = split(valid)
    header[data.draw(st.sampled_from(sorted(set(header) - {"__metadata__"})))] = entry
    _survives(join(header, body), valid, bert)


def _entry(valid: bytes, name: str, **change: object) -> bytes:
    header, body = split(valid)
    header[name] |= change
    return join(header, body)


@pytest.mark.parametrize(
    "entry", [None, 3, [], {}, {"shape": None}, {"shape": ["2"]}, {"shape": [True]}, {"shape": [2.0]}]
)
def test_even_inspecting_needs_readable_shapes(entry: object, valid: bytes):
    """Reading only the header refuses a table with shapes that are not lists of sizes."""
    header, body = split(valid)
    header["head.bias"] = entry
    with pytest.raises(ArtifactError, match=r"^tensor 'head\.bias' has shape .*: not a list of sizes$"):
        read_header(join(header, body))


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**40, 16 * 1024 * 1024 + 1])
def test_a_header_bomb_is_refused_by_its_length(length: int, bert: Backbone):
    reasons = _refused(struct.pack("<Q", length) + b"{" * 64, bert)
    assert reasons == [f"the header claims {length} bytes of 72: not a safetensors file, truncated, or oversized"]


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 60_000, b"9" * 100_000, b'"\\ud800', b"\xff\xfe{}"])
def test_hostile_json_is_refused(text: bytes, bert: Backbone):
    assert _refused(join(text, b""), bert) == ["the header is not JSON: this is not a safetensors file"]


def test_a_million_mistakes_give_a_hundred_reasons(bert: Backbone, valid: bytes):
    """A refusal has a bounded size."""
    header, body = split(valid)
    header |= {f"x{number}": header["head.bias"] for number in range(5000)}
    reasons = _refused(join(header, body), bert)
    assert len(reasons) == 101
    assert reasons[-1] == "and 4900 more reasons"


@pytest.mark.parametrize(
    "metadata", [None, {}, {"format": "pt"}, {"format": "peltier"}, {"format": "peltier", "manifest": 3}]
)
def test_another_safetensors_file_is_refused(metadata: Json | None, valid: bytes, bert: Backbone):
    header, body = split(valid)
    header.pop("__metadata__")
    if metadata is not None:
        header["__metadata__"] = metadata
    reasons = _refused(join(header, body), bert)
    assert "not a Peltier artifact" in reasons[0] or reasons[0].startswith("manifest as a whole")


def _set(*path: str | int, to: object) -> Callable[[Json], None]:
    def change(manifest: Json) -> None:
        target: Any = manifest
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = to

    return change


def _embedding(manifest: Json) -> None:
    manifest["task"] |= {"type": "embedding", "labels": []}
    manifest["golden"][0]["output"].append(0.5)


def _mean_over_pads(manifest: Json) -> None:
    manifest["task"]["padded"] = True
    manifest["parts"][-1]["pooling"] = "mean"


def _long_after_a_prefix(manifest: Json) -> None:
    manifest["parts"][0] |= {"length": 3, "shifts_positions": True}
    manifest["task"]["max_length"] = 96


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_set("name", to="../../etc/passwd"), "name is '../../etc/passwd'"),
        (_set("name", to="a/b"), "name is 'a/b'"),
        (_set("name", to="a\n"), "name is 'a\\n'"),
        (_set("name", to=""), "name is ''"),
        (_set("name", to="x" * 64), "name is 'xxx"),
        (_set("name", to="Großes"), "name is"),
        (_set("format_version", to=2), "format_version is 2"),
        (_set("backbone", "fingerprint", to=OTHER), f"backbone fingerprint is {OTHER}; this backbone's is sha256:"),
        (_set("backbone", "family", to="roberta"), "backbone family is 'roberta'; this backbone's is 'bert'"),
        (lambda manifest: manifest["parts"].insert(0, manifest["parts"][0]), "part 'prefix' occurs twice"),
        (lambda manifest: manifest["parts"].pop(), "the last part must be the head"),
        (_set("surprise", to=1), "surprise is 1: extra inputs are not permitted"),
        (_set("parts", 0, "kind", to="hyper"), "parts.0 is {"),
        (_set("parts", 0, "length", to=0), "parts.0.prefix.length is 0"),
        (_set("parts", 0, "length", to=10**30), "parts.0.prefix.length is 1000"),
        (_set("parts", to=[]), "parts is []"),
        (_set("parts", 1, "alpha", to=None), "parts.1.lora.alpha is None"),
        (_set("backbone", "fingerprint", to="sha256:0"), "backbone.fingerprint is 'sha256:0'"),
        (_set("task", "labels", to=["a", "a", "b"]), "two labels have the same name"),
        (_set("task", "labels", to=["a", "b"]), "the head has 3 outputs, the task 2 labels"),
        (_set("task", "type", to="token-classification"), "needs a head of every token, not one with pooling 'pooler'"),
        (_set("parts", -1, "pooling", to="tokens"), "a classification task needs a head of one vector for each input"),
        (_set("parts", -1, "projection", to=False), "a head without a projection is for embeddings"),
        (_embedding, "golden example 0 does not have one value per output of the head"),
        (_set("task", "type", to="regression"), "regression has one label, not 3"),
        (_mean_over_pads, "which would include the padding"),
        (_set("task", "max_length", to=10**6), "task max_length is 1000000; this backbone takes 96 tokens"),
        (
            _long_after_a_prefix,
            "task max_length is 96; this backbone takes 93 tokens after a prefix that takes 3 positions",
        ),
        (_set("training", "metrics", to={f"f1/{label}": 1.0 for label in range(257)}), "training.metrics is {"),
        (_set("training", "metrics", to={"f" * 129: 1.0}), "at most 128 characters"),
        (_set("golden", to=[]), "golden is []"),
        (_set("golden", 1, "output", to=[1.0]), "golden example 1 does not have one value per label"),
        (_set("golden", 0, "input", to=["a", "b"]), "golden inputs do not fit a task of single inputs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_manifest_that_breaks_a_rule_is_told_which(change, words, valid, bert):
    assert words in "\n".join(_refused(with_manifest(valid, change), bert))


def test_a_factored_map_of_a_gigabyte_is_refused(bert: Backbone, make_artifact: Callable[..., bytes]):
    """A few kilobytes of factors must not become a matrix of a gigabyte."""
    data = with_manifest(make_artifact(bert, "compacter"), _set("parts", 0, "map", "n", to=24))
    assert any("n * n * rank = 576 must not exceed the hidden size 48" in reason for reason in _refused(data, bert))


def test_a_head_without_its_pooler_is_refused(roberta: Backbone, make_artifact: Callable[..., bytes]):
    """The small RoBERTa has no pooler."""
    data = with_manifest(make_artifact(roberta, "lora"), _set("parts", 1, "pooling", to="pooler"))
    assert "part 'head' needs a pooler, which this backbone's checkpoint does not have" in _refused(data, roberta)


def test_reasons_are_given_all_at_once(valid: bytes, bert: Backbone):
    data = with_manifest(_entry(valid, "head.bias", shape=[9], dtype="F16"), _set("backbone", "num_layers", to=2))
    reasons = "\n".join(_refused(data, bert))
    assert "backbone num_layers is 2; this backbone's is 3" in reasons
    assert "'head.bias' has shape [9]" in reasons
    assert "tensor 'head.bias' has dtype F16; artifacts hold F32" in reasons


@pytest.mark.slow
def test_the_same_adapter_is_the_same_bytes_in_any_process(valid: bytes, bert: Backbone, tmp_path: Path):
    """The digest identifies an upload, so nothing in the file may have a random order."""
    artifact = read_artifact(valid, bert)
    backwards = dict(reversed([*artifact.tensors.items()]))
    assert {to_bytes(artifact.manifest, backwards) for _ in range(20)} == {valid}
    (tmp_path / "a.safetensors").write_bytes(valid)
    program = (
        "import sys, pathlib, safetensors.torch; from peltier_adapters.artifact.artifact import to_bytes;"
        "from peltier_adapters.artifact.manifest import read_manifest; path = pathlib.Path(sys.argv[1]);"
        "sys.exit(to_bytes(read_manifest(path), safetensors.torch.load_file(path)) != path.read_bytes())"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a.safetensors")]
    assert subprocess.run(command, check=False).returncode == 0


def test_the_header_is_read_without_weights(valid: bytes, bert: Backbone, tmp_path: Path):
    """The manifest of a file whose weights are cut off can still be inspected."""
    (length,) = struct.unpack("<Q", valid[:8])
    path = tmp_path / "a.safetensors"
    path.write_bytes(valid[: 8 + length])
    assert read_manifest(path) == read_artifact(valid, bert).manifest == read_header(valid)[0]


def test_a_missing_file_is_a_sentence(tmp_path: Path):
    with pytest.raises(ArtifactError, match=r"nothing\.safetensors cannot be read: No such file or directory"):
        read_manifest(tmp_path / "nothing.safetensors")


def test_writing_replaces_in_one_step(valid: bytes, bert: Backbone, tmp_path: Path):
    """A complete file replaces the old one; no other file is left."""
    artifact, path = read_artifact(valid, bert), tmp_path / "a.safetensors"
    path.write_bytes(b"old")
    with room_for(len(valid) // 2), pytest.raises(AdapterError, match="cannot be written: File too large"):
        write_artifact(path, artifact.manifest, artifact.tensors)
    assert path.read_bytes() == b"old"
    write_artifact(path, artifact.manifest, artifact.tensors)
    assert path.read_bytes() == valid
    assert list(tmp_path.iterdir()) == [path]


def test_writing_where_nothing_can_be_written_is_a_sentence(valid: bytes, bert: Backbone, tmp_path: Path):
    """A missing directory is an error of the user, without a traceback."""
    artifact = read_artifact(valid, bert)
    with pytest.raises(AdapterError, match="cannot be written: No such file or directory"):
        write_artifact(tmp_path / "no" / "a.safetensors", artifact.manifest, artifact.tensors)


def _names(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """The path of every name in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        if isinstance(value, dict):
            yield (*path, key)
        yield from _names(below, (*path, key))


def _doubled(value: Any, path: tuple[Any, ...]) -> str:
    """The value as JSON with the name at `path` given twice and the same value."""
    if isinstance(value, list):
        ones = [_doubled(one, path[1:]) if place == path[0] else json.dumps(one) for place, one in enumerate(value)]
        return f"[{', '.join(ones)}]"
    below = {path[0]: _doubled(value[path[0]], path[1:])} if len(path) > 1 else {}
    pairs = [f"{json.dumps(key)}: {below.get(key, json.dumps(one))}" for key, one in value.items()]
    pairs += [pairs[list(value).index(path[0])]] if len(path) == 1 else []
    return f"{{{', '.join(pairs)}}}"


def test_a_name_given_twice_is_refused_at_every_depth(valid: bytes, bert: Backbone) -> None:
    """This holds for the manifest and the header, because another reader could use the other value."""
    header, body = split(valid)
    manifest = json.loads(header["__metadata__"]["manifest"])
    for path in _names(manifest):
        changed = copy.deepcopy(header)
        changed["__metadata__"]["manifest"] = _doubled(manifest, path)
        assert _refused(join(json.dumps(changed).encode(), body), bert) == [f"the manifest names {path[-1]!r} twice"]
    for path in _names(header):
        assert _refused(join(_doubled(header, path).encode(), body), bert) == [f"the header names {path[-1]!r} twice"]


def test_a_table_is_judged_for_each_adapter(bert: Backbone, make_artifact: Callable[..., bytes]) -> None:
    """A cached table is checked again for other parts and for a file of another length."""
    data = make_artifact(bert, "lora")
    for _ in range(2):
        assert read_artifact(data, bert).manifest.preset == "lora"
        reasons = _refused(_with_compact_manifest(data, _set("parts", 0, "rank", to=9)), bert)
        assert reasons[0].endswith("its part requires [2, 3, 48, 9]")
        assert "the file has" in _refused(data + bytes(4), bert)[0]


def _with_compact_manifest(data: bytes, change: Callable[[Json], object]) -> bytes:
    """In the form in which artifacts are written, so that tables of equal text are one."""
    header, body = split(with_manifest(data, change))
    return join(json.dumps(header, separators=(",", ":")).encode(), body)


def test_tensors_in_any_order_of_the_file_are_found(valid: bytes, bert: Backbone) -> None:
    """Other writers of safetensors files order tensors differently."""
    original, (header, body) = read_artifact(valid, bert), split(valid)
    names = sorted(original.tensors, reverse=True)
    moved, pieces = {"__metadata__": header["__metadata__"]}, b""
    for name in names:
        begin, end = header[name]["data_offsets"]
        moved[name] = header[name] | {"data_offsets": [len(pieces), len(pieces) + end - begin]}
        pieces += body[begin:end]
    _survives(join(moved, pieces), valid, bert)
    assert load_stored(MemorySource(join(moved, pieces)), bert, "sha256:0").manifest == original.manifest


def test_the_published_schema_is_the_manifest_that_is_read() -> None:
    """docs/artifact.schema.json is what the code accepts, not what it once accepted."""
    assert json.loads((DOCS / "artifact.schema.json").read_text()) == Manifest.model_json_schema()
