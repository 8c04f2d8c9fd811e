"""Rules of SentencePiece models that their conversion in transformers leaves out."""

import json
from pathlib import Path

from tokenizers import Regex, normalizers
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
