"""A tokenizer like T5's, trained on plain text."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import ascii_letters, digits, punctuation

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers.models import Unigram

from peltier_training.errors import TrainingError

SPECIAL = ("<pad>", "</s>", "<unk>")  # ids 0, 1, 2
NUM_SENTINELS = 100
SENTINELS = tuple(f"<extra_id_{i}>" for i in range(NUM_SENTINELS))
MAX_VOCAB = 2**16  # tokens are stored in two bytes
_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
_ALPHABET = ascii_letters + digits + punctuation
_MIN_CHARACTER_COUNT = 20  # rarer characters are encoded as bytes
MIN_VOCAB = len(SPECIAL) + len(_BYTES) + NUM_SENTINELS + 2 * len(_ALPHABET)


def train_tokenizer(texts: Sequence[str], vocab_size: int) -> Tokenizer:
    """A Unigram tokenizer of exactly `vocab_size` tokens: <pad> 0, </s> 1, <unk> 2, pieces, bytes for characters
    without a piece, and the sentinels, <extra_id_0> last. It normalises texts to NFKC and white space to one space, and
    appends </s>.

    Raises a `TrainingError` if `texts` are too small for that many pieces."""
    pieces = vocab_size - len(_BYTES) - NUM_SENTINELS
    draft = _with_rules(Tokenizer(Unigram()))
    trainer = trainers.UnigramTrainer(
        vocab_size=pieces,
        special_tokens=list(SPECIAL),
        unk_token="<unk>",  # noqa: S106 - no password
        initial_alphabet=list(_ALPHABET),
        show_progress=False,
    )
    draft.train_from_iterator(_without_rare(texts), trainer)
    found = draft.get_vocab_size()
    if found < pieces:
        raise TrainingError(
            f"the text is enough for a vocabulary of {found + vocab_size - pieces} tokens, not {vocab_size}"
        )
    vocab = [tuple(entry) for entry in json.loads(draft.to_str())["model"]["vocab"]]
    least = min(score for _, score in vocab)
    tokenizer = _with_rules(Tokenizer(Unigram([*vocab, *((b, least - 1) for b in _BYTES)], 2, byte_fallback=True)))
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in (*SPECIAL, *SENTINELS[::-1])])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, directory: Path, max_tokens: int) -> None:
    """Write tokenizer.json and tokenizer_config.json, for `tokenizers` and transformers' `AutoTokenizer`."""
    tokenizer.save(str(directory / "tokenizer.json"))
    pad, eos, unk = SPECIAL
    config = {
        # transformers' T5Tokenizer would rebuild the tokenizer without its normalization and bytes.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": pad,
        "eos_token": eos,
        "unk_token": unk,
        "additional_special_tokens": list(SENTINELS),
        "model_max_length": max_tokens,
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def _with_rules(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    return tokenizer


def _without_rare(texts: Sequence[str]) -> Iterable[str]:
    """`texts` with blanks for rare characters, which would otherwise each become a piece."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    blanks = {ord(character): " " for character, count in counts.items() if count < _MIN_CHARACTER_COUNT}
    return (text.translate(blanks) for text in texts)
