"""What a foreign configuration says of a head's outputs: the names of their labels, and whether these exclude each
other."""

import json
import re
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import ConfigFile
from peltier_adapters.spec.tasks import TaskType

_TABLES = ("id2label", "label2id")
_PROBLEMS: Mapping[str, TaskType] = {
    "single_label_classification": "classification",
    "multi_label_classification": "multilabel",
    "regression": "regression",
}
Names = tuple[str, ...]


def read_labels(config: ConfigFile, outputs: int) -> Names | AdapterError | None:
    """What `label_names` answers or raises. Given labels take the place of tables that contradict."""
    try:
        return label_names(config, outputs)
    except AdapterError as error:
        return error


def label_names(config: ConfigFile, outputs: int) -> Names | None:
    """The names of a head's `outputs`, as the pipelines of transformers read them: those of `id2label`, or without it
    of `label2id`. None if there are none, or only the placeholders LABEL_0, LABEL_1, …

    Raises an `AdapterError` unless each output has a name of its own, and if the two tables differ in more than case
    and white space.
    """
    config.ignore(*_TABLES)
    count = config.get("num_labels", outputs)
    if count != outputs:
        raise AdapterError(f"{config.where}: num_labels is {count!r}; the head has {outputs} outputs")
    found = {key: names for key in _TABLES if (names := _table(config, key))}
    named = {key: names for key, names in found.items() if names != tuple(f"LABEL_{i}" for i in range(len(names)))}
    for key in {*list(found)[:1], *list(named)[:1]}:
        if len(found[key]) != outputs:
            raise AdapterError(f"{config.where}: {key} has {len(found[key])} labels; the head has {outputs} outputs")
    if len({tuple(" ".join(name.split()).casefold() for name in names) for names in named.values()}) > 1:
        first, second = (json.dumps(names, ensure_ascii=False) for names in named.values())
        raise AdapterError(
            f"{config.where}: id2label has the labels {first}, and label2id {second}; they must be equal"
        )
    return next(iter(named.values()), None)


def _table(config: ConfigFile, key: str) -> Names:
    """The names in the order of their ids; none if the setting is absent or empty."""
    raw = config.get(key)
    if not raw:
        return ()
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(raw, list):
        pairs = enumerate(raw)
    elif isinstance(raw, dict):
        pairs = raw.items() if key == "id2label" else [(id_, name) for name, id_ in raw.items()]
    else:
        raise AdapterError(f"{config.where}: {key} is {reprlib.repr(raw)}; it must map ids and labels")
    names = {_id(id_): name for id_, name in pairs}
    if set(names) != set(range(len(raw))):
        raise AdapterError(
            f"{config.where}: the ids of {key} are {reprlib.repr([id_ for id_, _ in pairs])}; they must count from 0, "
            "each once"
        )
    ordered = tuple(_name(names[id_], key, config) for id_ in range(len(raw)))
    twice = next((name for name in ordered if ordered.count(name) > 1), None)
    if twice is not None:
        raise AdapterError(f"{config.where}: {key} gives two outputs the name {twice!r}; each needs a name of its own")
    return ordered


def _id(value: Any) -> int | str:
    """An id, which JSON has as an integer or as text; anything else as a text that is no id."""
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value):
        return int(value)
    return value if type(value) is int else repr(value)


def _name(value: Any, key: str, config: ConfigFile) -> str:
    """A label, which some files have as an integer."""
    if not isinstance(value, str) and type(value) is not int:
        raise AdapterError(f"{config.where}: {key} has the label {value!r}; a label is a text")
    return str(value)


def type_of_problem(config: ConfigFile, outputs: int) -> TaskType | None:
    """The type of the tasks of a classifier of whole texts with the setting `problem_type`; None without it."""
    problem = config.get("problem_type")
    if problem is None:
        return None
    if problem not in _PROBLEMS:
        raise AdapterError(f"{config.where}: problem_type is {problem!r}; it is one of {', '.join(_PROBLEMS)}")
    if (problem == "regression" and outputs > 1) or (problem == "single_label_classification" and outputs == 1):
        raise AdapterError(
            f"{config.where}: problem_type is {problem!r}; the head has {outputs} outputs, which is not supported: a "
            "regression has one, and a classification with a single label several"
        )
    return _PROBLEMS[problem]
