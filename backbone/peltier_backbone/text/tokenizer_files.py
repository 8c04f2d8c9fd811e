"""The files of a checkpoint that hold its tokenizer."""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenizers import Regex, normalizers
from tokenizers import Tokenizer as FastTokenizer

from peltier_backbone.errors import BackboneError
from peltier_backbone.text.byte_tokens import BYTE_TOKENIZER_FILE, has_byte_tokenizer, read_byte_tokenizer

TOKENIZER_FILE = "tokenizer.json"
_SENTENCEPIECE_FILES = ("spiece.model", "sentencepiece.bpe.model", "spm.model")
_FILES = (TOKENIZER_FILE, "vocab.txt", "vocab.json", *_SENTENCEPIECE_FILES)
# Packages by their modules: what converts any file but tokenizer.json, and what SentencePiece models need beside it.
_CONVERTER = {"transformers": "transformers"}
_SENTENCEPIECE_PACKAGES = {"sentencepiece": "sentencepiece", "google.protobuf": "protobuf"}


def read_tokenizer(directory: Path) -> FastTokenizer:
    """The tokenizer of the checkpoint in `directory`: its `tokenizer.json`, else its vocabulary or SentencePiece model
    as transformers converts it, else the bytes of ByT5. Raises a `BackboneError`."""
    found = [name for name in _FILES if (directory / name).is_file()]
    if len(found) > 1 and not (directory / "merges.txt").is_file():
        found = [name for name in found if name != "vocab.json"]  # alone it is no tokenizer
    if not found and has_byte_tokenizer(directory):
        found = [BYTE_TOKENIZER_FILE]
    if not found:
        # transformers would make up an empty vocabulary here.
        raise BackboneError(f"{directory} has no readable tokenizer: none of {', '.join(_FILES)}")
    if missing := _missing_packages(found[0]):
        raise BackboneError(
            f"{directory} has no readable tokenizer: {found[0]} alone needs {' and '.join(missing)}, which "
            'pip install "peltier[convert]" installs; `peltier convert` writes a tokenizer.json from it'
        )
    try:
        if found[0] == TOKENIZER_FILE:
            return _with_all_tokens(FastTokenizer.from_file(str(directory / TOKENIZER_FILE)), directory)
        if found[0] == BYTE_TOKENIZER_FILE:
            return read_byte_tokenizer(directory)
        return _convert(directory, found)
    except Exception as error:  # tokenizers raises bare Exception, transformers many kinds
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BackboneError(f"{directory} has no readable tokenizer: {found[0]}: {reason}") from error


def write_tokenizer(directory: Path, target: Path) -> None:
    """Write the tokenizer of the checkpoint in `directory` as `tokenizer.json` to the directory `target`."""
    read_tokenizer(directory).save(str(target / TOKENIZER_FILE))


def _with_all_tokens(fast: FastTokenizer, directory: Path) -> FastTokenizer:
    """The tokenizer, if it has every token that a user added by a release of transformers that wrote other files than
    `tokenizer.json`. Releases disagree on whether those are read beside it, and by which number."""
    known = fast.get_vocab(with_added_tokens=True)
    for name, tokens in _added_tokens(directory):
        if lacking := [token for token in tokens if token not in known]:
            raise ValueError(
                f"it lacks {len(lacking)} added tokens of {name}, such as {lacking[0]!r}; save the tokenizer anew with "
                "save_pretrained, or delete the file that is out of date"
            )
    return fast


def _added_tokens(directory: Path) -> Iterator[tuple[str, list[str]]]:
    """The files that list added tokens by their numbers, with these tokens."""
    if isinstance(own := _read_json(directory / "added_tokens.json"), dict):
        yield "added_tokens.json", list(own)
    config = _read_json(directory / "tokenizer_config.json")
    if isinstance(config, dict) and isinstance(own := config.get("added_tokens_decoder"), dict):
        yield "tokenizer_config.json", [str(token["content"]) for token in own.values()]


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError as error:
        raise ValueError(f"{path.name} beside it is no JSON: {error}") from None


def _convert(directory: Path, found: list[str]) -> FastTokenizer:
    """The tokenizer of one of the files `found`, as transformers converts it."""
    from transformers import AutoTokenizer, T5Tokenizer

    if found[0] == "vocab.json" and not (directory / "merges.txt").is_file():
        raise ValueError("it needs merges.txt beside it")
    # Of the T5s, AutoTokenizer does not find umT5's.
    kind = T5Tokenizer if found[0] == "spiece.model" else AutoTokenizer
    converted = kind.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    file = _read_file(converted, found)
    fast: FastTokenizer = converted.backend_tokenizer
    if file == "spm.model":
        fast = with_model_normalizer(fast, directory / file, lower=converted.do_lower_case)
    return with_byte_fallback(fast)


def _read_file(converted: Any, found: list[str]) -> str:
    """The file that transformers read. It makes up a vocabulary if the class needs another file."""
    kind, files = type(converted).__name__, converted.vocab_files_names.values()
    if not hasattr(converted, "backend_tokenizer"):
        raise ValueError(f"{kind} makes tokens by Python code, which has no {TOKENIZER_FILE}")
    read = next((name for name in found if name in files), None)
    if read is None:
        raise ValueError(
            f"{kind}, the class that transformers takes, does not read this file; tokenizer_config.json needs the "
            "right tokenizer_class"
        )
    return read


def _missing_packages(file: str) -> list[str]:
    """The packages that are missing to read the tokenizer in `file`."""
    needed = {} if file == TOKENIZER_FILE else _CONVERTER
    if file in _SENTENCEPIECE_FILES:
        needed = _CONVERTER | _SENTENCEPIECE_PACKAGES
    return [package for module, package in needed.items() if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that the module is in
        return False


_BYTE_PIECES = {f"<0x{byte:02X}>" for byte in range(256)}


def with_byte_fallback(fast: FastTokenizer) -> FastTokenizer:
    """A converted tokenizer that spells characters without a piece by bytes, if its vocabulary has a piece for each
    byte. SentencePiece does so; the conversion in transformers makes them unknown tokens."""
    if not fast.get_vocab().keys() >= _BYTE_PIECES:
        return fast
    state = json.loads(fast.to_str())
    if state["model"].get("byte_fallback") is not False:
        return fast
    state["model"]["byte_fallback"] = True
    state["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, state["decoder"]]}
    return FastTokenizer.from_str(json.dumps(state))


def with_model_normalizer(fast: FastTokenizer, model: Path, *, lower: bool) -> FastTokenizer:
    """DeBERTa's converted tokenizer with the table of characters of its SentencePiece model, and SentencePiece's rule
    for spaces: one between words, none around the text. `lower` makes letters small first.

    Published models have NMT NFKC, by which `ﬁ` is `fi` and a no-break space is a space. transformers 4 keeps the
    table; transformers 5 takes NFC in its place.
    """
    from transformers.convert_slow_tokenizer import SentencePieceExtractor

    table = SentencePieceExtractor(str(model)).proto.normalizer_spec.precompiled_charsmap
    first: list[normalizers.Normalizer] = [normalizers.Lowercase()] if lower else []
    first += [normalizers.Precompiled(table)] if table else []
    fast.normalizer = normalizers.Sequence([*first, normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()])
    return fast
