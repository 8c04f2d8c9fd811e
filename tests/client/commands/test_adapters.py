"""Commands that publish, list, name and delete adapters."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.client.conftest import VERSION, adapter, outlined


def test_upload_list_delete(peltier, tmp_path: Path) -> None:
    """Each command prints what it did."""
    path = tmp_path / "film.safetensors"
    path.write_bytes(b"artifact")
    assert peltier("upload", str(path), "--name", "sst2").out.startswith("published sst2 version 1 (compacter, sha256:")
    listed = peltier("list").out
    assert all(name in listed for name in ("nli", "sst2", "stsb", "compacter", "classification"))
    assert peltier("delete", "sst2@1").out == "deleted sst2@1\n"


def test_an_upload_of_known_bytes_names_the_version_that_is_live(peltier, server, answer, tmp_path):
    """The output says that nothing was published, and names the live version; so it does if a new one is not live."""
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


def test_a_report_of_the_bytes_is_sent_with_them(peltier, server, tmp_path: Path) -> None:
    """NAME.report.json beside the artifact; not one of other bytes, and none with --no-report."""
    path, report = tmp_path / "film.safetensors", tmp_path / "film.report.json"
    path.write_bytes(b"artifact")

    def sends(digest: str, *flags: str) -> bool:
        report.write_text(json.dumps({"artifact": {"digest": digest}}))
        peltier("upload", str(path), *flags)
        return b'name="report"; filename="film.report.json"' in server.received[-1].body

    own = f"sha256:{hashlib.sha256(b'artifact').hexdigest()}"
    assert sends(own)
    assert not sends(own, "--no-report")
    assert not sends(f"sha256:{'0' * 64}")


def test_which_version_answers_is_said(peltier, server) -> None:
    """Each command prints the new state; a rollback prints the shares."""
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


def test_what_an_alias_has_meant(peltier) -> None:
    """The history is newest first, with the author of each change; a deleted alias means nothing."""
    lines = peltier("alias", "sst2", "live", "--history").out.splitlines()
    said = [line for line in lines if "key:abcdefgh" in line]
    meanings = ("nothing", "version 1 (0.9), version 2 (0.1)", "version 1")
    assert all(meaning in line for meaning, line in zip(meanings, said, strict=True))
    changes = json.loads(peltier("alias", "sst2", "live", "--history", "--json").out)["changes"]
    assert [change["versions"] for change in changes] == [{}, {"1": 0.9, "2": 0.1}, {"1": 1.0}]


def test_versions_with_what_means_them(peltier, server, answer) -> None:
    """Newest first, with the live versions and aliases, their shares if they are split, and the reason of a
    deprecation."""
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


def test_the_aliases_of_an_adapter(peltier, server, answer) -> None:
    """Each alias has its versions, time and author; if there are none, the output says how to set one."""
    line = peltier("alias", "sst2").out.splitlines()[1]
    assert line.split() == ["live", "version", "1", *line.split()[3:5], "key:abcdefgh"]
    assert json.loads(peltier("alias", "sst2", "--json").out)["aliases"][0]["versions"] == {"1": 1.0}
    server.planned.append(answer(200, {"aliases": []}))
    assert "peltier alias sst2 production VERSION" in peltier("alias", "sst2").out


def test_an_empty_server_says_what_next(peltier, server, answer) -> None:
    """An empty list is a sentence, not an empty table."""
    server.planned.append(answer(200, {"adapters": [], "next_cursor": None}))
    assert "peltier upload" in peltier("list").out


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (("upload", "film.safetensors"), "version", 1),
        (("delete", "sst2"), "deleted", "sst2"),
        (("alias", "sst2", "live", "1"), "versions", {"1": 1.0}),
        (("rollback", "sst2", "live"), "alias", "live"),
        (("deprecate", "sst2@1", "old"), "deprecation", "old"),
        (("undelete", "sst2@1"), "version", 1),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_commands_print_json(peltier, tmp_path, monkeypatch, words, key, value):
    """One document."""
    monkeypatch.chdir(tmp_path)
    Path("film.safetensors").write_bytes(b"artifact")
    assert json.loads(peltier(*words, "--json").out)[key] == value


def test_a_version_is_written_as_it_was_uploaded(peltier, tmp_path, monkeypatch):
    """To a file named after it, or the given one; nothing is said on stderr, which is no terminal."""
    monkeypatch.chdir(tmp_path)
    outcome = peltier("download", "sst2@1")
    assert (outcome.out, outcome.err) == ("wrote sst2@1 to sst2-1.safetensors (8 bytes)\n", "")
    assert (tmp_path / "sst2-1.safetensors").read_bytes() == b"artifact"
    document = json.loads(peltier("download", "sst2@1", "--output", "f", "--json").out)
    assert document == {"name": "sst2", "version": 1, "output": "f", "size_bytes": 8}


def test_a_name_is_the_version_that_answers(peltier, server, answer, tmp_path, monkeypatch):
    """Of a split, one must be named."""
    monkeypatch.chdir(tmp_path)
    found = adapter("sst2") | {"aliases": {"live": {"1": 1.0}}, "live": {"1": 0.9, "2": 0.1}}
    server.planned.append(answer(200, found))
    assert peltier("download", "sst2@live").out.startswith("wrote sst2@1 to ")
    server.planned.append(answer(200, found))
    outcome = peltier("download", "sst2")
    assert outcome.status == 1
    assert outcome.err == "error: task 'sst2' answers from versions 1, 2: name one version, such as sst2@1\n"
    server.planned.append(answer(200, found))
    assert "task 'sst2@none' is no alias" in peltier("download", "sst2@none").err


PIN = {"pinned_at": "2026-11-21T00:00:00Z", "pinned_by": "key:abcdefgh"}


def test_a_pin_is_made_and_released(peltier, server, answer) -> None:
    """The answer says by whom and when it was made."""
    server.planned.append(answer(200, PIN))
    assert "sst2 is pinned by key:abcdefgh at 2026-11-2" in peltier("pin", "sst2").out
    sent = server.received[-1]
    assert (sent.method, sent.path, json.loads(sent.body)) == ("PUT", "/v1/adapters/sst2/pin", {})
    server.planned.append(answer(204))
    assert peltier("unpin", "sst2").out == "unpinned sst2\n"
