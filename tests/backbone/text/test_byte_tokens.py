"""ByT5's tokenizer, compared with the one of transformers."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.errors import BackboneError
from peltier_backbone.load import load_backbone
from peltier_backbone.text.tokenizer import Tokenizer, load_tokenizer
from transformers import ByT5Tokenizer, T5Config, T5ForConditionalGeneration

# Without </s> at the end, where transformers adds no second one.
PIECES = [
    "Grüße",
    " ",
    "日本",
    "<extra_id_0>",
    "<extra_id_124>",
    "<pad>",
    "<unk>",
    "</s>a",
    "\n",
    "😀",
    "‍",
    "\x00",
    "it's",
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random 2 x 48 ByT5 with the files that its published repositories have."""
    directory = tmp_path_factory.mktemp("byt5")
    ByT5Tokenizer().save_pretrained(directory)
    (directory / "added_tokens.json").unlink()
    sizes = {"d_model": 48, "d_kv": 12, "d_ff": 88, "num_layers": 2, "num_heads": 4, "feed_forward_proj": "gated-gelu"}
    torch.manual_seed(0)
    T5ForConditionalGeneration(T5Config(vocab_size=384, **sizes)).save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def published(directory: Path) -> ByT5Tokenizer:
    """As transformers reads it."""
    return ByT5Tokenizer.from_pretrained(directory)


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Tokenizer:
    """As we read it."""
    return load_tokenizer(directory)


# Python strips these beside a special token, as spaces; `tokenizers` does not.
SEPARATORS = "\x1c\x1d\x1e\x1f"


@given(
    texts=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters=SEPARATORS)) | st.sampled_from(PIECES), max_size=8
    )
)
def test_tokens_are_those_of_transformers(tokenizer: Tokenizer, published: ByT5Tokenizer, texts: list[str]) -> None:
    """Of any text without separators of ASCII."""
    text = "".join(texts)
    if not text.rstrip().endswith("</s>"):
        assert list(tokenizer.encode(text).ids) == published(text).input_ids


def test_pairs_are_those_of_transformers(tokenizer: Tokenizer, published: ByT5Tokenizer) -> None:
    """Each text ends with </s>."""
    assert list(tokenizer.encode("Grüße", "日本").ids) == published("Grüße", "日本").input_ids


@given(text=st.text())
def test_bytes_become_their_text_again(tokenizer: Tokenizer, text: str) -> None:
    """Without the special tokens."""
    assert tokenizer.decode(tuple(byte + 3 for byte in text.encode())) == text


def test_bytes_that_are_no_text_are_replaced(tokenizer: Tokenizer) -> None:
    """As those of the other models that write bytes."""
    assert tokenizer.decode([3 + 0xC3, 3 + ord("a")]) == "\N{REPLACEMENT CHARACTER}a"


def test_a_long_text_is_cut_as_the_whole_text_would_be(tokenizer: Tokenizer) -> None:
    """Although only its beginning is read."""
    text = "Grüße, 日本! " * 2000
    cut = tokenizer.encode(text, max_tokens=64)
    assert cut.unread
    assert cut.ids == (*(byte + 3 for byte in text.encode()[:63]), 1)


@torch.inference_mode()
def test_a_backbone_reads_bytes(directory: Path, published: ByT5Tokenizer) -> None:
    """The encoder's outputs are those of transformers."""
    backbone = load_backbone(str(directory))
    model = T5ForConditionalGeneration.from_pretrained(directory).eval()
    expected = model.encoder(torch.tensor([published("Grüße, 日本").input_ids])).last_hidden_state[0]
    states = backbone.t5.encode(backbone.pack([backbone.tokenizer.encode("Grüße, 日本")]))
    torch.testing.assert_close(states, expected, atol=1e-4, rtol=1e-4)


def test_other_classes_without_a_vocabulary_are_refused(tmp_path: Path) -> None:
    """By the files of which none is there."""
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "CanineTokenizer"}')
    with pytest.raises(BackboneError, match=r"has no readable tokenizer: none of tokenizer\.json, .*spm\.model$"):
        load_tokenizer(tmp_path)
