"""Small tokenizers of the published kinds, for random backbones. They know the words of `TEXTS`, and letters."""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

TEXTS = ("a good film", "the plot was not very good , and the actor is dull", "bad")
_WORDS = sorted({word for text in TEXTS for word in text.split()} - {","})
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'-"


def word_piece() -> Tokenizer:
    """As BERT's, in lower case."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS, *_LETTERS, *(f"##{c}" for c in _LETTERS)]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def mpnet_word_piece() -> Tokenizer:
    """As MPNet's: BERT's pieces with RoBERTa's special tokens."""
    pieces = ["<s>", "<pad>", "</s>", "[UNK]", *_WORDS, *_LETTERS, *(f"##{c}" for c in _LETTERS), "<mask>"]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return tokenizer


def byte_level() -> Tokenizer:
    """As RoBERTa's, with a token for each byte."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({piece: index for index, piece in enumerate(pieces)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def unigram() -> Tokenizer:
    """As T5's: SentencePiece's pieces with `</s>` behind each text."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -4.0)]
    pieces += [(f"▁{word}", -3.0) for word in _WORDS if len(word) > 1] + [(letter, -6.0) for letter in _LETTERS]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=False))
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return tokenizer


def deberta_unigram() -> Tokenizer:
    """As DeBERTa-v3's: SentencePiece's pieces with BERT's special tokens."""
    special = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
    pieces = [*((token, 0.0) for token in special), ("▁", -4.0)]
    pieces += [(f"▁{word}", -3.0) for word in _WORDS if len(word) > 1] + [(letter, -6.0) for letter in _LETTERS]
    tokenizer = Tokenizer(models.Unigram([*pieces, ("[MASK]", 0.0)], unk_id=3, byte_fallback=False))
    tokenizer.add_special_tokens([*special, "[MASK]"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    return tokenizer


def fairseq_unigram() -> Tokenizer:
    """As XLM-RoBERTa's: SentencePiece's pieces behind four special tokens, and `<mask>` at the end."""
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -4.0)]
    pieces += [(f"▁{word}", -3.0) for word in _WORDS if len(word) > 1] + [(letter, -6.0) for letter in _LETTERS]
    tokenizer = Tokenizer(models.Unigram([*pieces, ("<mask>", 0.0)], unk_id=3, byte_fallback=False))
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=False)
    return tokenizer
