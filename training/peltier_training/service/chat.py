"""Rows in the form of chats, as OpenAI's API takes them, as rows of columns. Imports no torch.

A chat is `{"messages": [{"role": …, "content": …}, …]}`. Its label, or on a T5 its target, is the last message of the
assistant that has not the weight 0, and its text the last message of the user before that. Other messages, the system's
too, are not learned.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peltier_training.errors import TrainingError, shown

TEXT_COLUMN, LABEL_COLUMN = "text", "label"
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def write_columns(source: Path, target: Path) -> None:
    """Write the rows of the JSONL file `source` to `target`, chats as columns and every other row as it is.

    A row keeps its line. Raises a `TrainingError` that names the first line which is no chat.
    """
    with source.open("rb") as lines, target.open("wb") as written:
        for number, line in enumerate(lines, 1):
            try:
                written.write(_converted(line))
            except TrainingError as error:
                raise TrainingError(f"{source}:{number} {error}") from None


def read_chat(row: Mapping[str, Any]) -> dict[str, str]:
    """A chat as columns, its label without the spaces and line ends around it. Raises a `TrainingError` with a clause
    that follows the row's place."""
    messages = row["messages"]
    if not isinstance(messages, list):
        raise TrainingError(f"has messages {shown(messages)}; they must be a list of objects with role and content")
    for place, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise TrainingError(f"has message {place} {shown(message)}; its role must be one of {', '.join(_ROLES)}")
    answer = _last(messages, "assistant")
    if answer is None:
        raise TrainingError("has no message of the assistant, which is the label")
    question = _last(messages[:answer], "user")
    if question is None:
        raise TrainingError("has no message of the user before the assistant's, which is the text")
    return {TEXT_COLUMN: _text(messages, question), LABEL_COLUMN: _text(messages, answer).strip()}


def _converted(line: bytes) -> bytes:
    if not line.strip():
        return line
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return line  # the reader of rows says what is wrong with it
    if not isinstance(row, dict) or "messages" not in row:
        return line
    return f"{json.dumps(read_chat(row), ensure_ascii=False)}\n".encode(errors="surrogatepass")


def _last(messages: Sequence[Mapping[str, Any]], role: str) -> int | None:
    fits = (message["role"] == role and message.get("weight") != 0 for message in reversed(messages))
    return next((len(messages) - 1 - place for place, fit in enumerate(fits) if fit), None)


def _text(messages: Sequence[Mapping[str, Any]], place: int) -> str:
    """The content of a message: a text, or parts of a text."""
    content = messages[place].get("content")
    if isinstance(content, list) and content and all(_is_text(part) for part in content):
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise TrainingError(f"has message {place} with the content {shown(content)}; it must be a text")
    return content


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
