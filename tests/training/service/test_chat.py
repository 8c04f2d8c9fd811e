"""Chats as rows."""

import json
from pathlib import Path
from typing import Any

import pytest
from peltier_training.errors import TrainingError
from peltier_training.service.chat import read_chat, write_columns


def chat(*messages: tuple[str, Any]) -> dict[str, Any]:
    """A row with messages."""
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


def test_the_last_turn_is_text_and_label() -> None:
    """Earlier turns and the system's message are left out; a text may be in parts."""
    row = chat(
        ("system", "Classify."),
        ("user", "a bore"),
        ("assistant", "bad"),
        ("user", [{"type": "text", "text": "a "}, {"type": "text", "text": "gem"}]),
        ("assistant", "good"),
    )
    assert read_chat(row) == {"text": "a gem", "label": "good"}
    assert read_chat(chat(("user", "a gem"), ("assistant", "good"), ("user", "thanks"))) == {
        "text": "a gem",
        "label": "good",
    }


@pytest.mark.parametrize("answer", ["good\n", " good", "\r\n good \t"])
def test_an_answer_has_no_space_around_it(answer: str) -> None:
    """Models write line ends, which would make another label, and none that an artifact may have."""
    assert read_chat(chat(("user", " a gem\n"), ("assistant", answer))) == {"text": " a gem\n", "label": "good"}


def test_an_answer_without_weight_is_not_learned() -> None:
    """As in OpenAI's API; one that names another weight is."""
    row = chat(("user", "a gem"), ("assistant", "good"), ("user", "a bore"), ("assistant", "bad"))
    row["messages"][3]["weight"] = 0
    assert read_chat(row) == {"text": "a gem", "label": "good"}
    row["messages"][3]["weight"] = 1
    assert read_chat(row) == {"text": "a bore", "label": "bad"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (chat(), "has no message of the assistant, which is the label"),
        (chat(("user", "a")), "has no message of the assistant, which is the label"),
        (chat(("assistant", "a"), ("user", "b")), "has no message of the user before the assistant's"),
        (chat(("user", None), ("assistant", "a")), "has message 0 with the content None; it must be a text"),
        (chat(("user", "a"), ("assistant", [])), r"has message 1 with the content \[\]; it must be a text"),
        (chat(("robot", "a")), "its role must be one of system, developer, user"),
        ({"messages": "a"}, "has messages 'a'; they must be a list"),
        ({"messages": ["a"]}, "has message 0 'a'; its role must be one of"),
    ],
)
def test_what_is_no_chat(row: dict[str, Any], reason: str) -> None:
    """Is refused in one sentence."""
    with pytest.raises(TrainingError, match=reason):
        read_chat(row)


def test_a_file_keeps_its_lines(tmp_path: Path) -> None:
    """Rows of columns stay as they are, and what is no JSON is left to the reader of rows."""
    source, target = tmp_path / "chats.jsonl", tmp_path / "train.jsonl"
    columns = '{"text": "a  bore", "label": "bad"}'
    good = json.dumps(chat(("user", "a\u2028gém"), ("assistant", "good")))
    source.write_text(f"{good}\n\n{columns}\nnonsense\n")
    write_columns(source, target)
    first, *rest = target.read_text().split("\n")
    assert json.loads(first) == {"text": "a\u2028gém", "label": "good"}
    assert rest == ["", columns, "nonsense", ""]


def test_a_bad_chat_is_named_by_its_line(tmp_path: Path) -> None:
    """With the file."""
    source = tmp_path / "chats.jsonl"
    source.write_text(json.dumps(chat(("user", "a"), ("assistant", "b"))) + "\n" + json.dumps(chat(("user", "a"))))
    with pytest.raises(TrainingError, match=r"chats.jsonl:2 has no message of the assistant"):
        write_columns(source, tmp_path / "train.jsonl")
