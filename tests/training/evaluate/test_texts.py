"""What a T5 answers, and how good it is."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peltier_adapters.artifact.artifact import Artifact, read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.generation import TextAnswer
from peltier_adapters.inputs import encode_input
from peltier_adapters.residency.bank import Banks
from peltier_adapters.spec.tasks import DecodingSpec, TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_training.config.run import METRICS
from peltier_training.data.examples import Example
from peltier_training.evaluate import texts
from peltier_training.evaluate.texts import decoder_gates, evaluate_texts, match_exactly, score_texts, write
from transformers import T5ForConditionalGeneration

MakeArtifact = Callable[..., bytes]
TEXTS = ["a good film", "bad", "the plot is dull", "is the actor good ?"]
CLOSED = TaskSpec(
    type="classification",
    labels=("no", "yes"),
    inputs="single",
    max_length=32,
    template="film {text}",
    targets=("bad", "very good"),
    decoding=DecodingSpec(answer="score", max_new_tokens=6),
)
FREE = CLOSED.model_copy(
    update={
        "type": "text2text",
        "labels": (),
        "targets": (),
        "decoding": DecodingSpec(answer="generate", max_new_tokens=6),
    }
)
GATED = ("a good film", "the plot was not very good , and the actor is dull", "bad")


def reference_loss(directory: Path, backbone: Backbone, pairs: list[tuple[str, str]]) -> float:
    """The mean cross-entropy of a target's token by transformers, pair by pair."""
    model = T5ForConditionalGeneration.from_pretrained(directory).eval()
    total, tokens = 0.0, 0
    for text, target in pairs:
        ids = torch.tensor([encode_input(backbone, FREE, text).ids])
        labels = torch.tensor([[*backbone.tokenizer.ids(target), backbone.t5.config.eos_token_id]])
        with torch.inference_mode():
            total += float(model(input_ids=ids, labels=labels).loss) * labels.shape[1]
        tokens += labels.shape[1]
    return total / tokens


def test_the_loss_is_transformers_own(t5: Backbone, t5_directory: Path):
    """Of the bare backbone, over label strings and over texts with several references, a token as much as another."""
    labels = ["no", "yes", "yes", "no"]
    found = evaluate_texts(
        t5, CLOSED, None, [Example(*pair, "d:1") for pair in zip(TEXTS, labels, strict=True)]
    ).metrics
    targets = [CLOSED.targets[CLOSED.labels.index(label)] for label in labels]
    assert found["loss"] == pytest.approx(reference_loss(t5_directory, t5, list(zip(TEXTS, targets, strict=True))))
    pairs = [("bad", "a film"), ("a good film", "dull"), ("bad", "a film is bad"), ("bad", "a film")]
    found = evaluate_texts(t5, FREE, None, [Example(*pair, "d:1") for pair in pairs]).metrics
    assert found["loss"] == pytest.approx(reference_loss(t5_directory, t5, pairs))


def test_a_closed_task_is_scored(t5: Backbone, make_artifact: MakeArtifact):
    """Labels that are the likeliest targets give 1, the others 0."""
    artifact = read_artifact(make_artifact(t5, "unipelt-apl", labels=("bad", "very good")), t5)
    resident, task = Banks(t5).add(artifact), artifact.manifest.task
    outputs = forward(t5, [Row(encode_input(t5, task, text), resident) for text in TEXTS])
    likeliest = [int(output.logits.argmax()) for output in outputs]
    right = [Example(text, task.labels[one], "d:1") for text, one in zip(TEXTS, likeliest, strict=True)]
    wrong = [Example(text, task.labels[1 - one], "d:1") for text, one in zip(TEXTS, likeliest, strict=True)]
    assert evaluate_texts(t5, task, resident, right).metrics["accuracy"] == 1.0
    assert evaluate_texts(t5, task, resident, wrong).metrics["accuracy"] == 0.0


def test_a_closed_task_can_be_written(t5: Backbone):
    """What is written is the answer if it is a target, and wrong if it is none; a number that is none counts as -1."""
    written = [answer.text for answer in write(t5, CLOSED, [Row(encode_input(t5, CLOSED, text)) for text in TEXTS])]
    own = {"decoding": DecodingSpec(answer="generate", max_new_tokens=6), "targets": (written[0].strip(), "never")}
    task = CLOSED.model_copy(update=own)
    examples = [Example(text, "no", "d:1") for text in TEXTS]
    share = sum(text.strip() == written[0].strip() for text in written) / len(TEXTS)
    assert evaluate_texts(t5, task, None, examples).metrics["accuracy"] == share
    numbers = task.model_copy(update={"type": "regression", "labels": ("value",), "targets": ("0.0", "5.0")})
    found = evaluate_texts(t5, numbers, None, [Example(text, 1.0, "d:1") for text in TEXTS]).metrics
    assert found["mse"] == pytest.approx((1 - -1) ** 2)


def test_examples_of_one_input_are_references_of_each_other(t5: Backbone):
    """It is answered once, and right if it is any of them."""
    (answer,) = write(t5, FREE, [Row(encode_input(t5, FREE, "bad"))])
    examples = [Example("bad", "something else", "d:1"), Example("bad", answer.text, "d:2")]
    assert evaluate_texts(t5, FREE, None, examples).metrics["exact_match"] == 1.0
    assert (
        evaluate_texts(t5, FREE, None, [*examples, Example("dull", "what nobody writes", "d:3")]).metrics["exact_match"]
        == 0.5
    )


def test_answers_do_not_depend_on_the_batch(t5: Backbone, make_artifact: MakeArtifact):
    """Seventy texts of any length, decoded together, are what each is alone."""
    artifact = read_artifact(make_artifact(t5, "compacter", task_type="text2text"), t5)
    resident, task = Banks(t5).add(artifact), artifact.manifest.task
    rows = [Row(encode_input(t5, task, "film " * (1 + 7 * number % 11)), resident) for number in range(70)]
    texts = [answer.text for answer in write(t5, task, rows)]
    for number in (0, 5, 64, 69):
        assert texts[number] == write(t5, task, [rows[number]])[0].text


def test_the_right_text_is_perfect():
    """Equal to one of its references."""
    found = ["the cat sat on the mat today", "a b"]
    values = score_texts(found, [["no", "the cat sat on the mat today"], ["a b"]])
    assert values == pytest.approx({"chrf": 100.0, "bleu": 100.0, "rouge_l": 1.0})


def test_bleu_is_of_the_corpus():
    """Eight words of two texts: precisions 7/8, 5/6, 3/4 and 1/2, no brevity penalty; their geometric mean."""
    values = score_texts(["a b c d", "e f g x"], [["a b c d"], ["e f g h"]])
    assert values["bleu"] == pytest.approx(100 * math.prod((7 / 8, 5 / 6, 3 / 4, 1 / 2)) ** 0.25)


def test_references_help_together():
    """An n-gram counts if any reference has it; texts may differ in how many they have."""
    values = score_texts(["a b c d", "e f g h"], [["a b x d", "y b c d", "a b c z"], ["e f g h"]])
    # the 4-gram of the first text is in no reference
    assert values["bleu"] == pytest.approx(100 * math.prod((8 / 8, 6 / 6, 4 / 4, 1 / 2)) ** 0.25)


def test_rouge_l_is_the_longest_common_subsequence():
    """`a c d` of `a b c d` and `a c d e f`: precision 3/4, recall 3/5, F 2/3; the best reference counts."""
    values = score_texts(["a b c d"], [["z", "a c d e f"]])
    assert values["rouge_l"] == pytest.approx(2 / 3)


def test_an_exact_match_forgives_spaces_around_alone():
    """Case and punctuation count."""
    assert match_exactly([" a film ", "a Film", "a film."], [["a film"]] * 3) == pytest.approx(1 / 3)


def test_nothing_written_is_worth_nothing():
    """An empty text is an answer too."""
    assert score_texts([""], [["a film"]]) == {"chrf": 0.0, "bleu": 0.0, "rouge_l": 0.0}
    assert match_exactly([""], [["a film"]]) == 0


def test_names_are_what_is_computed():
    """The loss comes from the scores, and an exact match is with the references as they were given."""
    assert {*score_texts(["a"], [["a"]]), "exact_match", "loss"} == set(METRICS["text2text"])
    assert METRICS["text2text"][0] == "chrf"


def test_chrf_compares_texts_of_one_word():
    """Of `goad` and `good`, 3 of 4 characters, 1 of 3 pairs, and no longer run; BLEU has nothing to compare. Where
    precision and recall are equal, as for texts of one length, their F is either of them."""
    values = score_texts(["goad"], [["good"]])
    assert (values["chrf"], values["bleu"]) == (pytest.approx(100 * (3 / 4 + 1 / 3) / 4), 0.0)


@pytest.mark.parametrize("reference", ["good film </s>", "good <unk> film", "good \u2603 film"])
def test_references_are_read_as_texts_are(t5: Backbone, monkeypatch: pytest.MonkeyPatch, reference: str):
    """A text that says all that the tokens of a reference can say has the best scores, and is not equal to it."""
    monkeypatch.setattr(texts, "write", lambda *_: [TextAnswer("good film", 0.0, "stop")])
    found = evaluate_texts(t5, FREE, None, [Example("a film", reference, "d:1")])
    assert (found.metrics["chrf"], found.metrics["rouge_l"], found.metrics["exact_match"]) == (100.0, 1.0, 0.0)
    assert found.gold == [[reference]]


@pytest.fixture
def artifact(t5: Backbone, make_artifact: Callable[..., bytes]) -> Artifact:
    """A UniPELT on a T5 of three and two blocks."""
    return read_artifact(make_artifact(t5, "unipelt-apl"), t5)


def rows_of(t5: Backbone, artifact: Artifact, num: int) -> list[Row]:
    resident = Banks(t5).add(artifact)
    return [Row(t5.tokenizer.encode(GATED[number % len(GATED)]), resident) for number in range(num)]


def test_each_gate_stands_at_its_block(t5: Backbone, artifact: Artifact):
    """Gates that read nothing are the sigmoids of their biases, all different: two decoder blocks come after three of
    the encoder, and two cross-attentions after both, which bottlenecks do not have."""
    numbered = {
        name: torch.linspace(-2, 2, tensor.numel()).view(tensor.shape) if name.endswith("gate.bias") else tensor * 0
        for name, tensor in artifact.tensors.items()
        if ".gate." in name
    }
    found = decoder_gates(t5, rows_of(t5, replace(artifact, tensors={**artifact.tensors, **numbered}), 3))
    prefix, (query, value), (ffn,) = (
        numbered[f"{part}.gate.bias"].sigmoid() for part in ("prefix", "lora", "bottleneck")
    )
    wanted = {
        "prefix, decoder": prefix[3:5],
        "prefix, cross-attention": prefix[5:],
        "lora.query, decoder": query[3:5],
        "lora.query, cross-attention": query[5:],
        "lora.value, decoder": value[3:5],
        "lora.value, cross-attention": value[5:],
        "bottleneck.ffn, decoder": ffn[3:],
    }
    assert found.keys() == wanted.keys()
    for name, gates in wanted.items():
        assert found[name] == pytest.approx(gates.tolist(), abs=1e-6)


def test_a_mean_is_over_all_batches(t5: Backbone, artifact: Artifact):
    """As many rows of each text as fill several batches have the mean of one row of each."""
    once, often = (decoder_gates(t5, rows_of(t5, artifact, num)) for num in (3, 99))
    assert once.keys() == often.keys()
    for name, gates in once.items():
        assert often[name] == pytest.approx(gates, abs=1e-5)
    alone = decoder_gates(t5, rows_of(t5, artifact, 1))
    assert alone["prefix, decoder"] != pytest.approx(once["prefix, decoder"], abs=1e-4)
