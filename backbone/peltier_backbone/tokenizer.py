"""Text to token ids, without padding."""

import threading
from pathlib import Path

from tokenizers import Tokenizer as FastTokenizer

from peltier_backbone.errors import BackboneError
from peltier_backbone.packing import Encoded


class Tokenizer:
    """A checkpoint's own tokenizer. Thread-safe: truncation is a state of the fast tokenizer, so it is done here."""

    def __init__(self, fast: FastTokenizer) -> None:
        fast.no_padding()
        fast.no_truncation()
        self._fast = fast
        self._truncating: dict[int, FastTokenizer] = {}
        self._lock = threading.Lock()

    def encode(self, text: str, pair: str | None = None, *, max_tokens: int | None = None) -> Encoded:
        """Token ids and types of a text or a pair, with special tokens; the longest part is cut to `max_tokens`."""
        fast = self._fast if max_tokens is None else self._truncated(max_tokens)
        encoding = fast.encode(text, pair)
        return Encoded(tuple(encoding.ids), tuple(encoding.type_ids))

    def _truncated(self, max_tokens: int) -> FastTokenizer:
        with self._lock:
            if max_tokens not in self._truncating:
                copy = FastTokenizer.from_str(self._fast.to_str())
                copy.enable_truncation(max_tokens, strategy="longest_first")
                self._truncating[max_tokens] = copy
            return self._truncating[max_tokens]


def load_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer in `directory`: its `tokenizer.json`, else converted from the slow files by transformers."""
    path = directory / "tokenizer.json"
    try:
        if path.is_file():
            return Tokenizer(FastTokenizer.from_file(str(path)))
        from transformers import AutoTokenizer

        return Tokenizer(AutoTokenizer.from_pretrained(directory, local_files_only=True).backend_tokenizer)
    except Exception as error:  # tokenizers raises bare Exception, transformers many kinds
        raise BackboneError(f"{directory} has no readable tokenizer: {error}") from error
