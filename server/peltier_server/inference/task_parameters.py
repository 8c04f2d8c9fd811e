"""Checks that the parameters of a request are for the type of its task."""

from collections.abc import Iterator, Mapping

from peltier_adapters.errors import first_of
from peltier_adapters.spec.tasks import TOKEN_TYPES, TaskSpec, TaskType
from peltier_client.errors import InvalidInput
from peltier_client.protocol import Parameters

_DEFAULTS = Parameters()
_TOKENS: frozenset[TaskType] = frozenset({"token-classification"})
_VECTORS: frozenset[TaskType] = frozenset({"embedding"})
# The types of tasks that read a parameter, and those that do not.
_ONLY_FOR: Mapping[str, frozenset[TaskType]] = {
    "aggregation": _TOKENS,
    "words": _TOKENS,
    "stride": TOKEN_TYPES,
    "dimensions": _VECTORS,
}
_NOT_FOR: Mapping[str, frozenset[TaskType]] = {"top_k": TOKEN_TYPES | _VECTORS, "raw_scores": _TOKENS}


def check_parameters(task: TaskSpec, parameters: Parameters) -> None:
    """Raises `InvalidInput` that names every parameter that does not apply to the task."""
    if parameters.model_fields_set and (reasons := list(_problems(task, parameters))):
        raise InvalidInput(first_of(reasons[0], len(reasons)), reasons)


def _problems(task: TaskSpec, parameters: Parameters) -> Iterator[str]:
    for name in parameters.model_fields_set:
        if getattr(parameters, name) == getattr(_DEFAULTS, name):
            continue
        if name in _ONLY_FOR and task.type not in _ONLY_FOR[name]:
            types = " or ".join(sorted(_ONLY_FOR[name]))
            yield f"{name} is for tasks of type {types}; this task's type is {task.type}"
        if task.type in _NOT_FOR.get(name, ()):
            yield f"{name} is not for tasks of type {task.type}"
    if parameters.stride is not None and task.reads_tokens and (problem := task.stride_problem(parameters.stride)):
        yield problem
