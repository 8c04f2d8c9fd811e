"""Bytes as tokens for characters that a SentencePiece model has no piece for, as mT5's has."""

import json

from tokenizers import Tokenizer as FastTokenizer

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
