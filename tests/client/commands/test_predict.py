"""`peltier predict`, for people and for machines."""

import json

import pytest

from tests.client.conftest import PIECES
from tests.client.typed_commands import Outcome


def test_predict_for_people(peltier, server) -> None:
    """Each text has its label and score, and the last line names the adapter."""
    outcome = peltier("predict", "sst2", "a gem of a [film]", "another")
    assert outcome.status == 0
    assert "a gem of a [film]" in outcome.out
    assert outcome.out.count("positive") == 2
    assert "0.980" in outcome.out
    assert "sst2 version 1 (compacter), 8.8 ms" in outcome.out
    assert server.received[0].headers["authorization"] == "Bearer plt_env"


@pytest.mark.parametrize(
    ("task", "shown"),
    [
        ("stsb", "3.7"), ("tags", "a, b"), ("ner", "person: Ada"), ("vectors", "0.5, -0.25, 0.125, 1e-09, … (6"),
        ("qa", "the Alps (17-25)"), ("qa-none", "no answer"),
    ],
)  # fmt: skip
def test_predict_shows_each_kind_of_answer(peltier, task: str, shown: str) -> None:
    """Values and several labels are shown as well as one label."""
    assert shown in peltier("predict", task, "text").out


def test_parameters_of_token_classifications_are_sent(peltier, server) -> None:
    """Given parameters are sent unchanged; the server has the defaults of the others."""
    assert peltier("predict", "ner", "text", "--stride", "16", "--aggregation", "max").status == 0
    assert json.loads(server.received[0].body)["parameters"] == {"stride": 16, "aggregation": "max"}


def test_texts_for_people_and_pipes(peltier, server) -> None:
    """Generated texts are printed unchanged, one after another; the adapter is named on stderr."""
    words = ("--max-new-tokens", "5", "--num-beams", "2", "--temperature", "0", "--top-p", "0.5", "--seed", "-3")
    outcome = peltier("predict", "e2e", "one", "two", "--priority", "-2", *words)
    assert outcome.out == 2 * f"{''.join(PIECES)}\n"
    assert "e2e version 1 (compacter)" in outcome.err
    assert json.loads(server.received[0].body)["parameters"] == {
        "max_new_tokens": 5, "num_beams": 2, "temperature": 0.0, "top_p": 0.5, "seed": -3, "priority": -2,
    }  # fmt: skip


def test_streams_for_people(peltier, server, refuse) -> None:
    """Each text is printed while it is generated, with one request each; an error is one line."""
    assert peltier("predict", "e2e", "one", "two", "--stream").out == 2 * f"{''.join(PIECES)}\n"
    assert [json.loads(one.body)["stream"] for one in server.received] == [True, True]
    server.planned.append(refuse(422, "invalid_input", "no"))
    assert peltier("predict", "e2e", "one", "--stream") == Outcome(1, "", "error: no: reason\n")
    assert peltier("predict", "e2e", "one", "--stream", "--json").status == 2


@pytest.mark.parametrize("words", [(), ("--json",), ("--stream",)], ids=["people", "machines", "stream"])
def test_truncated_inputs_are_a_warning(peltier, words: tuple[str, ...]) -> None:
    """The warning is one line on stderr for every form of output, and is absent if no input was truncated."""
    truncated = peltier("predict", "e2e-short", "one", "two", *words)
    assert truncated.status == 0
    assert "warning: 2 of 2 inputs exceed e2e-short's length and were truncated\n" in truncated.err
    assert "warning" not in truncated.out
    assert "warning" not in peltier("predict", "e2e", "one", "two", *words).err


def test_predict_with_several_tasks(peltier, server) -> None:
    """One line for each task, or one document; a failed task is named on stderr and makes the command fail."""
    outcome = peltier("predict", "sst2,stsb@2,tri.*", "text", "--top-k", "1")
    assert outcome.status == 0
    assert [line.split()[0] for line in outcome.out.splitlines()[1:4]] == ["sst2", "stsb@2", "tri.*"]
    sent = json.loads(server.received[0].body)
    assert (sent["tasks"], sent["input"], sent["parameters"]["top_k"]) == (["sst2", "stsb@2", "tri.*"], "text", 1)
    failed = peltier("predict", "sst2,missing", "text", "--json")
    assert (failed.status, failed.err) == (1, "error: missing: no adapter 'missing'\n")
    document = json.loads(failed.out)
    assert document["tasks"] == ["sst2", "missing"]
    assert document["results"][1]["error"]["code"] == "adapter_not_found"
    for words in (("one", "two"), ("one", "--stream")):
        assert "several tasks answer one TEXT" in peltier("predict", "a,b", *words).err


def test_predict_for_machines(peltier) -> None:
    """--json prints the answer's body as one document."""
    document = json.loads(peltier("predict", "sst2", "text", "--json").out)
    assert document["predictions"] == [
        {"label": "positive", "score": 0.98, "scores": {"negative": 0.02, "positive": 0.98}}
    ]
    assert document["adapter"]["name"] == "sst2"


def test_pairs(peltier, server) -> None:
    """Each --pair and --third belongs to the text of the same position; a missing one is wrong usage."""
    assert peltier("predict", "stsb", "a", "c", "--pair", "b", "--pair", "d").status == 0
    assert json.loads(server.received[0].body)["inputs"] == [["a", "b"], ["c", "d"]]
    outcome = peltier("predict", "stsb", "a", "c", "--pair", "b")
    assert outcome.status == 2
    assert "each TEXT needs one --pair" in outcome.err
    assert peltier("predict", "stsb", "a", "--pair", "b", "--third", "c").status == 0
    assert json.loads(server.received[-1].body)["inputs"] == [["a", "b", "c"]]
    outcome = peltier("predict", "stsb", "a", "--third", "c")
    assert outcome.status == 2
    assert "--third needs --pair" in outcome.err
