import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, version
from pathlib import Path
from typing import Any

import pytest
from peltier_client import cli
from peltier_client.commands import plugins
from stamina.instrumentation import set_on_retry_hooks

from tests.client.conftest import KEY, PIECES, QUOTAS, TENANT, VERSION, adapter, alias, outlined, summary

Refuse = Callable[..., Any]


@dataclass
class Outcome:
    """How a command ended."""

    status: object
    out: str
    err: str


class Peltier:
    """The command, run in this process as if typed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *words: str) -> Outcome:
        self.monkeypatch.setattr(sys, "argv", ["peltier", *words])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        streams = self.capsys.readouterr()
        return Outcome(caught.value.code or 0, streams.out, streams.err)

    def announce(self, name: str, value: str) -> None:
        """Let a package announce a command."""
        entry_points = [EntryPoint(name, value, plugins.GROUP)]
        self.monkeypatch.setattr(plugins, "entry_points", lambda group: entry_points)


@pytest.fixture
def peltier(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], server: Any) -> Iterator[Peltier]:
    """The command, with the little server as its default and a wide terminal."""
    monkeypatch.setenv("PELTIER_URL", server.url)
    monkeypatch.setenv("PELTIER_API_KEY", "plt_env")
    monkeypatch.setenv("COLUMNS", "160")
    yield Peltier(monkeypatch, capsys)
    set_on_retry_hooks(None)


def test_predict_for_people(peltier: Peltier, server: Any) -> None:
    """Each text has its label and score, and who answered is named."""
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
def test_predict_shows_each_kind_of_answer(peltier: Peltier, task: str, shown: str) -> None:
    """Values and several labels are shown as well as one label."""
    assert shown in peltier("predict", task, "text").out


def test_parameters_of_token_classifications_are_sent(peltier: Peltier, server: Any) -> None:
    """As they are given; others are left to the server."""
    assert peltier("predict", "ner", "text", "--stride", "16", "--aggregation", "max").status == 0
    assert json.loads(server.received[0].body)["parameters"] == {"stride": 16, "aggregation": "max"}


def test_texts_for_people_and_pipes(peltier: Peltier, server: Any) -> None:
    """Generated texts come as they are, one after the other; who wrote them is on stderr."""
    words = ("--max-new-tokens", "5", "--num-beams", "2", "--temperature", "0", "--top-p", "0.5", "--seed", "-3")
    outcome = peltier("predict", "e2e", "one", "two", "--priority", "-2", *words)
    assert outcome.out == 2 * f"{''.join(PIECES)}\n"
    assert "e2e version 1 (compacter)" in outcome.err
    assert json.loads(server.received[0].body)["parameters"] == {
        "max_new_tokens": 5, "num_beams": 2, "temperature": 0.0, "top_p": 0.5, "seed": -3, "priority": -2,
    }  # fmt: skip


def test_streams_for_people(peltier: Peltier, server: Any, refuse: Refuse) -> None:
    """Each text comes as it is written, one request each; an error is one line."""
    assert peltier("predict", "e2e", "one", "two", "--stream").out == 2 * f"{''.join(PIECES)}\n"
    assert [json.loads(one.body)["stream"] for one in server.received] == [True, True]
    server.planned.append(refuse(422, "invalid_input", "no"))
    assert peltier("predict", "e2e", "one", "--stream") == Outcome(1, "", "error: no: reason\n")
    assert peltier("predict", "e2e", "one", "--stream", "--json").status == 2


@pytest.mark.parametrize("words", [(), ("--json",), ("--stream",)], ids=["people", "machines", "stream"])
def test_truncated_inputs_are_a_warning(peltier: Peltier, words: tuple[str, ...]) -> None:
    """One line on stderr, whatever stdout is for; none where every input was read whole."""
    truncated = peltier("predict", "e2e-short", "one", "two", *words)
    assert truncated.status == 0
    assert "warning: 2 of 2 inputs exceed e2e-short's length and were truncated\n" in truncated.err
    assert "warning" not in truncated.out
    assert "warning" not in peltier("predict", "e2e", "one", "two", *words).err


def test_predict_with_several_tasks(peltier: Peltier, server: Any) -> None:
    """One line per task, or one document; a task that fails is named on stderr and fails the command."""
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


def test_predict_for_machines(peltier: Peltier) -> None:
    """--json prints the answer's body as one document."""
    document = json.loads(peltier("predict", "sst2", "text", "--json").out)
    assert document["predictions"] == [
        {"label": "positive", "score": 0.98, "scores": {"negative": 0.02, "positive": 0.98}}
    ]
    assert document["adapter"]["name"] == "sst2"


def test_pairs(peltier: Peltier, server: Any) -> None:
    """Each --pair and --third goes with the text of its rank, and a missing one is wrong usage."""
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


def test_upload_list_delete(peltier: Peltier, tmp_path: Path) -> None:
    """Each says what it did."""
    path = tmp_path / "film.safetensors"
    path.write_bytes(b"artifact")
    assert peltier("upload", str(path), "--name", "sst2").out.startswith("published sst2 version 1 (compacter, sha256:")
    listed = peltier("list").out
    assert all(name in listed for name in ("nli", "sst2", "stsb", "compacter", "classification"))
    assert peltier("delete", "sst2@1").out == "deleted sst2@1\n"


def test_an_upload_of_known_bytes_names_the_version_that_is_live(
    peltier: Peltier, server: Any, answer: Any, tmp_path: Path
) -> None:
    """Nothing was published, and which version answers is said; so it is where a new version does not answer yet."""
    path = tmp_path / "film.safetensors"
    path.write_bytes(b"artifact")
    live = {"live": {"2": 1.0}, "aliases": {"canary": {"3": 1.0}, "production": {"2": 1.0}}}
    shown = "(live: version 2; canary: version 3, production: version 2)\n"
    server.planned.append(answer(200, {**VERSION, **live}))
    known = "sst2@1 already holds these bytes; nothing was published"
    assert peltier("upload", str(path)).out == f"{known} {shown}"
    server.planned.append(answer(201, {**VERSION, "version": 3, **live}))
    assert peltier("upload", str(path)).out == f"published sst2 version 3 (compacter, {VERSION['digest']}) {shown}"
    server.planned.append(answer(200, VERSION))
    assert peltier("upload", str(path)).out == f"{known}\n"
    server.planned.append(answer(200, VERSION))
    assert json.loads(peltier("upload", str(path), "--json").out)["created"] is False


def test_every_command_speaks_json(peltier: Peltier, tmp_path: Path) -> None:
    """One JSON document each."""
    path = tmp_path / "film.safetensors"
    path.write_bytes(b"artifact")
    assert json.loads(peltier("upload", str(path), "--json").out)["version"] == 1
    assert len(json.loads(peltier("list", "--json").out)["adapters"]) == 3
    assert json.loads(peltier("delete", "sst2", "--json").out) == {"deleted": "sst2"}


def test_which_version_answers_is_said(peltier: Peltier, server: Any) -> None:
    """Each command says what now is; a rollback names the shares."""
    assert peltier("alias", "sst2", "live", "1").out == "sst2@live means version 1\n"
    assert peltier("alias", "sst2", "live", "1=0.9,2=0.1").out == "sst2@live means version 1 (0.9), version 2 (0.1)\n"
    assert json.loads(server.received[-1].body) == {"versions": {"1": 0.9, "2": 0.1}}
    assert peltier("rollback", "sst2", "live").out == "sst2@live means version 1 (0.9), version 2 (0.1)\n"
    assert peltier("deprecate", "sst2@1", "worse [than] 2").out == "sst2@1 is deprecated\n"
    assert peltier("deprecate", "sst2@1", "--undo").out == "sst2@1 is no longer deprecated\n"
    assert peltier("undelete", "sst2@1").out.startswith("undeleted sst2 version 1 (compacter, sha256:")
    shown = peltier("audit", "--limit", "3", "--tenant", "default").out
    assert shown.count("publish") == 3
    assert "note: [x]" in shown


def test_what_an_alias_has_meant(peltier: Peltier) -> None:
    """Newest first, with who said so; a deleted alias means nothing."""
    lines = peltier("alias", "sst2", "live", "--history").out.splitlines()
    said = [line for line in lines if "key:abcdefgh" in line]
    meanings = ("nothing", "version 1 (0.9), version 2 (0.1)", "version 1")
    assert all(meaning in line for meaning, line in zip(meanings, said, strict=True))
    changes = json.loads(peltier("alias", "sst2", "live", "--history", "--json").out)["changes"]
    assert [change["versions"] for change in changes] == [{}, {"1": 0.9, "2": 0.1}, {"1": 1.0}]


def test_versions_with_what_means_them(peltier: Peltier, server: Any, answer: Any) -> None:
    """Newest first; what is live, and each alias, with a share where it is not all; why not to use one."""
    old = {**VERSION, "deprecation": "worse [than] 2"}
    live = {"1": 0.9, "2": 0.1}
    found = {"versions": [outlined({**VERSION, "version": 2}), outlined(old)]}
    aliases = {"aliases": {"canary": {"2": 1.0}, "production": live}, "live": live}
    server.planned.extend([answer(200, found), answer(200, {**adapter("sst2"), **aliases})])
    header, second, first = peltier("versions", "sst2").out.splitlines()
    assert header.split() == ["version", "created", "preset", "size", "sha256", "state", "aliases"]
    assert second.startswith("2 ")
    assert "live (0.1)  " in second
    assert second.rstrip().endswith("canary, production (0.1)")
    assert VERSION["digest"].removeprefix("sha256:") in first
    assert "live (0.9), deprecated: worse [than] 2  production (0.9)" in first
    server.planned.extend([answer(200, found), answer(200, {**adapter("sst2"), **aliases})])
    document = json.loads(peltier("versions", "sst2", "--json").out)
    assert (document["name"], document["live"]) == ("sst2", live)
    assert [(one["version"], one.get("deprecation")) for one in document["versions"]] == [
        (2, None),
        (1, "worse [than] 2"),
    ]


def test_the_aliases_of_an_adapter(peltier: Peltier, server: Any, answer: Any) -> None:
    """What each means, since when and by whom; where there are none, how to make one."""
    line = peltier("alias", "sst2").out.splitlines()[1]
    assert line.split() == ["live", "version", "1", *line.split()[3:5], "key:abcdefgh"]
    assert json.loads(peltier("alias", "sst2", "--json").out)["aliases"][0]["versions"] == {"1": 1.0}
    server.planned.append(answer(200, {"aliases": []}))
    assert "peltier alias sst2 production VERSION" in peltier("alias", "sst2").out


def test_those_commands_speak_json_too(peltier: Peltier) -> None:
    """One document each."""
    assert json.loads(peltier("alias", "sst2", "live", "1", "--json").out)["versions"] == {"1": 1.0}
    assert json.loads(peltier("rollback", "sst2", "live", "--json").out)["alias"] == "live"
    assert json.loads(peltier("deprecate", "sst2@1", "old", "--json").out)["deprecation"] == "old"
    assert json.loads(peltier("undelete", "sst2@1", "--json").out)["version"] == 1
    assert [one["id"] for one in json.loads(peltier("audit", "--limit", "2", "--json").out)["records"]] == [3, 2]


def test_an_empty_server_says_what_next(peltier: Peltier, server: Any, answer: Any) -> None:
    """An empty list is a sentence, not an empty table."""
    server.planned.append(answer(200, {"adapters": [], "next_cursor": None}))
    assert "peltier upload" in peltier("list").out


LONG = "intents-of-customers.of-the-bank_in-every-language.with-slang-2"
WIDE: dict[str, tuple[tuple[str, ...], dict[str, Any], list[str]]] = {
    "list": (
        ("list",),
        {
            "adapters": [
                {**summary(LONG), "latest": outlined({**VERSION, "name": LONG, "preset": "unipelt-apl-central"})}
            ]
        },
        [LONG, "unipelt-apl-central", "classification"],
    ),
    "keys": (
        ("keys", "list"),
        {
            "keys": [
                {
                    **KEY,
                    "tenant": LONG,
                    "scopes": ["admin", "predict", "publish"],
                    "note": "nightly scoring of the [data] warehouse, asked for by the team of risk",
                    "revoked_at": KEY["created_at"],
                }
            ]
        },
        [LONG, "nightly scoring of the [data] warehouse, asked for by the team of risk", "abcdefgh"],
    ),
    "tenants": (
        ("tenants", "list"),
        {"tenants": [{**TENANT, "name": LONG, "quotas": {**QUOTAS, "max_stored_bytes": 2**40}}]},
        [LONG, "1,099,511,627,776"],
    ),
    "audit": (
        ("audit",),
        {
            "records": [
                {
                    "id": 1,
                    "at": VERSION["created_at"],
                    "tenant": LONG,
                    "actor": "key:abcdefgh",
                    "action": "deprecate",
                    "subject": f"{LONG}@12",
                    "detail": {"reason": "slower than the version before it, and no better on any set"},
                }
            ]
        },
        [LONG, f"deprecate {LONG}@12", "reason: slower than the version before it, and no better on any set"],
    ),
    "aliases": (
        ("alias", "sst2"),
        {"aliases": [{**alias({"1": 0.9, "2": 0.1}), "alias": LONG, "created_by": f"oidc:{LONG}"}]},
        [LONG, "version 1 (0.9), version 2 (0.1)", f"oidc:{LONG}"],
    ),
    "versions": (
        ("versions", "sst2"),
        {
            "versions": [
                outlined({**VERSION, "preset": "unipelt-apl-central", "deprecation": "slower than the one before"})
            ]
        },
        ["unipelt-apl-central", "deprecated: slower than the one before", f"{LONG}, production (0.9)"],
    ),
    "alias": (
        ("alias", "sst2", "live", "--history"),
        {"changes": [{**alias({str(number): 0.2 for number in range(1001, 1006)}), "created_by": f"oidc:{LONG}"}]},
        [f"oidc:{LONG}", "version 1005 (0.2)"],
    ),
}

# What the server answers to a command's second request.
SECOND = {"versions": {**adapter("sst2"), "aliases": {LONG: {"1": 1.0}, "production": {"1": 0.9, "2": 0.1}}}}


@pytest.mark.parametrize("name", WIDE)
def test_a_pipe_gets_whole_values(peltier: Peltier, server: Any, answer: Any, name: str) -> None:
    """Every row of every table is one line, with every value in one piece."""
    words, body, values = WIDE[name]
    server.planned.extend(answer(200, one) for one in (body, SECOND.get(name)) if one is not None)
    lines = peltier(*words).out.splitlines()
    assert len(lines) == 2
    assert all(value in lines[1] for value in values)


@pytest.mark.parametrize("name", WIDE)
def test_what_is_a_table_is_also_one_document(peltier: Peltier, server: Any, answer: Any, name: str) -> None:
    """Whatever a command shows as a table, `--json` prints as one JSON document, and nothing beside it."""
    words, body, _ = WIDE[name]
    server.planned.extend(answer(200, one) for one in (body, SECOND.get(name)) if one is not None)
    outcome = peltier(*words, "--json")
    assert outcome.err == ""
    key = next(iter(body))
    assert len(json.loads(outcome.out)[key]) == len(body[key])


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("name", WIDE)
def test_a_terminal_can_be_narrow(
    peltier: Peltier, monkeypatch: pytest.MonkeyPatch, server: Any, answer: Any, name: str, columns: int
) -> None:
    """No line is longer than it, and no value is cut to a few letters: every word of ordinary length is whole."""
    words, body, values = WIDE[name]
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    server.planned.extend(answer(200, one) for one in (body, SECOND.get(name)) if one is not None)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", peltier(*words).out)
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= columns
    pieces = set(shown.split())
    assert all(word in pieces for value in values for word in value.split() if len(word) <= 10)
    assert min(len(piece) for line in shown.splitlines()[1:] for piece in [line.strip()] if piece) >= 2


def test_a_failure_is_one_line(peltier: Peltier, server: Any, refuse: Refuse) -> None:
    """The server's sentence and reasons come as one line on stderr, with status 1 and nothing on stdout."""
    server.planned.append(refuse(422, "artifact_refused", "the artifact\nis refused"))
    assert peltier("predict", "sst2", "text", "--json") == Outcome(1, "", "error: the artifact is refused: reason\n")


def test_a_refused_key_says_what_to_do(
    peltier: Peltier, monkeypatch: pytest.MonkeyPatch, server: Any, refuse: Refuse
) -> None:
    """A wrong key and no key are told apart, each with the next step."""
    server.planned.append(refuse(401, "unauthorized", "the API key is not one of this server's, for this reason"))
    assert peltier("list").err == (
        "error: the API key is not one of this server's, for this reason; check PELTIER_API_KEY or --api-key\n"
    )
    monkeypatch.delenv("PELTIER_API_KEY")
    server.planned.append(refuse(401, "unauthorized", "no key was sent, for this reason"))
    outcome = peltier("list")
    assert (outcome.status, outcome.err) == (1, "error: no key was sent, for this reason; set PELTIER_API_KEY\n")


@pytest.mark.parametrize("has_structlog", [False, True])
def test_retries_are_silent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: Any, refuse: Refuse, has_structlog: bool
) -> None:
    """Waiting for a full queue writes nothing but the answer, whichever way of logging stamina finds installed."""
    if has_structlog:
        (tmp_path / "structlog.py").write_text(
            "class Logger:\n"
            "    def warning(self, *_, **__):\n        print('retry')\n"
            "def get_logger(name):\n    return Logger()\n"
        )
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    server.planned.append(refuse(503, "queue_full", retry_after="0"))
    done = run_in_a_process("list", "--json", "--url", server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["adapters"]


def test_no_server(server: Any) -> None:
    """A refused connection names the address in one line."""
    server.close()
    done = run_in_a_process("list", "--url", server.url)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: no connection to {server.url}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("predict",),
        ("predict", "sst2"),
        ("predict", "../x", "text"),
        ("predict", "sst2", "text", "--nonsense"),
        ("predict", "sst2", "text", "--num-beams", "17"),
        ("predict", "sst2", "text", "--temperature", "3"),
        ("upload", "does-not-exist.safetensors"),
        ("delete", "sst2@0"),
        ("alias", "sst2@1", "live", "1"),
        ("alias", "sst2", "--history"),
        ("versions", "sst2@1"),
        ("alias", "sst2", "12", "1"),
        ("alias", "sst2", "live", "newest"),
        ("alias", "sst2", "live"),
        ("alias", "sst2", "live", "1", "--history"),
        ("alias", "sst2", "live", "1=0.9;2=0.1"),
        ("deprecate", "sst2@1"),
        ("deprecate", "sst2@1", "old", "--undo"),
        ("audit", "--limit", "0"),
        ("list", "--url", "localhost:8000"),
        ("list", "--api-key", "plt secret"),
        ("nonsense",),
    ],
)
def test_wrong_usage(peltier: Peltier, server: Any, words: tuple[str, ...]) -> None:
    """Wrong usage has status 2, says something on stderr, sends nothing and shows no key."""
    outcome = peltier(*words)
    assert outcome.status == 2
    assert outcome.err
    assert not outcome.out
    assert "secret" not in outcome.err
    assert not server.received


def test_an_unreadable_file_is_named(peltier: Peltier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the operating system refuses about a file is one line with the file's name."""
    path = tmp_path / "film.safetensors"
    path.write_bytes(b"artifact")

    def refuse_reading(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse_reading)
    assert peltier("upload", str(path)) == Outcome(1, "", f"error: {path}: Permission denied\n")


def test_version(peltier: Peltier) -> None:
    """--version names the release."""
    assert peltier("--version") == Outcome(0, f"peltier {version('peltier')}\n", "")


def test_help_lists_everything_and_loads_nothing() -> None:
    """The heavy commands are listed with a line of help each, and neither torch nor a server is imported."""
    program = (
        "import atexit, sys; from peltier_client.cli import main;"
        "heavy = {'torch', 'transformers', 'fastapi', 'peltier_server', 'peltier_adapters', 'peltier_training'};"
        "atexit.register(lambda: print('loaded:', sorted(heavy & set(sys.modules)))); main()"
    )
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=True)
    ours = (
        "predict",
        "upload",
        "list",
        "compare",
        "versions",
        "delete",
        "undelete",
        "alias",
        "rollback",
        "deprecate",
        "audit",
        "keys",
        "tenants",
    )
    for name in (*ours, *plugins.KNOWN):
        assert f" {name} " in done.stdout
    assert all(known.help in done.stdout for known in plugins.KNOWN.values())
    assert "loaded: []" in done.stdout


def test_the_library_loads_no_command_line() -> None:
    """Importing the client costs neither typer nor rich nor torch."""
    program = "import sys, peltier_client; print(sorted({'typer', 'rich', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_brought_command_runs(peltier: Peltier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A plain typed function becomes a command with its options, help and exit status."""
    bring(
        monkeypatch,
        tmp_path,
        "def greet(name: str, loud: bool = False):\n    'Say hello.'\n    print('hello', name, loud)",
    )
    peltier.announce("greet", "brought:greet")
    assert peltier("greet", "you", "--loud") == Outcome(0, "hello you True\n", "")
    assert "Say hello." in peltier("greet", "--help").out
    assert peltier("greet").status == 2
    assert " greet " in peltier("--help").out


@pytest.mark.parametrize("source", ["import missing_package", "def serve():\n    import missing_package.part"])
def test_a_missing_extra_is_one_sentence(
    peltier: Peltier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    """Whether at the import or in the call, a missing package names the extra that brings it."""
    bring(monkeypatch, tmp_path, source)
    peltier.announce("serve", "brought:serve")
    sentence = 'error: peltier serve needs missing_package, which is not installed: pip install "peltier[server]"\n'
    assert peltier("serve") == Outcome(1, "", sentence)


def test_errors_that_say_so_are_one_line(peltier: Peltier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Any package's exception with is_user_error is a sentence, without the client knowing the package."""
    bring(
        monkeypatch,
        tmp_path,
        "class E(Exception):\n    is_user_error = True\n\ndef f():\n    raise E('no such preset')",
    )
    peltier.announce("f", "brought:f")
    assert peltier("f") == Outcome(1, "", "error: no such preset\n")


@pytest.mark.parametrize(
    ("source", "bug"),
    [
        ("def f():\n    {}['x']", KeyError),
        ("def f():\n    import json.nonsense", ModuleNotFoundError),
        ("import peltier_nonsense", ModuleNotFoundError),
    ],
)
def test_a_bug_keeps_its_traceback(
    peltier: Peltier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, bug: type[Exception]
) -> None:
    """A mistake in the code is not dressed up as the user's."""
    bring(monkeypatch, tmp_path, source)
    peltier.announce("f", "brought:f")
    monkeypatch.setattr(sys, "argv", ["peltier", "f"])
    with pytest.raises(bug):
        cli.main()


def test_an_announced_command_never_replaces_ours(peltier: Peltier) -> None:
    """The client's own words keep their meaning."""
    peltier.announce("list", "brought:nothing")
    assert "sst2" in peltier("list").out


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_interrupting_is_quiet(server: Any, answer: Any) -> None:
    """Ctrl-C while waiting ends with status 130 and not a word."""
    asked, release = threading.Event(), threading.Event()

    def hang() -> None:
        asked.set()
        release.wait(10)

    server.planned.append(answer(before=hang))
    words = [sys.executable, "-m", "peltier_client", "list", "--url", server.url]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert asked.wait(10)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    release.set()
    assert (process.returncode, out, err) == (130, b"", b"")


def run_in_a_process(*words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run([sys.executable, "-m", "peltier_client", *words], capture_output=True, text=True, check=False)


def bring(monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> None:
    """Make `brought` an importable module with this source."""
    (folder / "brought.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "brought", raising=False)
