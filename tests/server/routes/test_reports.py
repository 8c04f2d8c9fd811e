"""The reports of trainings over HTTP."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from peltier_backbone.backbone import Backbone
from peltier_client.protocol.reports import MAX_REPORT_BYTES, VersionReport

from tests.server.conftest import Running
from tests.training.report.test_page import HOSTILE, create_report

PATH = "/v1/adapters/a/versions/{}/report"


@pytest.fixture
def artifact(bert: Backbone, make_artifact: Callable[..., bytes]) -> bytes:
    return make_artifact(bert, "bitfit", name="a")


def report_of(artifact: bytes, **changes: object) -> dict[str, Any]:
    report: dict[str, Any] = create_report(HOSTILE).model_dump(mode="json")
    report["artifact"]["digest"] = f"sha256:{hashlib.sha256(artifact).hexdigest()}"
    return report | changes


async def upload(running: Running, artifact: bytes, report: object) -> httpx2.Response:
    data = report if isinstance(report, bytes) else json.dumps(report).encode()
    return await running.client.post("/v1/adapters", files={"file": artifact, "report": ("a.report.json", data)})


async def test_a_report_is_read_with_its_version(caller: Running, artifact: bytes) -> None:
    """With texts as they were sent, and without keys that the protocol does not name."""
    sent = report_of(artifact, html="<script>alert(1)</script>")
    assert (await upload(caller, artifact, sent)).status_code == 201
    answer = await caller.client.get(PATH.format(1))
    assert answer.headers["content-type"] == "application/json"
    assert "html" not in answer.json()["report"]
    report = VersionReport.model_validate_json(answer.content).report
    assert report is not None
    assert report.confusion is not None
    assert report.task.labels == list(HOSTILE)
    assert report.confusion.matrix == sent["confusion"]["matrix"]


async def test_a_version_without_a_report_has_none(caller: Running, artifact: bytes) -> None:
    """A later upload of the same bytes adds it; a deleted version has no route."""
    await caller.upload(artifact)
    assert (await caller.client.get(PATH.format(1))).json() == {"report": None}
    assert (await upload(caller, artifact, report_of(artifact))).status_code == 200
    assert (await caller.client.get(PATH.format(1))).json()["report"]["name"] == "toy"
    await caller.client.delete("/v1/adapters/a/versions/1")
    assert (await caller.client.get(PATH.format(1))).status_code == 404


REFUSED: dict[str, tuple[Callable[[bytes], object], str]] = {
    "another artifact": (lambda artifact: report_of(b"other"), "the report is of the artifact sha256:"),
    "no JSON": (lambda artifact: b"<!doctype html>", "the report is refused: as a whole"),
    "a wrong type": (lambda artifact: report_of(artifact, metrics={"a": "b"}), "the report is refused: metrics.a"),
    "a section is missing": (
        lambda artifact: {key: value for key, value in report_of(artifact).items() if key != "cost"},
        "the report is refused: cost",
    ),
    "too deep": (lambda artifact: b"[" * 100_000 + b"]" * 100_000, "the report is refused: as a whole"),
    "too large": (lambda artifact: bytes(MAX_REPORT_BYTES + 1), "the report has more than 1048576 bytes"),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_what_is_no_report_of_the_artifact_is_refused(caller: Running, artifact: bytes, kind: str) -> None:
    make, sentence = REFUSED[kind]
    answer = await upload(caller, artifact, make(artifact))
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].startswith(sentence)
    assert (await caller.client.get("/v1/adapters")).json()["adapters"] == []
