"""Files of tenants, before a reader opens them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_training.data.data import Data, read_labelled
from peltier_training.data.examples import Example
from peltier_training.errors import TrainingError
from peltier_training.service import examples
from peltier_training.service.examples import (
    check_lines,
    file_kind,
    read_chat,
    split,
    split_file,
    write_columns,
    write_file,
)

from tests.training.service.conftest import jsonl


@pytest.mark.parametrize(
    ("name", "start", "kind"),
    [
        ("rows.jsonl", b"text,label\n", ".jsonl"),
        ("rows.CSV", b"{}", ".csv"),
        ("rows.conll", b"a\tO\n", ".conll"),
        ("upload", b'\xef\xbb\xbf \n{"text": "a"}', ".jsonl"),
        ("upload.txt", b"text,label\n", ".csv"),
        ("../../etc/passwd", b"text,label\n", ".csv"),
        ("", b"", ".csv"),
    ],
)
def test_a_file_is_read_as_its_name_or_its_first_bytes_say(name: str, start: bytes, kind: str):
    """Unknown suffixes do not count, and a name never becomes a path."""
    assert file_kind(name, start) == kind


def test_a_file_is_written_under_a_name_of_ours(tmp_path: Path):
    """Beside nothing else, with its bytes."""
    assert write_file(tmp_path, "train", "../../evil.csv", b"text,label\n", 11) == Path("train.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["train.csv"]


@pytest.mark.parametrize(("name", "data"), [("rows.jsonl.gz", b"x"), ("rows", b"\x1f\x8b\x08")])
def test_a_compressed_file_is_refused(tmp_path: Path, name: str, data: bytes):
    """A small one may be read as a terabyte."""
    with pytest.raises(TrainingError, match=rf"^the file '{name}' is compressed; send it as it is, .jsonl or .csv$"):
        write_file(tmp_path, "train", name, data, len(data))


def test_bytes_are_counted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A file that says it is 1 KB, and one that is too large."""
    with pytest.raises(TrainingError, match=r"^the file 'a' has 4,000 bytes; it was stored with 1,024$"):
        write_file(tmp_path, "train", "a", b"x" * 4_000, 1_024)
    monkeypatch.setattr(examples, "MAX_FILE_BYTES", 100)
    with pytest.raises(TrainingError, match=r"^the file 'a' has 101 bytes; a training reads at most 100$"):
        write_file(tmp_path, "train", "a", b"x" * 101, 101)
    assert list(tmp_path.iterdir()) == []


def test_an_endless_line_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Only as much of it is read as shows that it is too long."""
    monkeypatch.chdir(tmp_path)
    path = Path("train.jsonl")
    path.write_bytes(b"{}\n" + b"x" * (examples.MAX_LINE_BYTES + 1))
    with pytest.raises(TrainingError, match=r"^train.jsonl:2 has more than 1,048,576 bytes; shorten its texts$"):
        check_lines(path)
    path.write_bytes(b"x" * examples.MAX_LINE_BYTES + b"\n{}\n")
    with pytest.raises(TrainingError, match=r"^train.jsonl:1 "):
        check_lines(path)
    path.write_bytes(b"x" * (examples.MAX_LINE_BYTES - 1) + b"\n{}\n")
    check_lines(path)


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
    source = tmp_path / "chats.jsonl"
    source.write_text(json.dumps(chat(("user", "a"), ("assistant", "b"))) + "\n" + json.dumps(chat(("user", "a"))))
    with pytest.raises(TrainingError, match=r"chats.jsonl:2 has no message of the assistant"):
        write_columns(source, tmp_path / "train.jsonl")


def example(text: str, label: object) -> Example:
    return Example(text, label, "")


@given(
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abc")), min_size=2),
    st.floats(0.01, 0.99),
    st.integers(0, 9),
)
def test_every_row_is_in_one_part(rows: list[tuple[int, str]], share: float, seed: int):
    """Each part has a row if there are two inputs, no input is in both, and the seed decides."""
    examples = [example(f"text {number}", label) for number, label in rows]
    train, validation = split(examples, "classification", share, seed)
    assert Counter(map(id, examples)) == Counter(map(id, [*train, *validation]))
    assert not {one.input for one in train} & {one.input for one in validation}
    assert bool(train) == (len({one.input for one in examples}) > 1)
    assert validation
    assert (train, validation) == split(examples, "classification", share, seed)


def test_each_label_has_its_share():
    """A rare label too, and one with a single row is trained on."""
    examples = [example(f"{number}", "ab"[number % 10 == 0]) for number in range(100)] + [example("x", "c")]
    train, validation = split(examples, "classification", 0.2, seed=3)
    counts = Counter(one.label for one in validation)
    assert counts["a"] == pytest.approx(18, abs=1)
    assert counts["b"] == pytest.approx(2, abs=1)
    assert "c" in {one.label for one in train}


def test_documents_of_a_query_stay_together():
    """A ranking is measured on whole queries."""
    examples = [Example((f"query {number // 4}", f"{number}"), 0, "") for number in range(40)]
    _, validation = split(examples, "ranking", 0.2, seed=0)
    assert Counter(one.input[0] for one in validation) == dict.fromkeys({one.input[0] for one in validation}, 4)
    assert len(validation) == 8


def test_a_label_of_validation_only_is_one_of_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Labels are those of all rows, and what is written is read again."""
    monkeypatch.chdir(tmp_path)
    Path("train.jsonl").write_bytes(jsonl([{"text": f"{n}", "label": f"label {n}"} for n in range(10)]))
    divided = split_file(Data(Path("train.jsonl"), Path("train.jsonl")), "classification", 0.2, 0)
    found = read_labelled(divided, "classification")
    assert (len(found.train.examples), len(found.validation.examples), len(found.labels.names)) == (8, 2, 10)


def test_one_row_is_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nor is one input in many rows."""
    monkeypatch.chdir(tmp_path)
    Path("train.csv").write_text("text,label\nsame,a\nsame,b\n")
    with pytest.raises(TrainingError, match=r"^train.csv has one distinct input; a training needs at least two"):
        split_file(Data(Path("train.csv"), Path("train.csv")), "classification", 0.2, 0)
