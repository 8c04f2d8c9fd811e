"""Small tokenizers of each family, trained here, in the files and with the fields of the published repositories."""

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TRAINED_ON = [
    "a good film",
    "the plot was not very good",
    "le chat est très mignon",
    "東京は大きい",
    "Öl und Brot",
    "It's  GOOD,\n\nisn't it? 12345",
]
# How Llama 3 divides a text into words.
_LLAMA_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_sentencepiece(
    path: Path, texts: Sequence[str] = TRAINED_ON, **options: object
) -> sentencepiece.SentencePieceProcessor:
    """Write a SentencePiece model to `path`, by default a Unigram model with NMT NFKC; returns what reads it."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*texts] * 9), model_writer=file, hard_vocab_limit=False, minloglevel=2, **options
    )
    path.write_bytes(file.getvalue())
    return sentencepiece.SentencePieceProcessor(str(path))


def train_deberta(path: Path, *, vocab_size: int = 90, **options: object) -> sentencepiece.SentencePieceProcessor:
    """The same with DeBERTa's special tokens, [PAD] 0 to [UNK] 3. [MASK] is no piece of it."""
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
    names = {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"}
    return train_sentencepiece(path, vocab_size=vocab_size, **ids, **names, **options)


def _bert(directory: Path) -> None:
    """nomic-embed-text-v1.5: BERT's tokenizer, with types."""
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    fast = _word_piece(special)
    fast.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=_ids(fast, special)
    )
    _save(fast, directory, "nomic_bert", _names(*special[2:], "[PAD]", "[UNK]"), tokenizer_class="BertTokenizer")
    _save_vocabulary(fast, directory)


def _mpnet(directory: Path) -> None:
    """all-mpnet-base-v2, whose file truncates and pads. BERT's [UNK] is a piece of the vocabulary."""
    fast = _word_piece(("<s>", "<pad>", "</s>", "<unk>", "[UNK]"))
    fast.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    fast.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    fast.enable_truncation(8)
    fast.enable_padding(pad_id=1, pad_token="<pad>", length=8)
    names = _names("<s>", "</s>", "<mask>", "<pad>", "[UNK]") | {"bos_token": "<s>", "eos_token": "</s>"}
    _save(fast, directory, "mpnet", names, tokenizer_class="MPNetTokenizer", model_max_length=512)
    _save_vocabulary(fast, directory)


def _vocabulary(family: str, special: Iterable[str], **config: object) -> Callable[[Path], None]:
    """Only `vocab.txt`, as in the first repositories of a family."""

    def write(directory: Path) -> None:
        _save_vocabulary(_word_piece(special), directory)
        _write_json(directory, config=_model(family), **({"tokenizer_config": config} if config else {}))

    return write


def _roberta(directory: Path) -> None:
    """Only `vocab.json` and `merges.txt`."""
    fast = _byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    fast.model.save(str(directory))
    _write_json(directory, config=_model("roberta"))


def _modernbert(directory: Path) -> None:
    """ModernBERT-base: byte-level BPE after NFC. Runs of spaces are tokens of their own."""
    fast = _byte_level(["[UNK]", "[CLS]", "[SEP]", "[PAD]"])
    fast.normalizer = normalizers.NFC()
    fast.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    fast.add_tokens([AddedToken(token, normalized=True) for token in ("|||IP_ADDRESS|||", "   ", "  ")])
    fast.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=_ids(fast, ("[CLS]", "[SEP]"))
    )
    names = _names("[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]")
    _save(fast, directory, "modernbert", names, tokenizer_class="PreTrainedTokenizerFast")


def _mmbert(directory: Path) -> None:
    """mmBERT-base: Gemma's BPE, whose spaces are letters, with a piece for each byte."""
    special = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
    draft = Tokenizer(models.BPE())
    draft.normalizer = normalizers.Replace(" ", "▁")
    draft.train_from_iterator(TRAINED_ON * 9, trainers.BpeTrainer(vocab_size=200, special_tokens=list(special)))
    model = json.loads(draft.to_str())["model"]
    pieces = dict.fromkeys((*model["vocab"], *(f"<0x{byte:02X}>" for byte in range(256))))
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    merges = [tuple(merge) for merge in model["merges"]]
    fast = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    fast.normalizer = normalizers.Replace(" ", "▁")
    fast.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    fast.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    fast.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    fast.add_tokens([AddedToken(token, normalized=False) for token in ("\n\n", "▁▁")])
    fast.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", pair="<bos> $A <eos> $B <eos>", special_tokens=_ids(fast, ("<bos>", "<eos>"))
    )
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "mask_token": "<mask>", "pad_token": "<pad>"}
    # transformers reads neither of these fields beside a tokenizer.json.
    ends = {"add_bos_token": True, "add_eos_token": False}
    _save(fast, directory, "modernbert", {**names, **ends}, tokenizer_class="GemmaTokenizerFast")


def _eurobert(directory: Path) -> None:
    """EuroBERT-210m: Llama 3's byte-level BPE."""
    ends = ("<|begin_of_text|>", "<|end_of_text|>")
    fast = _byte_level([], ignore_merges=True)
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_LLAMA_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    fast.add_special_tokens([AddedToken(token, normalized=False) for token in (*ends, "<|mask|>")])
    template = processors.TemplateProcessing(
        single=f"{ends[0]}:0 $A:0 {ends[1]}:0",
        pair=f"{ends[0]}:0 $A:0 {ends[1]}:0 $B:1 {ends[1]}:1",
        special_tokens=_ids(fast, ends),
    )
    fast.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    names = {"bos_token": ends[0], "eos_token": ends[1], "pad_token": ends[1], "mask_token": "<|mask|>"}
    _save(fast, directory, "eurobert", names, tokenizer_class="PreTrainedTokenizerFast")


def _xlm_roberta(family: str, *, saved_anew: bool) -> Callable[[Path], None]:
    """XLM-RoBERTa's Unigram pieces behind fairseq's tokens, as most multilingual encoders have them. Files that newer
    releases of transformers saved treat spaces in the normalizer in place of the pre-tokenizer."""

    def write(directory: Path) -> None:
        train_sentencepiece(directory / "sentencepiece.bpe.model", vocab_size=90)
        proto = ModelProto.FromString((directory / "sentencepiece.bpe.model").read_bytes())
        special = ("<s>", "<pad>", "</s>", "<unk>")
        pieces = [*((token, 0.0) for token in special), *((one.piece, one.score) for one in proto.pieces[3:])]
        fast = Tokenizer(models.Unigram([*pieces, ("<mask>", 0.0)], 3, byte_fallback=False))
        _read_spaces(fast, proto.normalizer_spec.precompiled_charsmap, saved_anew)
        fast.decoder = decoders.Metaspace()
        fast.add_special_tokens([AddedToken(token, normalized=False) for token in special])
        fast.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
        fast.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=_ids(fast, ("<s>", "</s>"))
        )
        names = _names("<s>", "</s>", "<mask>", "<pad>", "<unk>") | {"bos_token": "<s>", "eos_token": "</s>"}
        _save(fast, directory, family, names, tokenizer_class="XLMRobertaTokenizer")

    return write


def write_deberta(directory: Path, *, with_json: bool, **options: object) -> sentencepiece.SentencePieceProcessor:
    """deberta-v3-base: `spm.model` with two fields of configuration; `with_json` as transformers 4 saves a model
    tuned from it. Returns what reads the model."""
    read = train_deberta(directory / "spm.model", **options)
    _write_json(directory, config=_model("deberta-v2"), tokenizer_config={"do_lower_case": False, "vocab_type": "spm"})
    if with_json:
        _save_deberta(directory)
    return read


def _save_deberta(directory: Path) -> None:
    proto = ModelProto.FromString((directory / "spm.model").read_bytes())
    fast = Tokenizer(models.Unigram([(one.piece, one.score) for one in proto.pieces], 3, byte_fallback=False))
    table = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    fast.normalizer = normalizers.Sequence([normalizers.Strip(), table, normalizers.Replace(Regex(" {2,}"), " ")])
    fast.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace()])
    special = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")
    fast.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    fast.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=_ids(fast, ("[CLS]", "[SEP]")),
    )
    names = _names("[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]") | {"bos_token": "[CLS]", "eos_token": "[SEP]"}
    _save(fast, directory, "deberta-v2", names, tokenizer_class="DebertaV2Tokenizer", split_by_punct=False)


_BERT_VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PUBLISHED: Mapping[str, Callable[[Path], None]] = {
    "bert, vocab.txt": _vocabulary("bert", _BERT_VOCABULARY),
    "bert-cased, vocab.txt": _vocabulary("bert", _BERT_VOCABULARY, do_lower_case=False),
    "nomic-embed-text-v1.5": _bert,
    "all-mpnet-base-v2": _mpnet,
    "mpnet, vocab.txt": _vocabulary("mpnet", ("<s>", "<pad>", "</s>", "[UNK]", "<mask>")),
    "roberta, vocab.json": _roberta,
    "ModernBERT-base": _modernbert,
    "mmBERT-base": _mmbert,
    "EuroBERT-210m": _eurobert,
    "jina-embeddings-v3": _xlm_roberta("jina_embeddings_v3", saved_anew=False),
    "snowflake-arctic-embed-m-v2.0": _xlm_roberta("gte", saved_anew=True),
}


def _word_piece(special: Iterable[str]) -> Tokenizer:
    fast = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    fast.normalizer = normalizers.BertNormalizer(lowercase=True)
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.decoder = decoders.WordPiece()
    fast.train_from_iterator(TRAINED_ON * 9, trainers.WordPieceTrainer(vocab_size=160, special_tokens=list(special)))
    return fast


def _byte_level(special: list[str], **options: object) -> Tokenizer:
    fast = Tokenizer(models.BPE(**options))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    fast.train_from_iterator(TRAINED_ON * 9, trainer)
    return fast


def _read_spaces(fast: Tokenizer, table: bytes, saved_anew: bool) -> None:
    if saved_anew:
        spaces = [normalizers.Strip(left=False), normalizers.Replace(Regex(" {2,}"), "▁")]
        fast.normalizer = normalizers.Sequence([normalizers.Precompiled(table), *spaces])
        fast.pre_tokenizer = pre_tokenizers.Metaspace()
    else:
        fast.normalizer = normalizers.Precompiled(table)
        fast.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])


def _ids(fast: Tokenizer, tokens: Iterable[str]) -> list[tuple[str, int]]:
    return [(token, fast.token_to_id(token)) for token in tokens]


def _names(first: str, last: str, mask: str, pad: str, unknown: str) -> dict[str, object]:
    return {"cls_token": first, "sep_token": last, "mask_token": mask, "pad_token": pad, "unk_token": unknown}


def _save(fast: Tokenizer, directory: Path, family: str, names: Mapping[str, object], **config: object) -> None:
    """Write `tokenizer.json`, and the fields that transformers 4 writes beside it."""
    fast.save(str(directory / "tokenizer.json"))
    added = {str(token.pop("id")): token for token in json.loads(fast.to_str())["added_tokens"]}
    fields = {"added_tokens_decoder": added, "clean_up_tokenization_spaces": False, **names, **config}
    _write_json(directory, config=_model(family), tokenizer_config=fields)


def _save_vocabulary(fast: Tokenizer, directory: Path) -> None:
    vocabulary = fast.get_vocab(with_added_tokens=True)
    (directory / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)) + "\n")


def _model(family: str) -> dict[str, str]:
    return {"model_type": family}


def _write_json(directory: Path, **files: Mapping[str, object]) -> None:
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
