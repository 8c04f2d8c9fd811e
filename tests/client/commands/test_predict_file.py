"""`peltier predict --file`, over a real socket."""

import gzip
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from peltier_client.commands.predict_file import PartFile
from peltier_client.errors import InvalidInput


def jsonl(*texts: object) -> str:
    return "".join(f"{json.dumps({'id': number, 'text': text})}\n" for number, text in enumerate(texts))


@pytest.fixture
def predict(peltier, tmp_path: Path):
    """`predict(content, words…)` asks sst2 about a file with this content, one request at a time."""

    def run(content: str | bytes, *words: str, name: str = "in.jsonl", output: str = "out.jsonl") -> Any:
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(data)
        paths = ("--file", str(tmp_path / name), "--output", str(tmp_path / output))
        return peltier("predict", "sst2", *paths, "--concurrency", "1", *words)

    return run


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def inputs_of(server) -> list[Any]:
    return [json.loads(request.body)["inputs"] for request in server.received]


def test_a_line_for_every_row(predict, server, tmp_path: Path) -> None:
    """In order, several rows a request, each with its line, its own cells, its prediction and the version."""
    outcome = predict(jsonl(*"abcde"), "--batch-size", "2", "--top-k", "1")
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out == f"wrote 5 rows to {tmp_path / 'out.jsonl'} (5 by sst2@1)\n"
    assert inputs_of(server) == [["a", "b"], ["c", "d"], ["e"]]
    assert json.loads(server.received[0].body)["parameters"] == {"top_k": 1}
    lines = lines_of(tmp_path / "out.jsonl")
    assert [(one["line"], one["row"]["text"], one["version"]) for one in lines] == [
        (number, text, 1) for number, text in enumerate("abcde", 1)
    ]
    assert lines[0]["prediction"]["label"] == "positive"
    assert {one["adapter"] for one in lines} == {"sst2"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_requests_overlap_and_stay_in_order(peltier, server, tmp_path: Path) -> None:
    """As many at a time as allowed: the first is answered only when all of them have come."""
    barrier = threading.Barrier(3)

    class Answer:
        status, headers = 200, {}
        before = staticmethod(lambda: barrier.wait(120))

        def __init__(self, body) -> None:
            self.body = body

    from tests.client.conftest import answer_for

    server.planned.extend(Answer(answer_for("sst2", 1)) for _ in range(3))
    (tmp_path / "in.jsonl").write_text(jsonl(*"abcdef"))
    words = ("--file", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl"), "--batch-size", "1")
    assert peltier("predict", "sst2", *words, "--concurrency", "3").status == 0
    assert [one["row"]["text"] for one in lines_of(tmp_path / "out.jsonl")] == list("abcdef")


def test_compressed_csv_of_pairs(predict, server, tmp_path: Path) -> None:
    """Both ways; the columns of a pair are named in order."""
    content = gzip.compress(b"b,a\nx,y\n")
    words = ("--text-column", "a", "--text-column", "b")
    assert predict(content, *words, name="in.csv.gz", output="out.jsonl.gz").status == 0
    assert inputs_of(server) == [[["y", "x"]]]
    assert json.loads(gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()))["row"] == {"b": "x", "a": "y"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv.gz", "out.jsonl.gz"]


def test_a_bad_row_has_an_error_and_stops_no_other(predict, server, refuse, tmp_path):
    """Rows that cannot be read are not sent; one that the server refuses is found by halves. Status 1, with a count."""
    # The row "c" of four is refused, with all requests that it is in.
    server.planned.extend(
        [refuse(422, "invalid_input", "too long"), *(contract(2),), *(refuse(413, "too_large", "too long"),) * 2]
    )
    outcome = predict(jsonl("a", 7, "b", "c", "d") + "{\n", "--json")
    assert outcome.status == 1
    assert outcome.err == f"error: 3 of 6 rows have an error in {tmp_path / 'out.jsonl'}\n"
    assert json.loads(outcome.out)["errors"] == 3
    assert inputs_of(server) == [["a", "b", "c", "d"], ["a", "b"], ["c", "d"], ["c"], ["d"]]
    errors = [one.get("error", {}).get("message") for one in lines_of(tmp_path / "out.jsonl")]
    assert errors[:5] == [None, "column 'text' is '7'; it must be a text", None, "too long", None]
    assert errors[5].startswith("is not JSON")


def contract(num_inputs: int) -> Any:
    from tests.client.conftest import Answer, answer_for

    return Answer(200, answer_for("sst2", num_inputs))


def test_a_busy_server_is_waited_for(predict, server, refuse) -> None:
    """429 and 503 are tried again and are no row's error."""
    server.planned.extend([refuse(429, "quota_exceeded", retry_after="0"), refuse(503, "queue_full", retry_after="0")])
    assert predict(jsonl("a")).status == 0
    assert len(server.received) == 3


def test_what_concerns_every_row_ends_it(predict, server, refuse, tmp_path: Path) -> None:
    """A missing task is one error and leaves no file; so is a mistake that every row of the first request has."""
    server.planned.append(refuse(404, "adapter_not_found", "adapter 'sst2' does not exist"))
    outcome = predict(jsonl("a"))
    assert (outcome.status, outcome.err) == (1, "error: adapter 'sst2' does not exist; see: peltier list: reason\n")
    server.planned.extend(refuse(422, "invalid_input", "top_k is too large") for _ in range(15))
    outcome = predict(jsonl(*"abcdefgh"))
    assert outcome.err == "error: every one of the first 8 rows is refused: top_k is too large\n"
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_it_goes_on_where_it_ended(predict, server, refuse, tmp_path: Path) -> None:
    """After a failure the answers are in OUTPUT.part and nothing has the final name; --resume asks about the rest."""
    server.planned.extend([contract(2), refuse(500, "internal_error", "the server failed")])
    content = jsonl("a", "b", "c", "d", "e")
    outcome = predict(content, "--batch-size", "2")
    part = tmp_path / "out.jsonl.part"
    assert outcome.err == f"error: the server failed; 2 rows are in {part}; continue with --resume: reason\n"
    assert not (tmp_path / "out.jsonl").exists()
    assert "give --resume, or delete it" in predict(content).err
    with part.open("a") as file:
        file.write('{"line":3,"ro')  # a line that was being written when the machine stopped
    server.received.clear()
    assert predict(content, "--resume", "--batch-size", "2").status == 0
    assert inputs_of(server) == [["c", "d"], ["e"]]
    assert [one["row"]["text"] for one in lines_of(tmp_path / "out.jsonl")] == list("abcde")
    assert not part.exists()


KEPT = {"line": 1, "row": {"id": 0, "text": "a"}, "prediction": {}, "adapter": "sst2", "version": 1}


@pytest.mark.parametrize(
    ("kept", "sentence"),
    [
        ({"row": {"id": 0, "text": "x"}}, "has another row for line 1 than {file}"),
        ({"line": 2}, "does not hold predictions for {file}"),
        ({"adapter": "other"}, "holds predictions of 'other', not of 'sst2'"),
    ],
)
def test_a_run_of_something_else_is_not_resumed(predict, tmp_path, kept, sentence):
    """Another file or another adapter is one sentence, without the advice to resume; the part file stays as it is."""
    part = tmp_path / "out.jsonl.part"
    part.write_text(json.dumps(KEPT | kept) + "\n")
    before = part.read_text()
    outcome = predict(jsonl("a", "b"), "--resume")
    reason = sentence.format(file=tmp_path / "in.jsonl")
    assert (outcome.status, outcome.err) == (1, f"error: {part} {reason}; delete it to start again\n")
    assert part.read_text() == before


def test_rows_that_equal_nothing_are_resumed(predict, tmp_path: Path) -> None:
    """NaN in a row is the same row again, and so is half of a surrogate pair, which has an error."""
    content = '{"text": "a", "n": NaN}\n{"text": "hi \\ud83d", "n": NaN}\n{"text": "b"}\n'
    assert predict(content).status == 1
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert ["error" in json.loads(line) for line in lines] == [False, True, False]
    (tmp_path / "out.jsonl.part").write_text("".join(f"{line}\n" for line in lines[:2]))
    assert predict(content, "--resume").status == 1
    assert (tmp_path / "out.jsonl").read_text().splitlines() == lines


@pytest.mark.skipif(os.name == "nt", reason="limits the size of files")
@pytest.mark.parametrize("output", ["out.jsonl", "out.jsonl.gz"])
def test_a_full_disk_is_said_with_how_to_go_on(predict, tmp_path: Path, output: str) -> None:
    """One sentence, in place of the error of a file; what was written is kept, and can be resumed."""
    from tests.support.full_disk import room_for

    content = jsonl(*"abcd")
    with room_for(300):
        outcome = predict(content, "--batch-size", "1", output=output)
    part = tmp_path / f"{output}.part"
    sentence = f"{part} cannot be written: File too large; 1 rows are in {part}; continue with --resume"
    assert (outcome.status, outcome.err) == (1, f"error: {sentence}\n")
    assert predict(content, "--resume", output=output).status == 0
    assert not part.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "sst2", "--file", "{in}"),
        ("predict", "sst2", "text", "--file", "{in}", "--output", "{out}"),
        ("predict", "sst2", "--stream", "--file", "{in}", "--output", "{out}"),
        ("predict", "sst2", "text", "--output", "{out}"),
        ("predict", "sst2", "--file", "{out}", "--output", "{out}"),
    ],
)
def test_wrong_usage_of_files(peltier, server, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Told before anything is sent."""
    (tmp_path / "in.jsonl").write_text(jsonl("a"))
    names = {"in": tmp_path / "in.jsonl", "out": tmp_path / "out.jsonl"}
    assert peltier(*(word.format(**names) for word in words)).status == 2
    assert not server.received


@pytest.mark.parametrize("output", ["in.jsonl", "missing/out.jsonl", "."])
def test_an_output_that_cannot_be_is_refused_first(predict, server, output: str) -> None:
    """The input itself, a folder, a folder that is not there."""
    outcome = predict(jsonl("a"), output=output)
    assert (outcome.status, server.received) == (1, [])
    assert outcome.err.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_ctrl_c_says_how_far_it_was(predict, server, answer, tmp_path: Path) -> None:
    """Status 130; what was answered is kept, and nothing has the final name."""
    release = threading.Event()

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        release.wait(120)

    server.planned.extend([contract(1), answer(before=interrupt)])
    outcome = predict(jsonl("a", "b", "c"), "--batch-size", "1")
    release.set()
    part = tmp_path / "out.jsonl.part"
    said = f"interrupted; 1 rows are in {part}; continue with --resume\n"
    assert (outcome.status, outcome.out, outcome.err) == (130, "", said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl.part"]


LINE: dict[str, Any] = {"line": 3, "row": {"text": "a"}, "prediction": {}, "adapter": "sst2", "version": 1}


@pytest.mark.parametrize("bad", [{"line": "3"}, {"line": None}, {"row": []}, {"adapter": 1}])
def test_a_line_that_is_none_is_refused_and_not_counted(tmp_path: Path, bad: dict[str, Any]) -> None:
    """The refusal names the line of the part file, at once and not when the run goes on."""
    part = tmp_path / "out.jsonl.part"
    for lines in (f"{json.dumps(LINE)}\n{json.dumps(LINE | bad)}\n", f"{json.dumps(LINE)}\nnonsense\n"):
        part.write_text(lines)
        with pytest.raises(InvalidInput, match=r"part:2 is not a line of predictions"):
            PartFile(tmp_path / "out.jsonl", resume=True)
    with PartFile(tmp_path / "other.jsonl", resume=False) as other:
        with pytest.raises(TypeError):
            other.write([LINE | bad])
        assert (other.num_rows, other.last_line, other.adapter) == (0, 0, None)


def test_an_output_that_cannot_get_its_name_is_said(tmp_path: Path) -> None:
    """The lines stay in the part file."""
    output = tmp_path / "out.jsonl"
    with PartFile(output, resume=False) as part:
        part.write([LINE])
        output.mkdir()
        with pytest.raises(InvalidInput, match=r"out\.jsonl cannot be written: "):
            part.finish()
    assert json.loads(part.path.read_bytes()) == LINE
