"""Pretrain a small T5 on plain text by span corruption (Raffel et al. 2020, sections 3.1.4 and 3.3.4), as `t5-mini`.

    python examples/backbones/pretrain_t5.py --text part-01.txt.xz --output t5-mini --steps 6125

Blank lines separate the documents of a text. The tokens of all texts are in memory, two bytes each. Checkpoints of the
training are in OUTPUT.run; the same command with --resume goes on from the newest.
"""

import argparse
import json
import lzma
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from string import ascii_letters, digits, punctuation

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers.models import Unigram
from torch import Tensor
from torch.nn import Parameter
from torch.optim import AdamW
from torch.utils.data import Dataset
from transformers import GenerationConfig, T5Config, T5ForConditionalGeneration, Trainer, TrainingArguments

TokenIds = NDArray[np.int64]
TokenStream = NDArray[np.uint16]
Example = dict[str, Tensor]

SPECIAL = ("<pad>", "</s>", "<unk>")  # ids 0, 1, 2
EOS = 1
SENTINELS = tuple(f"<extra_id_{number}>" for number in range(100))
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
ALPHABET = ascii_letters + digits + punctuation
MAX_TOKENS = 512  # of an input, as in T5
MIN_CHARACTER_COUNT = 20  # rarer characters are encoded as bytes
MAX_TOKENIZER_CHARS = 16_000_000  # of text to train the tokenizer on; enough for thousands of pieces
HELD_OUT_EVERY = 200  # documents; half a percent is held out
MAX_HELD_OUT = 512  # texts of an evaluation
NOISE_DENSITY, MEAN_SPAN = 0.15, 3.0
VECTOR_WINDOW = 8  # tokens to each side; the weight at distance d is 1 - (d - 1) / 8
VECTOR_TOKENS = 30_000_000  # of the text, from its beginning
VECTOR_CHUNK = 4_000_000  # tokens
MIN_TOKEN_COUNT = 5  # rarer tokens keep their random vectors


def read_documents(paths: Iterable[Path]) -> Iterator[str]:
    """The non-empty documents of UTF-8 files (.txt, .txt.xz) in order."""
    for path in paths:
        with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as lines:
            for is_text, document in groupby(lines, key=lambda line: bool(line.strip())):
                if is_text:
                    yield "".join(document).strip()


def train_tokenizer(documents: Sequence[str], vocab_size: int) -> Tokenizer:
    """A Unigram tokenizer of exactly `vocab_size` tokens: <pad> 0, </s> 1, <unk> 2, pieces, bytes for other characters,
    and the sentinels, <extra_id_0> last. It normalises texts to NFKC and white space to one space."""
    every = max(sum(map(len, documents)) // MAX_TOKENIZER_CHARS, 1)
    num_pieces = vocab_size - len(BYTES) - len(SENTINELS)
    draft = with_rules(Tokenizer(Unigram()))
    trainer = trainers.UnigramTrainer(
        vocab_size=num_pieces,
        special_tokens=list(SPECIAL),
        unk_token="<unk>",  # noqa: S106 - no password
        initial_alphabet=list(ALPHABET),
        show_progress=False,
    )
    draft.train_from_iterator(without_rare_characters(documents[::every]), trainer)
    if (found := draft.get_vocab_size()) < num_pieces:
        raise SystemExit(f"the text is enough for {found + vocab_size - num_pieces} tokens, not {vocab_size}")
    vocab = [tuple(entry) for entry in json.loads(draft.to_str())["model"]["vocab"]]
    least = min(score for _, score in vocab)
    tokenizer = with_rules(Tokenizer(Unigram([*vocab, *((byte, least - 1) for byte in BYTES)], 2, byte_fallback=True)))
    added = (*SPECIAL, *SENTINELS[::-1])
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in added])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", EOS)]
    )
    return tokenizer


def with_rules(tokenizer: Tokenizer) -> Tokenizer:
    """`tokenizer` with T5's normalisation and pieces of words."""
    tokenizer.normalizer = normalizers.NFKC()
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    return tokenizer


def without_rare_characters(texts: Sequence[str]) -> Iterable[str]:
    """`texts` with blanks for rare characters, which would otherwise each become a piece."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    blanks = {ord(character): " " for character, count in counts.items() if count < MIN_CHARACTER_COUNT}
    return (text.translate(blanks) for text in texts)


def write_tokenizer(tokenizer: Tokenizer, directory: Path) -> None:
    """Write the files of transformers' `AutoTokenizer`."""
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        # transformers' T5Tokenizer would rebuild the tokenizer without its normalization and bytes.
        "tokenizer_class": "PreTrainedTokenizerFast",
        **dict(zip(("pad_token", "eos_token", "unk_token"), SPECIAL, strict=True)),
        "additional_special_tokens": list(SENTINELS),
        "model_max_length": MAX_TOKENS,
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def to_tokens(documents: Sequence[str], tokenizer: Tokenizer) -> TokenStream:
    """The tokens of `documents` [tokens]."""
    parts = (documents[begin : begin + 256] for begin in range(0, len(documents), 256))
    encodings = (encoding for part in parts for encoding in tokenizer.encode_batch_fast(part, add_special_tokens=False))
    return np.concatenate([np.empty(0, np.uint16), *(np.asarray(encoding.ids, np.uint16) for encoding in encodings)])


class CorruptedText(Dataset[Example]):
    """`size` examples of `stream` [tokens]: random spans of a block are removed. The input has a sentinel in place of
    each span, the target each sentinel followed by its span, and both end with </s>. No example is padded.

    Example `i` depends only on `seed` and `i`. Without `size` the set has evenly spaced blocks for an evaluation."""

    def __init__(self, stream: TokenStream, input_length: int, first_sentinel: int, seed: int, size: int = 0) -> None:
        self._stream, self._first_sentinel, self._seed = stream, first_sentinel, seed
        self.block = max(block for block in range(2, 2 * input_length) if count_input(block) <= input_length)
        self._num_noise, self._num_spans = count_noise(self.block)
        self._num_blocks = len(stream) // self.block
        if self._num_blocks < 1:
            raise SystemExit(f"the text is too small: it has {len(stream)} tokens, and a block has {self.block}")
        self._is_drawn, self._size = bool(size), size or min(self._num_blocks, MAX_HELD_OUT)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Example:
        rng = np.random.default_rng([self._seed, index])
        last = len(self._stream) - self.block
        begin = int(rng.integers(last + 1)) if self._is_drawn else index * last // len(self)
        text = self._stream[begin : begin + self.block].astype(np.int64)
        kept = partition(self.block - self._num_noise, self._num_spans, rng)
        removed = partition(self._num_noise, self._num_spans, rng)
        noise = np.repeat(np.arange(2 * self._num_spans) % 2 == 1, np.stack([kept, removed], axis=1).ravel())
        return {"input_ids": self._delimited(text, noise), "labels": self._delimited(text, ~noise)}

    def _delimited(self, text: TokenIds, hidden: NDArray[np.bool_]) -> Tensor:
        """`text` with each run of `hidden` tokens as one sentinel, and </s>."""
        begins = hidden & ~np.concatenate([[False], hidden[:-1]])
        sentinels = self._first_sentinel + 1 - np.cumsum(begins)
        return torch.from_numpy(np.append(np.where(begins, sentinels, text)[begins | ~hidden], EOS))


def count_noise(block: int) -> tuple[int, int]:
    """How many of `block` tokens are removed, and in how many spans."""
    num_noise = min(max(round(block * NOISE_DENSITY), 1), block - 1)
    return num_noise, min(max(round(num_noise / MEAN_SPAN), 1), block - num_noise)


def count_input(block: int) -> int:
    """The tokens of an input: those that remain of `block`, a sentinel per span, and </s>."""
    num_noise, num_spans = count_noise(block)
    return block - num_noise + num_spans + 1


def partition(total: int, parts: int, rng: np.random.Generator) -> TokenIds:
    """Positive lengths [parts] with the sum `total`, drawn uniformly from all such partitions."""
    cuts = np.sort(rng.choice(total - 1, parts - 1, replace=False)) + 1
    return np.diff(cuts, prepend=0, append=total)


def create_model(options: argparse.Namespace) -> T5ForConditionalGeneration:
    """A T5 with tied embeddings, gated GELU and the paper's initialisation."""
    torch.manual_seed(options.seed)
    config = T5Config(
        vocab_size=options.vocab_size,
        d_model=options.d_model,
        d_kv=options.d_kv,
        d_ff=options.d_ff,
        num_layers=options.layers,
        num_heads=options.heads,
        n_positions=MAX_TOKENS,
        feed_forward_proj="gated-gelu",
        dropout_rate=0.0,
        decoder_start_token_id=0,
        tie_word_embeddings=True,
    )
    # Eager attention, because position biases make fused attention slower for short texts.
    return T5ForConditionalGeneration._from_config(config, attn_implementation="eager")


@torch.no_grad()
def set_word_vectors(embeddings: Tensor, stream: TokenStream, seed: int) -> None:
    """Overwrite the rows of `embeddings` [vocabulary, width] of frequent tokens with word vectors of root mean square
    1, which saves a small budget from learning them.

    They are factors of the positive pointwise mutual information of neighbouring tokens, with smoothed contexts (Levy,
    Goldberg and Dagan 2015, sections 2.1, 2.2 and 3.1 to 3.3)."""
    text = np.asarray(stream[:VECTOR_TOKENS])
    vocabulary, width = embeddings.shape
    entries = count_neighbours(text, vocabulary).tocoo()
    totals = np.bincount(entries.coords[0], entries.data, vocabulary)
    contexts = totals**0.75 / (totals**0.75).sum()
    row, column = entries.coords
    information = np.log(entries.data / totals[row] / contexts[column])
    kept = information > 0
    matrix = csr_array((information[kept].astype(np.float32), (row[kept], column[kept])), shape=entries.shape)
    generator = np.random.default_rng(seed)
    left, values, _ = svds((matrix + matrix.T) * np.float32(0.5), k=min(width, vocabulary - 1), rng=generator)
    order = np.argsort(-values)
    vectors = left[:, order] * np.sqrt(values[order])
    frequent = np.flatnonzero((np.bincount(text, minlength=vocabulary) >= MIN_TOKEN_COUNT) & vectors.any(axis=1))
    chosen = vectors[frequent] / np.sqrt(np.mean(vectors[frequent] ** 2, axis=1, keepdims=True))
    embeddings[torch.from_numpy(frequent), : chosen.shape[1]] = torch.from_numpy(chosen).to(embeddings)


def count_neighbours(text: TokenStream, vocabulary: int) -> csr_array:
    """Symmetric counts of neighbouring tokens, weighted by their distance [vocabulary, vocabulary]."""
    counts = csr_array((vocabulary, vocabulary), dtype=np.float32)
    for begin in range(0, len(text), VECTOR_CHUNK):
        piece = text[begin : begin + VECTOR_CHUNK + VECTOR_WINDOW].astype(np.int64)
        for distance in range(1, min(VECTOR_WINDOW, len(piece) - 1) + 1):
            last = min(VECTOR_CHUNK, len(piece) - distance)
            pairs, times = np.unique(piece[:last] * vocabulary + piece[distance:][:last], return_counts=True)
            weights = (times * (1 - (distance - 1) / VECTOR_WINDOW)).astype(np.float32)
            counts = counts + csr_array((weights, np.divmod(pairs, vocabulary)), shape=counts.shape)
    return counts + counts.T


def scaled_groups(parameters: Iterable[Parameter], learning_rate: float) -> list[dict[str, object]]:
    """A group for each parameter, with `learning_rate` times the root mean square of its initial values as its rate.

    T5's matrices have very different initial sizes: embeddings 1, queries 1 / sqrt(d_model d_kv). The paper's Adafactor
    (Raffel et al. 2020, section 3.1.2; Shazeer and Stern 2018, section 8) scales its steps in the same way."""
    sizes = ((weights, weights.detach().square().mean().sqrt().item()) for weights in parameters)
    return [{"params": [weights], "lr": learning_rate * max(size, 1e-3)} for weights, size in sizes]


def pretrain(options: argparse.Namespace) -> None:
    """Train the tokenizer and the model, and write both to `options.output`."""
    documents = list(read_documents(options.text))
    tokenizer = train_tokenizer(documents, options.vocab_size)
    held_out = to_tokens(documents[::HELD_OUT_EVERY], tokenizer)
    train = to_tokens([text for number, text in enumerate(documents) if number % HELD_OUT_EVERY], tokenizer)
    model = create_model(options)
    set_word_vectors(model.shared.weight, train, options.seed)
    corruption = options.input_length, options.vocab_size - 1, options.seed
    part = max(options.steps // 20, 1)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=f"{options.output}.run",
            max_steps=options.steps,
            per_device_train_batch_size=options.batch_size,
            per_device_eval_batch_size=options.batch_size,
            train_sampling_strategy="sequential",  # `CorruptedText` draws the blocks
            lr_scheduler_type="cosine",
            warmup_steps=round(0.02 * options.steps),
            seed=options.seed,
            bf16=options.bfloat16,
            eval_strategy="steps",
            eval_steps=part,
            save_steps=part,
            save_total_limit=2,
            logging_steps=50,
            report_to=[],
            prediction_loss_only=True,
            dataloader_pin_memory=False,
            use_cpu=not torch.cuda.is_available(),
        ),
        train_dataset=CorruptedText(train, *corruption, size=options.steps * options.batch_size),
        eval_dataset=CorruptedText(held_out, *corruption),
        optimizers=(
            AdamW(scaled_groups(model.parameters(), options.learning_rate), betas=(0.9, 0.98), fused=True),
            None,
        ),
    )
    trainer.train(resume_from_checkpoint=options.resume)
    model.generation_config = GenerationConfig(decoder_start_token_id=0, pad_token_id=0, eos_token_id=EOS)
    model.bfloat16().save_pretrained(options.output)
    write_tokenizer(tokenizer, options.output)
    points = (point for point in trainer.state.log_history if "loss" in point or "eval_loss" in point)
    (options.output / "loss.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=re.split(r"\n\n", __doc__)[0])
    parser.add_argument("--text", type=Path, action="append", required=True, help="plain text, .txt or .txt.xz")
    parser.add_argument("--output", type=Path, required=True, help="the checkpoint directory to write")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in OUTPUT.run")
    parser.add_argument("--bfloat16", action="store_true", help="multiply matrices in bfloat16")
    parser.add_argument("--vocab-size", type=int, default=8192, help="with 100 sentinels and 256 bytes, at most 65,536")
    for name, default in {"d-model": 256, "layers": 3, "heads": 8, "d-kv": 32, "d-ff": 704}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in {"batch-size": 32, "input-length": 64, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--learning-rate", type=float, default=0.02, help="relative to each parameter's size")
    return parser.parse_args()


if __name__ == "__main__":
    pretrain(parse_options())
