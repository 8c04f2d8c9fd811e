"""Builds hostile files from one valid artifact; the same artifact gives the same files.

`python tests/corpus/build.py VALID.safetensors DIRECTORY` writes them. Nothing here imports more than the standard
library, so that the reader under test is not also the writer.
"""

import gzip
import io
import json
import math
import pickle
import random
import struct
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]
PAGE = 4096
NUM_FLIPS = 400
_SEED = 5
_BOMB_BYTES = 16 * 1024 * 1024


class Case(NamedTuple):
    """One file; its name says what is wrong with it."""

    name: str
    data: bytes


def split(data: bytes) -> tuple[Json, bytes]:
    """The header and the tensors' bytes."""
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join(header: object, body: bytes = b"") -> bytes:
    """A file with this header, given as JSON or as text."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def with_manifest(data: bytes, change: Callable[[Json], object] | str) -> bytes:
    """The file with its manifest changed in place, or replaced by a text."""
    header, body = split(data)
    manifest = json.loads(header["__metadata__"]["manifest"])
    if not isinstance(change, str):
        change(manifest)
    header["__metadata__"]["manifest"] = change if isinstance(change, str) else json.dumps(manifest)
    return join(header, body)


def refused(valid: bytes) -> Iterator[Case]:
    """Every file that a server must refuse for any weights."""
    for family in (_strangers, _bombs, _headers, _offsets, _shapes, _tables, _values, _manifests, _truncated):
        for name, data in family(valid):
            yield Case(f"{family.__name__[1:]}-{name}", data)


# What reads well: only the answers to the golden examples betray it.
PROVED = frozenset(
    {
        "values-all-zero",
        "values-all-huge",
        "manifests-golden-of-texts",
        "manifests-golden-huge",
        "manifests-golden-wrong",
    }
)


def denormal(valid: bytes) -> bytes:
    """The file with its four smallest values so small that they have no leading bit; its answers stay the same."""
    (length,) = struct.unpack("<Q", valid[:8])
    values = list(struct.unpack(f"<{(len(valid) - 8 - length) // 4}f", valid[8 + length :]))
    for place in sorted(range(len(values)), key=lambda place: abs(values[place]))[:4]:
        values[place] = math.copysign(1e-40, values[place])
    return valid[: 8 + length] + struct.pack(f"<{len(values)}f", *values)


def flips(valid: bytes) -> Iterator[Case]:
    """Single bits, half of them in the header: some change nothing, some no more than rounding does."""
    (length,) = struct.unpack("<Q", valid[:8])
    chance, weights = random.Random(_SEED), 8 + length
    bits = {"header": range(8 * weights), "tensor": range(8 * weights, 8 * len(valid))}
    for where, among in bits.items():
        for chosen in chance.sample(among, NUM_FLIPS // 2):
            place, bit = divmod(chosen, 8)
            broken = bytearray(valid)
            broken[place] ^= 1 << bit
            yield Case(f"flip-{where}-{place}-{bit}", bytes(broken))


Named = Iterator[tuple[str, bytes]]


class _Trap:
    """Creates a file in the working directory when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return Path.touch, (Path("unpickled"),)  # type: ignore[return-value]


def _strangers(valid: bytes) -> Named:
    trap = pickle.dumps(_Trap(), protocol=4)
    yield "empty", b""
    yield "pickle", trap
    for protocol in range(6):
        yield f"pickle-{protocol}", pickle.dumps(_Trap(), protocol=protocol)
    yield "checkpoint", _zip({"archive/data.pkl": trap, "archive/version": b"3\n"})
    yield "pickle-in-manifest", with_manifest(valid, trap.decode("latin-1"))
    yield "pickle-in-metadata", join({"__metadata__": {"format": "pt", "pickle": trap.decode("latin-1")}})
    yield "onnx", b"\x08\x07\x12\x07pytorch" * 100
    yield "zip-behind", valid + _zip({"archive/data.pkl": trap})
    yield "byte-behind", valid + b"\0"
    yield "twice", valid + valid
    yield "gzipped", gzip.compress(valid, mtime=0)
    yield "zipped", _zip({"demo.safetensors": valid})
    yield "byte-order-mark", b"\xef\xbb\xbf" + valid


def _bombs(valid: bytes) -> Named:
    zeros = bytes(_BOMB_BYTES)
    zipped, gzipped = _zip({"a": zeros}), gzip.compress(zeros, mtime=0)
    yield "zip", zipped
    yield "zip-in-zip", _zip({"a.zip": zipped})
    yield "gzip", gzipped
    yield "gzip-in-gzip", gzip.compress(gzipped, mtime=0)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        entry = tarfile.TarInfo("../../etc/passwd")
        entry.size = len(zeros)
        tar.addfile(entry, io.BytesIO(zeros))
    # The header of gzip holds the time.
    yield "tar", buffer.getvalue()[:4] + bytes(4) + buffer.getvalue()[8:]


def _headers(valid: bytes) -> Named:
    header, body = split(valid)
    text = json.dumps(header)
    for length in (0, 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, len(valid), len(valid) - 7, 100_000_000):
        yield f"length-{length}", struct.pack("<Q", length) + valid[8:]
    yield "spaces-of-9-MB", join(text.encode() + b" " * 9_000_000, body)
    yield "not-utf8", join(b"\xff\xfe" + text.encode(), body)
    yield "utf16", join(text.encode("utf-16"), body)
    yield "surrogate-name", join(text.replace('"head.bias"', '"head.bias\\ud800"').encode(), body)
    yield "nul", join(text.encode() + b"\0", body)
    for name, literal in {"array": "[]", "null": "null", "number": "1e400", "nan": "NaN", "string": '"a"'}.items():
        yield name, join(literal.encode(), body)
    for literal in ("NaN", "Infinity", "-Infinity"):
        yield f"holds-{literal}", join(text[:-1].encode() + f', "x": {literal}}}'.encode(), body)
    yield "number-of-100000-digits", join(text[:-1].encode() + b', "x": ' + b"9" * 100_000 + b"}", body)
    yield "name-twice", join(text[:-1].encode() + b', "head.bias": ' + json.dumps(header["head.bias"]).encode() + b"}")
    yield "metadata-twice", join(text[:-1].encode() + b', "__metadata__": {"format": "peltier"}}', body)
    for opening, closing in (("[", "]"), ('{"a":', "}"), ("[", ""), ('{"a":', "")):
        deep = opening * 100_000 + "1" + closing * 100_000
        yield f"deep-{opening[0]}{closing}", join(text[:-1].encode() + f', "x": {deep}}}'.encode(), body)
    for depth in (10, 400, 900):
        deep = json.dumps("[" * depth + "]" * depth).replace('"', "")
        entry = f', "x": {{"dtype": {deep}, "shape": [1], "data_offsets": {deep}}}}}'
        yield f"deep-dtype-{depth}", join(text[:-1].encode() + entry.encode(), body)
        known = text.replace('"dtype": "F32"', f'"dtype": {deep}', 1)
        yield f"deep-known-dtype-{depth}", join(known.encode(), body)
    yield "empty-lists", join(b'{"x": [' + b"[]," * 1_000_000 + b"1]}", body)
    yield "empty-lists-below-the-limit", join(text[:-1].encode() + b', "x": [' + b"[]," * 60_000 + b"1]}", body)
    yield "open-strings", join(b'{"' + b'\\"' * 1_000_000, body)
    yield "quotes", join(b'"' * 2_000_001, body)


def _offsets(valid: bytes) -> Named:
    header, body = split(valid)
    names = [name for name in header if name != "__metadata__"]
    first, second = names[:2]
    begin, end = header[first]["data_offsets"]

    def put(value: object, name: str = first) -> bytes:
        return join({**header, name: {**header[name], "data_offsets": value}}, body)

    yield "overlapping", put([begin, end], second)
    yield (
        "all-the-same",
        join({n: e if n == "__metadata__" else e | {"data_offsets": [0, 4]} for n, e in header.items()}),
    )
    yield "gap", join(header, b"\0" * 8 + body)
    yield "shifted", put([begin + 4, end + 4])
    wrong = {"reversed": [end, begin], "negative": [-4, end], "behind": [begin, len(body) + 4], "floats": [0.0, 4.0]}
    wrong |= {f"2-to-{bits}": [2**bits, 2**bits + 8] for bits in (31, 32, 62, 63, 64, 200)}
    wrong |= {
        "wrapping": [2**64 - 4, 4],
        "one": [0],
        "three": [0, 4, 8],
        "null": None,
        "text": "0:4",
        "bool": [False, 4],
    }
    for name, value in wrong.items():
        yield name, put(value)
    entry = {key: value for key, value in header[first].items() if key != "data_offsets"}
    yield "absent", join({**header, first: entry}, body)


def _shapes(valid: bytes) -> Named:
    header, body = split(valid)
    name = next(name for name in header if name != "__metadata__")
    shape = header[name]["shape"]
    wrong: Json = {f"2-to-{bits}": [2**bits] for bits in (31, 32, 62, 63, 64, 1000)}
    wrong |= {
        "overflow": [2**32, 2**32],
        "overflow-to-fit": [2**62, 4, *shape],
        "negative": [-1],
        "none": [],
        "zero": [0],
    }
    wrong |= {"zero-dimension": [*shape, 0], "more-dimensions": [1] * 100_000, "turned": [*shape[::-1], 1], "text": "x"}
    wrong |= {"floats": [float(size) for size in shape], "bools": [True], "nested": [[1]], "null": None, "object": {}}
    for what, value in wrong.items():
        yield what, join({**header, name: {**header[name], "shape": value}}, body)


def _tables(valid: bytes) -> Named:
    header, body = split(valid)
    names = [name for name in header if name != "__metadata__"]
    entry = header[names[0]]
    for dtype in (
        "F8_E4M3",
        "F8_E5M2",
        "BOOL",
        "U8",
        "I8",
        "I64",
        "U64",
        "F16",
        "BF16",
        "F64",
        "C64",
        "X" * 100_000,
        32,
    ):
        yield f"dtype-{str(dtype)[:8]}", join({**header, names[0]: {**entry, "dtype": dtype}}, body)
    yield "no-tensors", join({"__metadata__": header["__metadata__"]})
    yield "missing", join({name: value for name, value in header.items() if name != names[0]}, body)
    yield "extra", join({**header, "head.extra": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}, body)
    yield "extra-key", join({**header, names[0]: {**entry, "code": "__import__('os')"}}, body)
    yield "not-an-entry", join({**header, names[0]: 7}, body)
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    yield "of-100000", join({**header, **{f"t{number}": empty for number in range(100_000)}})
    yield "of-9000", join({**header, **{f"t{number}": empty for number in range(9_000)}}, body)
    for name in (
        "../../etc/passwd",
        "head.bias\0",
        "head.bias ",
        "HEAD.BIAS",
        "h\u0435ad.bias",
        "\x1b[2J\n\r",
        "\u202egpj",
        "",
    ):
        renamed = {(name if key == "head.bias" else key): value for key, value in header.items()}
        yield f"name-{name.encode().hex()[:24]}", join(renamed, body)
    yield "name-of-1-MB", join({**header, "x" * 1_000_000: empty}, body)


def _values(valid: bytes) -> Named:
    (length,) = struct.unpack("<Q", valid[:8])
    chance = random.Random(_SEED)
    for name, value in {"nan": float("nan"), "infinity": float("inf"), "minus-infinity": float("-inf")}.items():
        for place in (8 + length, len(valid) - 4, 8 + length + 4 * chance.randrange((len(valid) - 8 - length) // 4)):
            yield f"{name}-at-{place}", valid[:place] + struct.pack("<f", value) + valid[place + 4 :]
    yield "signalling-nan", valid[:-4] + b"\x01\x00\xa0\x7f"
    yield "all-ones", valid[: 8 + length] + b"\xff" * (len(valid) - 8 - length)
    yield "all-zero", valid[: 8 + length] + bytes(len(valid) - 8 - length)
    yield "all-huge", valid[: 8 + length] + struct.pack("<f", 3e38) * ((len(valid) - 8 - length) // 4)


def _set(*path: str | int, to: object) -> Callable[[Json], None]:
    def change(manifest: Json) -> None:
        target: Any = manifest
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = to

    return change


def _manifests(valid: bytes) -> Named:
    text = split(valid)[0]["__metadata__"]["manifest"]
    yield "not-json", with_manifest(valid, "manifest")
    yield "empty", with_manifest(valid, "")
    yield "of-nul", with_manifest(valid, "\0" * 1000)
    yield "array", with_manifest(valid, "[]")
    yield "truncated", with_manifest(valid, text[: len(text) // 2])
    yield "doubled", with_manifest(valid, text + text)
    for opening, closing in (("[", "]"), ('{"a":', "}"), ("[", "")):
        deep = opening * 100_000 + "1" + closing * 100_000
        yield (
            f"deep-{opening[0]}{closing}",
            with_manifest(valid, text.replace('"data": {}', f'"data": {{"x": {deep}}}')),
        )
        yield f"deep-alone-{opening[0]}{closing}", with_manifest(valid, deep)
    for name in _bad_names():
        yield f"name-{name.encode().hex()[:24]}-{len(name)}", with_manifest(valid, _set("name", to=name))
        yield f"label-{name.encode().hex()[:24]}-{len(name)}", with_manifest(valid, _labels(name))
    for unseen in ("\0", "\n", "\r", "\x1b[2J", "\x85", "\u2028", "\u202e", "\u2066"):
        yield f"unseen-label-{unseen.encode().hex()}", with_manifest(valid, _set("task", "labels", 0, to=f"a{unseen}"))
        yield f"unseen-preset-{unseen.encode().hex()}", with_manifest(valid, _set("preset", to=f"a{unseen}"))
        yield f"unseen-backbone-{unseen.encode().hex()}", with_manifest(valid, _set("backbone", "name", to=unseen))
    yield "surrogate", with_manifest(valid, text.replace('"demo"', '"\\ud800"'))
    yield (
        "metadata-is-surrogate",
        join(json.dumps(split(valid)[0]).encode().replace(b'"manifest": "{', b'"manifest": "\\ud800{')),
    )
    for what, change in _bad_fields().items():
        yield what, with_manifest(valid, change)


def _bad_names() -> tuple[str, ...]:
    return (
        "../../etc/passwd", "..", "a/b", "a\\b", "C:\\a", "a\0b", "a\n", "\x1b[31mred", "a\u202eb", "\u0430dmin",
        "a\u200b", "\uff44\uff45\uff4d\uff4f", "demo ", "Demo", "a@1", "a:b", "%2e%2e", "a" * 64, "a" * 1_000_000,
        "'; DROP TABLE versions; --",
    )  # fmt: skip


def _labels(name: str) -> Callable[[Json], None]:
    """Labels may be any short text; the head then has one output too few."""
    return lambda manifest: manifest["task"]["labels"].append(name)


def _bad_fields() -> dict[str, Callable[[Json], None]]:
    empty: list[Json] = []
    many = {f"m{number}": "x" for number in range(40_000)}
    return {
        "labels-of-thousands": _set("task", "labels", to=[f"label {number}" for number in range(4_097)]),
        "labels-of-2-MB": _set("task", "labels", to=["a" * 1_000_000, "b" * 1_000_000]),
        "labels-the-same": _set("task", "labels", to=["a", "a"]),
        "preset-of-1-MB": _set("preset", to="p" * 1_000_000),
        "unknown": _set("surprise", to=True),
        "unknown-of-1-MB": _set("s" * 1_000_000, to="t" * 1_000_000),
        "unknown-thousands": lambda manifest: manifest.update(many),
        "metrics-of-text": _set("training", "metrics", to=many),
        "metrics-of-lists": _set("training", "metrics", to=dict.fromkeys(many, empty)),
        "golden-none": _set("golden", to=[]),
        "golden-65": lambda manifest: _set("golden", to=manifest["golden"][:1] * 65)(manifest),
        "golden-of-lists": _set("golden", 0, "output", to=[empty] * 60_000),
        "golden-of-nulls": _set("golden", 0, "output", to=[None] * 120_000),
        "golden-of-a-million": _set("golden", 0, "output", to=[0] * 1_000_000),
        "golden-of-texts": lambda manifest: [one.update(input="a film " * 100_000) for one in manifest["golden"]],
        "golden-1e400": _set("golden", 0, "output", to=[1e300, 10**400]),
        "golden-huge": _set("golden", 0, "output", to=[1e300, -1e300]),
        "golden-wrong": _set("golden", 0, "output", to=[1000.0, -1000.0]),
        "golden-number": _set("golden", 0, "input", to=7),
        "golden-of-surrogates": _set("golden", 0, "input", to="\ud800"),
        "parts-of-thousands": lambda manifest: _set("parts", to=manifest["parts"] * 9_000)(manifest),
        "parts-of-nothing": _set("parts", to=[{}] * 8),
        "kind-of-control-characters": _set("parts", 0, "kind", to="dense" + "\x7f" * 400),
        "kind-of-1-MB": _set("parts", 0, "kind", to="k" * 1_000_000),
        "outputs-2-to-63": _set("parts", -1, "outputs", to=2**63),
        "outputs-negative": _set("parts", -1, "outputs", to=-1),
        "max-length-2-to-63": _set("task", "max_length", to=2**63),
        "layers-2-to-63": _set("backbone", "num_layers", to=2**63),
        "version-2": _set("format_version", to=2),
        "version-true": _set("format_version", to="1"),
        "fingerprint": _set("backbone", "fingerprint", to="sha256:" + "0" * 64),
        "template": _set("task", "template", to="{text.__class__.__init__.__globals__}"),
        "data-of-lists": _set("training", "data", to={"x": [empty] * 1_000_000}),
    }


def _truncated(valid: bytes) -> Named:
    for length in range(PAGE, len(valid), PAGE):
        yield str(length), valid[:length]
    for length in (1, 7, 8, 9, len(valid) - 4, len(valid) - 1):
        yield str(length), valid[:length]


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def main(source: Path, target: Path) -> None:
    """Writes every file; their names say what they are."""
    target.mkdir(parents=True, exist_ok=True)
    valid = source.read_bytes()
    for number, case in enumerate((*refused(valid), *flips(valid))):
        safe = "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in case.name)
        (target / f"{number:04}-{safe}").write_bytes(case.data)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
