"""Evaluation of a T5 on labelled data, with or without an adapter, and the gates of UniPELT in its decoder."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np
import torch
from peltier_adapters.artifact.label_tree import LabelTree, build_label_tree, create_tree
from peltier_adapters.artifact.manifest import TaskInput
from peltier_adapters.batch.adaptation import BatchAdaptation
from peltier_adapters.batch.row import Row, RowOutput, group_rows, repeat_rows
from peltier_adapters.batch.scoring import pack_targets
from peltier_adapters.generation import TextAnswer, create_draft, generate, text_answer
from peltier_adapters.inputs import encode_input
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.ops.torch import TORCH
from peltier_adapters.residency.bank import Resident
from peltier_adapters.spec.decoding import Decoding
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import T5Config
from torch import Tensor

from peltier_training.data.examples import Example
from peltier_training.data.labels import Labels
from peltier_training.data.targets import gold_targets, gold_texts, target_ids
from peltier_training.errors import NotFiniteError
from peltier_training.evaluate import metrics
from peltier_training.evaluate.evaluation import Evaluation, MeanGates, batches, mean_gates, run_rows

_MAX_ROWS = 64
_CACHE_BYTES, _FLOAT_BYTES = 2 * 2**30, 4
_NO_NUMBER = -1.0  # the value of a text that is not a number (docs/methods.md#tasks-as-text)


def evaluate_texts(
    backbone: Backbone, task: TaskSpec, resident: Resident | None, examples: Sequence[Example], *,
    record_gates: bool = False,
) -> Evaluation:  # fmt: skip
    """The answers and the metrics of the task's type, with `loss`: the mean cross-entropy of the right answers' tokens.

    Without a resident the bare backbone answers. In a text2text task, examples with the same input are one question
    whose labels are its references. Gates are the encoder's, and means over tokens of the decoder's.
    """
    read = _read_texts if task.type == "text2text" else _read_closed
    return read(backbone, task, resident, examples, record_gates)


def write(backbone: Backbone, task: TaskSpec, rows: Sequence[Row]) -> list[TextAnswer]:
    """The generated text of each row, decoded as the task specifies."""
    assert task.decoding is not None, "a T5 task says how it answers"
    decoding = Decoding(task.decoding.max_new_tokens, task.decoding.num_beams)
    drafts = [create_draft(backbone, row, decoding) for row in rows]
    generate(backbone, drafts, max_rows=_max_rows(backbone, rows, decoding))
    if any(draft.failed for draft in drafts):
        raise NotFiniteError("the adapter's outputs are not finite numbers")
    return [text_answer(task, backbone, draft) for draft in drafts]


def _max_rows(backbone: Backbone, rows: Sequence[Row], decoding: Decoding) -> int:
    """How many texts are written at a time: those whose keys and values have at most `_CACHE_BYTES`. One text is always
    written, with all its beams."""
    config = backbone.t5.config
    tokens = decoding.max_new_tokens + max((len(row.encoded) for row in rows), default=0)
    row_bytes = tokens * config.num_decoder_layers * 2 * config.attention_size * _FLOAT_BYTES
    return max(min(_MAX_ROWS, _CACHE_BYTES // row_bytes), 1)


def _read_closed(
    backbone: Backbone, task: TaskSpec, resident: Resident | None, examples: Sequence[Example], record_gates: bool
) -> Evaluation:
    tree = build_label_tree(task, backbone)
    assert tree is not None, "a closed task has targets"
    rows = [Row(encode_input(backbone, task, example.input), resident, tree=tree) for example in examples]
    outputs = run_rows(backbone, rows, record_gates=record_gates)
    scores = torch.stack([output.logits for output in outputs])  # [rows, targets]
    gold = torch.tensor(gold_targets(task, examples))
    found, written = scores.argmax(-1), task.decoding is not None and task.decoding.answer == "generate"
    if written:
        places = {target: index for index, target in enumerate(task.targets)}
        found = torch.tensor([places.get(answer.text.strip(), -1) for answer in write(backbone, task, rows)])
    loss = _loss([tree] * len(rows), list(scores.gather(1, gold[:, None])), gold[:, None].tolist())
    judged = judge_targets(task, found, examples)
    return replace(
        judged,
        metrics={**judged.metrics, "loss": loss},
        scores=None if written else scores,
        gates=_gates(backbone, rows, outputs),
    )


def judge_targets(task: TaskSpec, found: Tensor, examples: Sequence[Example]) -> Evaluation:
    """The evaluation of target positions [rows], -1 for a text that is no target; without a loss."""
    inputs = [example.input for example in examples]
    if task.type == "classification":
        gold = np.array(gold_targets(task, examples))
        judged = metrics.classification(found.numpy(), gold, len(task.labels))
        return Evaluation(judged, inputs, gold.tolist(), found.tolist())
    numbers = [float(task.targets[index]) if index >= 0 else _NO_NUMBER for index in found.tolist()]
    wanted = Labels(task.type, task.labels).numbers(examples)
    return Evaluation(metrics.regression(np.array(numbers), np.array(wanted)), inputs, wanted, numbers)


def _read_texts(
    backbone: Backbone, task: TaskSpec, resident: Resident | None, examples: Sequence[Example], record_gates: bool
) -> Evaluation:
    questions: dict[TaskInput, list[str]] = {}
    for example, text in zip(examples, gold_texts(task, examples), strict=True):
        questions.setdefault(example.input, []).append(text)
    trees = [_reference_tree(backbone, task, texts) for texts in questions.values()]
    encoded = [encode_input(backbone, task, question) for question in questions]
    rows = [Row(question, resident, tree=tree) for question, tree in zip(encoded, trees, strict=True)]
    outputs = run_rows(backbone, rows, record_gates=record_gates)
    texts = [answer.text for answer in write(backbone, task, rows)]
    loss = _loss(trees, [output.logits for output in outputs], [range(tree.num_labels) for tree in trees])
    given, tokenizer = list(questions.values()), backbone.tokenizer
    # A text is compared with what the tokens of a reference say, which may lack characters of it; see `match_exactly`.
    references = [[tokenizer.decode(tokenizer.ids(text)) for text in own] for own in given]
    found = score_texts(texts, references) | {"exact_match": match_exactly(texts, given), "loss": loss}
    return Evaluation(found, list(questions), given, texts, _gates(backbone, rows, outputs))


def score_texts(found: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """`chrf` and `bleu` are those of the corpus, 0 to 100. `rouge_l`, 0 to 1, is the mean over texts of the best value
    among each text's references.

    chrF (Popović 2015) and BLEU are sacrebleu's with its defaults (BLEU: 13a tokens; both cased). BLEU is 0 if no text
    shares four words in a row with a reference; chrF counts up to six characters in a row, or fewer in shorter texts.
    ROUGE-L is rouge-score's F-measure without stemming.
    """
    from rouge_score.rouge_scorer import RougeScorer  # these libraries take two seconds to import
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    streams = [list(stream) for stream in zip_longest(*references)]  # a text with fewer references has None
    rouge = RougeScorer(["rougeL"])
    pairs = list(zip(found, references, strict=True))
    return {
        "chrf": float(CHRF().corpus_score(list(found), streams).score),
        "bleu": float(BLEU().corpus_score(list(found), streams).score),
        "rouge_l": sum(rouge.score_multi(own, text)["rougeL"].fmeasure for text, own in pairs) / len(pairs),
    }


def match_exactly(found: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """The share of texts that are equal to one of their references, as it was given, apart from white space around."""
    pairs = list(zip(found, references, strict=True))
    return sum(text.strip() in {reference.strip() for reference in own} for text, own in pairs) / len(pairs)


def _gates(backbone: Backbone, rows: Sequence[Row], outputs: Sequence[RowOutput]) -> MeanGates | None:
    """The gates of both stacks; None if there are none or they were not recorded."""
    gates = mean_gates(outputs)
    return None if gates is None else {**gates, **decoder_gates(backbone, rows)}


def _reference_tree(backbone: Backbone, task: TaskSpec, texts: Sequence[str]) -> LabelTree:
    config = backbone.t5.config
    return create_tree(config.start_token_id, config.eos_token_id, [target_ids(backbone, task, text) for text in texts])


def _loss(trees: Sequence[LabelTree], scores: Sequence[Tensor], chosen: Sequence[Sequence[int]]) -> float:
    """Minus the sum of `scores`, the log-likelihoods of the `chosen` strings of each tree, over their tokens."""
    tokens = sum(tree.lengths[index] for tree, own in zip(trees, chosen, strict=True) for index in own)
    return -sum(float(score.sum()) for score in scores) / tokens


@torch.inference_mode()
def decoder_gates(backbone: Backbone, rows: Sequence[Row]) -> MeanGates:
    """For each part and stack ("prefix, cross-attention") the mean gate of each block of the decoder, None for a block
    without that part. The mean is over the scored tokens of `rows`, which share an adapter; gates of what
    cross-attention reads from the encoder are one per row, and their mean is over rows."""
    found: dict[tuple[str, int], list[Tensor]] = defaultdict(list)
    for batch in batches(backbone, rows):
        for group in _decoded(backbone, batch):
            for part, layers in (group.gates or {}).items():
                for layer, gates in layers.items():
                    found[part, layer].append(gates)
    return _by_stack(backbone.t5.config, {place: float(torch.cat(gates).mean()) for place, gates in found.items()})


def _decoded(backbone: Backbone, rows: Sequence[Row]) -> Iterator[AdapterGroup]:
    """The groups of one scoring pass, with their gates: those of the rows, and those of the decoder's tokens."""
    model, packed = backbone.t5, backbone.pack([row.prompted for row in rows])
    reading = _adapt(backbone, rows, packed.lengths)
    memory = model.project_kv(packed, model.encode(packed, reading), reading)
    trees = [tree for row in rows if (tree := row.scored) is not None]
    tokens = repeat_rows(rows, [len(tree.ids) for tree in trees])
    writing = _adapt(backbone, tokens, [1] * len(tokens))
    model.decode(pack_targets(trees, backbone.device), memory, writing)
    yield from (*reading.groups, *writing.groups)


def _adapt(backbone: Backbone, rows: Sequence[Row], lengths: Sequence[int]) -> BatchAdaptation:
    """The adaptation of rows of `lengths` tokens that records gates. Torch reads the weights of a T5's adapter as any
    backend keeps them: no bias of them replaces one of the backbone, which has none."""
    return BatchAdaptation(backbone, group_rows(rows, record_gates=True), lengths, TORCH)


def _by_stack(config: T5Config, means: Mapping[tuple[str, int], float]) -> MeanGates:
    """Blocks and attentions are numbered from the encoder's first, and cross-attentions come last."""
    blocks = range(config.num_decoder_layers)
    starts = {"decoder": config.num_layers, "cross-attention": config.num_layers + config.num_decoder_layers}
    named = {
        f"{part}, {stack}": [means.get((part, start + block)) for block in blocks]
        for part in dict.fromkeys(part for part, _ in means)
        for stack, start in starts.items()
    }
    return {name: gates for name, gates in named.items() if any(gate is not None for gate in gates)}
