"""Text in pieces, for every kind of tokenizer."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.tokenizer import Tokenizer
from peltier_server.inference.detokenizer import Detokenizer
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers


def byte_fallback() -> Tokenizer:
    """As mT5's: pieces of words, and the 256 bytes for what they cannot spell."""
    pieces = [("<unk>", 0.0), *((f"<0x{byte:02X}>", -9.0) for byte in range(256))]
    fast = FastTokenizer(models.Unigram([*pieces, ("▁", -2.0), ("▁a", -2.0), ("bc", -2.0)], 0, byte_fallback=True))
    fast.add_special_tokens(["<unk>"])
    fast.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    fast.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    return Tokenizer(fast)


@pytest.fixture(scope="module", params=["pieces", "bytes", "fallback"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "fallback":
        return byte_fallback()
    backbone: Backbone = request.getfixturevalue({"pieces": "t5", "bytes": "roberta"}[request.param])
    return backbone.tokenizer


def pieces_of(tokenizer: Tokenizer, ids: Sequence[int], sizes: Sequence[int]) -> list[str]:
    """The text pieces, token by token or in larger steps, and at the end."""
    detokenizer, pieces, start = Detokenizer(tokenizer), [], 0
    for size in sizes:
        pieces.append(detokenizer.push(ids[start : start + size]))
        start += size
    pieces.append(detokenizer.push(ids[start:]))
    return [*pieces, detokenizer.end(tokenizer.decode(ids))]


@given(text=st.text(max_size=30), sizes=st.lists(st.integers(0, 3), max_size=40))
def test_texts_come_whole(tokenizer: Tokenizer, text: str, sizes: list[int]) -> None:
    """The pieces together are the text, and none of them ends within a character."""
    ids = tokenizer.ids(text)
    pieces = pieces_of(tokenizer, ids, sizes)
    assert "".join(pieces) == tokenizer.decode(ids)


@given(data=st.data(), sizes=st.lists(st.integers(0, 3), max_size=40))
def test_any_tokens_come_whole(tokenizer: Tokenizer, data: st.DataObject, sizes: list[int]) -> None:
    """Even those that spell no text: nothing that was sent changes afterwards."""
    ids = data.draw(st.lists(st.integers(0, tokenizer.num_entries - 1), max_size=30))
    assert "".join(pieces_of(tokenizer, ids, sizes)) == tokenizer.decode(ids)


@pytest.mark.parametrize("text", ["naïve", "日本語", "🎬 a"])
def test_a_character_waits_for_all_of_its_bytes(text: str) -> None:
    """Its bytes are tokens of their own, and no half of it is ever sent."""
    tokenizer = byte_fallback()
    ids = tokenizer.ids(text)
    pieces = pieces_of(tokenizer, ids, [1] * len(ids))
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) == tokenizer.decode(ids)


def test_ordinary_tokens_come_at_once(t5: Backbone) -> None:
    """Nothing is held back that is certain."""
    ids = t5.tokenizer.ids("the film was good")
    assert pieces_of(t5.tokenizer, ids, [1] * len(ids))[:4] == ["the", " film", " was", " good"]
