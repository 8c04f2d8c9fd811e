"""Triton's interpreter without repetitions that are more than half of its work."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, wraps
from types import ModuleType
from typing import Any

from triton import language as tl
from triton.runtime import interpreter


def repeat_less() -> None:
    """Lets the interpreter replace the functions of Triton's language once for each launch, and build its table of
    types once for each type.

    It would do both at every call of a function within a kernel, where its first call has replaced everything already.
    It would also compute every sum of integers a second time in 64 bits, for an assertion that it makes only in its
    debug mode.
    """
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=builder.options.debug)
    interpreter._patch_lang = _once_a_launch(interpreter._patch_lang)
    interpreter._get_np_dtype = _once_a_type(interpreter._get_np_dtype)


def _once_a_launch(patch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    replaced: set[ModuleType] = set()

    @cache
    def languages(function: Any) -> set[ModuleType]:
        return {one for one in (tl, tl.core) if one in function.__globals__.values()}

    @wraps(patch)
    def patch_once(function: Any) -> Any:
        wanted = languages(function)
        if wanted <= replaced:
            return interpreter._LangPatchScope()
        scope = patch(function)
        restore = scope.restore

        def end() -> None:
            restore()
            replaced.clear()

        scope.restore = end
        replaced.update(wanted)
        return scope

    return patch_once


def _once_a_type(find: Callable[[Any], Any]) -> Callable[[Any], Any]:
    known: dict[str, Any] = {}

    @wraps(find)
    def find_once(dtype: Any) -> Any:
        name = dtype.scalar.name
        if name not in known:
            known[name] = find(dtype)
        return known[name]

    return find_once
