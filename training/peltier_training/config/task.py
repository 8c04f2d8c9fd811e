"""The task of a run, as its artifact records it."""

from collections.abc import Iterator, Sequence
from typing import Any

from peltier_adapters.artifact.label_tree import target_problems
from peltier_adapters.spec.tasks import EMBEDDING_TYPES, MAX_NEW_TOKENS, DecodingSpec, InputForm, SpanSpec, TaskSpec
from peltier_backbone.backbone import Backbone
from pydantic import ValidationError

from peltier_training.config.run import Run
from peltier_training.config.task_options import find_template
from peltier_training.data.examples import Example
from peltier_training.data.labels import Labels
from peltier_training.data.targets import DEFAULT_STEP, class_targets, number_targets
from peltier_training.errors import TrainingError, shown

# As in transformers' question answering: windows of 384 tokens share 128.
_STRIDES_IN_A_CONTEXT = 3
# A word needs less context than an answer does.
_STRIDES_IN_A_TEXT = 4


def create_task(run: Run, backbone: Backbone, labels: Labels, examples: Sequence[Example]) -> TaskSpec:
    """The task of a resolved run. Raises a `TrainingError` if it is invalid."""
    inputs = run.data.inputs
    own = _text_fields(run, backbone, labels, examples, inputs) if backbone.config.generates else {}
    if labels.type == "span":
        own = _span_fields(run, examples)
    if labels.type == "token-classification":
        own = {"stride": _stride(run, _STRIDES_IN_A_TEXT)}
    if labels.type in EMBEDDING_TYPES:
        # Each text of a pair is an input of its own.
        inputs, own = "single", {"normalized": run.embedding.normalized} if labels.type == "embedding" else {}
    try:
        task = TaskSpec(
            type=labels.type, labels=labels.names, inputs=inputs, max_length=run.hyperparameters.max_length, **own
        )
    except ValidationError as error:
        raise TrainingError(_explain(error, run)) from None
    problems = [*target_problems(task, backbone), *_unwritable(task, backbone)] if task.targets else []
    if problems:
        raise TrainingError(problems[0])
    return task


def _unwritable(task: TaskSpec, backbone: Backbone) -> Iterator[str]:
    """Why the targets of a task that generates its answers are never generated."""
    assert task.decoding is not None, "a task with targets has a decoding"
    if task.decoding.answer == "score":
        return
    for text in task.targets:
        ids, most = backbone.tokenizer.ids(text), task.decoding.max_new_tokens
        if len(ids) > most:
            yield f"task target {text!r} has {len(ids)} tokens; max_new_tokens is {most}, and no answer has more"
        elif (written := backbone.tokenizer.decode(ids).strip()) != text:
            yield (
                f"task target {text!r} is generated as {written!r}, because the tokenizer cannot write it; choose "
                "other targets, or answer 'score'"
            )


def _stride(run: Run, strides_in_a_window: int) -> int:
    numbers = run.hyperparameters
    return numbers.max_length // strides_in_a_window if numbers.stride is None else numbers.stride


def _explain(error: ValidationError, run: Run) -> str:
    first = error.errors()[0]
    rule = first["msg"].removeprefix("Value error, ")
    rule = rule[:1].lower() + rule[1:]
    field = first["loc"][0] if first["loc"] else None
    if field == "labels":  # these come from the data
        return f"{run.data.train}: task labels: {rule}"
    return rule if field is None else f"task {field} is {shown(first['input'])}: {rule}"


def _span_fields(run: Run, examples: Sequence[Example]) -> dict[str, Any]:
    """Contexts are read in windows. There may be no answer if there is none in a training example."""
    numbers = run.hyperparameters
    length = numbers.max_answer_length or SpanSpec().max_answer_length
    spec = SpanSpec(max_answer_length=length, no_answer=not all(example.label for example in examples))
    return {"span": spec, "stride": _stride(run, _STRIDES_IN_A_CONTEXT)}


def _text_fields(
    run: Run, backbone: Backbone, labels: Labels, examples: Sequence[Example], inputs: InputForm
) -> dict[str, Any]:
    template = find_template(run.text.template, inputs)
    targets = _targets(run, labels, examples)
    temperature = run.text.completion_temperature
    return {
        "template": f"{run.task} {template}" if run.text.task_prefix else template,
        "targets": targets,
        "decoding": DecodingSpec(
            answer=run.text.answer or "score",
            max_new_tokens=run.text.max_new_tokens or _longest(backbone, targets, labels, examples),
            num_beams=run.text.num_beams or 1,
            completion_temperature=1.0 if temperature is None else temperature,
        ),
    }


def _targets(run: Run, labels: Labels, examples: Sequence[Example]) -> tuple[str, ...]:
    match labels.type:
        case "classification":
            return class_targets(run.text.targets or "digits", labels.names)
        case "regression":
            return number_targets(labels.numbers(examples), run.text.regression_step or DEFAULT_STEP)
    return ()


def _longest(backbone: Backbone, targets: Sequence[str], labels: Labels, examples: Sequence[Example]) -> int:
    """Tokens of the longest answer with its end token, up to what the backbone reads."""
    texts = targets or labels.texts(examples)
    longest = max(len(backbone.tokenizer.ids(text)) for text in set(texts)) + 1
    return min(longest, backbone.config.max_tokens, MAX_NEW_TOKENS)
