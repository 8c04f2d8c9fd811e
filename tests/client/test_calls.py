"""What each call sends, and what it refuses before anything is sent."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from peltier_client import Client, InvalidInput, PeltierError

Call = Callable[[Client], Any]
SINCE = datetime(2026, 11, 21, tzinfo=UTC)
TEXTS = "/v1/tasks/sst2/predict"


def sent(call: Call) -> list[httpx2.Request]:
    """The requests of one call; the first is answered by an error that is not retried."""
    requests: list[httpx2.Request] = []

    def refuse(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return httpx2.Response(404)

    with Client(transport=httpx2.MockTransport(refuse)) as client, pytest.raises(PeltierError):
        call(client)
    return requests


CALLS: dict[str, tuple[Call, str, object]] = {
    "delete": (lambda c: c.delete("a"), "DELETE /v1/adapters/a", None),
    "delete a version": (lambda c: c.delete("a@3"), "DELETE /v1/adapters/a/versions/3", None),
    "undelete": (lambda c: c.undelete("a@3"), "POST /v1/adapters/a/versions/3/undelete", None),
    "deprecate": (lambda c: c.deprecate("a@3", "x"), "POST /v1/adapters/a/versions/3/deprecate", {"reason": "x"}),
    "end a deprecation": (
        lambda c: c.deprecate("a@3", None), "POST /v1/adapters/a/versions/3/deprecate", {"reason": None},
    ),
    "set_public": (lambda c: c.set_public("a", True), "PATCH /v1/adapters/a", {"public": True}),
    "manifest": (lambda c: c.manifest("a", 3), "GET /v1/adapters/a/versions/3/manifest", None),
    "report": (lambda c: c.report("a", 3), "GET /v1/adapters/a/versions/3/report", None),
    "set_alias": (lambda c: c.set_alias("a", "live", 3), "PUT /v1/adapters/a/aliases/live", {"version": 3}),
    "split an alias": (
        lambda c: c.set_alias("a", "live", {3: 0.9, 4: 0.1}),
        "PUT /v1/adapters/a/aliases/live", {"versions": {"3": 0.9, "4": 0.1}},
    ),
    "alias_history": (lambda c: c.alias_history("a", "live"), "GET /v1/adapters/a/aliases/live/history", None),
    "rollback_alias": (lambda c: c.rollback_alias("a", "live"), "POST /v1/adapters/a/aliases/live/rollback", None),
    "delete_alias": (lambda c: c.delete_alias("a", "live"), "DELETE /v1/adapters/a/aliases/live", None),
    "pin": (lambda c: c.pin("a"), "PUT /v1/adapters/a/pin", {}),
    "unpin": (lambda c: c.unpin("a"), "DELETE /v1/adapters/a/pin", None),
    "create_key": (
        lambda c: c.create_key("predict", tenant="a", note="n"),
        "POST /v1/keys", {"tenant": "a", "scopes": ["predict"], "note": "n"},
    ),
    "keys": (lambda c: c.keys("a"), "GET /v1/keys?limit=100&tenant=a", None),
    "revoke_key": (lambda c: c.revoke_key("a/b"), "DELETE /v1/keys/a%2Fb", None),
    "create_tenant": (
        lambda c: c.create_tenant("a", max_adapters=3),
        "POST /v1/tenants", {"name": "a", "quotas": {"max_adapters": 3}},
    ),
    "set_tenant": (
        lambda c: c.set_tenant("a", tokens_per_second=0.5, weight=2),
        "PUT /v1/tenants/a", {"tokens_per_second": 0.5, "weight": 2.0},
    ),
    "audit": (
        lambda c: next(c.audit("acme", since=SINCE, actor=None, action="publish")),
        "GET /v1/audit?limit=100&tenant=acme&since=2026-11-21T00%3A00%3A00%2B00%3A00&action=publish", None,
    ),
    "start_rollout": (
        lambda c: c.start_rollout("a", "live", 2, shadow=True, margin=0.01),
        "PUT /v1/adapters/a/aliases/live", {"candidate": 2, "guard": {"shadow": True, "margin": 0.01}},
    ),
    "stop_rollout": (lambda c: c.stop_rollout("a", "live"), "POST /v1/adapters/a/aliases/live/stop", None),
    "feedback": (
        lambda c: c.feedback("r", row=2, label=("a", "b")),
        "POST /v1/feedback", {"request_id": "r", "row": 2, "label": ["a", "b"]},
    ),
    "a verdict": (lambda c: c.feedback("r", right=False), "POST /v1/feedback", {"request_id": "r", "right": False}),
    "pause": (lambda c: c.trainings.pause("t"), "POST /v1/trainings/t/pause", None),
    "resume": (lambda c: c.trainings.resume("t"), "POST /v1/trainings/t/resume", None),
    "cancel": (lambda c: c.trainings.cancel("t"), "POST /v1/trainings/t/cancel", None),
    "delete a training": (lambda c: c.trainings.delete("t"), "DELETE /v1/trainings/t", None),
    "content": (lambda c: c.files.content("f"), "GET /v1/files/f/content", None),
    "file": (lambda c: c.files.get("f"), "GET /v1/files/f", None),
    "delete a file": (lambda c: c.files.delete("f"), "DELETE /v1/files/f", None),
    "cancel a batch": (lambda c: c.batches.cancel("b"), "POST /v1/batches/b/cancel", None),
    "predict a text": (lambda c: c.predict("sst2", "a"), f"POST {TEXTS}", {"inputs": "a"}),
    "predict texts": (lambda c: c.predict("sst2", ["a", "b"]), f"POST {TEXTS}", {"inputs": ["a", "b"]}),
    "predict pairs": (lambda c: c.predict("sst2", [("a", "b")]), f"POST {TEXTS}", {"inputs": [["a", "b"]]}),
    "predict an iterator": (lambda c: c.predict("sst2", iter("ab")), f"POST {TEXTS}", {"inputs": ["a", "b"]}),
    "embed": (
        lambda c: c.embed("vectors", ["a", "b"], dimensions=2, timeout_ms=10),
        "POST /v1/tasks/vectors/predict", {"inputs": ["a", "b"], "parameters": {"dimensions": 2, "timeout_ms": 10}},
    ),
    "embed by the backbone": (
        lambda c: c.embed("_backbone", "a"), "POST /v1/tasks/_backbone/predict", {"inputs": "a"},
    ),
    "stream": (
        lambda c: next(c.stream("e2e", ("a", "b"), temperature=0.0, max_new_tokens=5)),
        "POST /v1/tasks/e2e/predict",
        {"inputs": [["a", "b"]], "parameters": {"max_new_tokens": 5, "temperature": 0.0}, "stream": True},
    ),
    "predict_many": (
        lambda c: c.predict_many([("a", "x"), ("b@2", ("x", "y"))], top_k=1),
        "POST /v1/predict",
        {"requests": [
            {"task": "a", "input": "x", "parameters": {"top_k": 1}},
            {"task": "b@2", "input": ["x", "y"], "parameters": {"top_k": 1}},
        ]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_what_is_sent(name: str) -> None:
    """Method, address and body of the contract, without what is the default."""
    call, address, body = CALLS[name]
    (request,) = sent(call)
    assert f"{request.method} {request.url.raw_path.decode()}" == address
    assert (json.loads(request.content) if request.content else None) == body


SHAPE = "^inputs: must be a text, a non-empty list"
REFUSED: list[tuple[Call, str]] = [
    (lambda c: c.adapter("../x"), "^name '../x' is not allowed"),
    (lambda c: c.adapter(""), "^name '' is not allowed"),
    (lambda c: c.versions("sst2@1"), "^name 'sst2@1' is not allowed"),
    (lambda c: c.upload(b"", "a b"), "^name 'a b' is not allowed"),
    (lambda c: c.undelete("a"), "^task 'a' is not a version of an adapter of your own"),
    (lambda c: c.undelete("other:a@3"), "is not a version of an adapter of your own"),
    (lambda c: c.deprecate("a@live", "old"), "is not a version of an adapter of your own"),
    (lambda c: c.deprecate("a@3", ""), "^reason: string should have at least 1 character"),
    (lambda c: c.delete("a@live"), "cannot be deleted"),
    (lambda c: c.delete("other:a"), "cannot be deleted"),
    (lambda c: c.delete("a@0"), "^version '0' is not allowed"),
    (lambda c: c.set_alias("a", "12", 3), "^alias '12' is not allowed: a number means a version"),
    (lambda c: c.set_alias("a", "live", True), "^version: input should be a valid integer"),
    (lambda c: c.set_alias("a", "live", 0), "^version: input should be greater"),
    (lambda c: c.set_alias("a", "live", {"x": 1.0}), "^versions.x"),
    (lambda c: c.set_alias("a/b", "live", 3), "^name 'a/b' is not allowed"),
    (lambda c: c.rollback_alias("a", "../x"), "^alias '../x' is not allowed"),
    (lambda c: c.create_key(), "^scopes"),
    (lambda c: c.create_key("root"), "^scopes"),
    (lambda c: c.create_key("predict", expires_at=datetime(2099, 1, 1)), "^expires_at"),
    (lambda c: c.create_tenant("No Name"), "^name"),
    (lambda c: c.set_tenant("a", requests_per_second=0), "^requests_per_second"),
    (lambda c: c.keys("No Name"), "^tenant 'No Name' is not allowed"),
    (lambda c: c.audit("a b"), "^tenant 'a b' is not allowed"),
    (lambda c: c.audit(since=datetime(2026, 11, 21)), r"^since is 2026-11-21T00:00:00, which has no time zone"),
    (lambda c: c.start_rollout("a", "live", 2), "either a share between 0 and 1, or shadow: true"),
    (lambda c: c.feedback("r"), "exactly one of them"),
    (lambda c: c.trainings.get(""), "the id of the training is empty"),
    (lambda c: c.files.get(""), "the id of the file is empty"),
    (lambda c: c.predict("sst2", ("premise", "hypothesis")), r"write \[\(text, pair\)\]"),
    (lambda c: c.predict("sst2", []), SHAPE),
    (lambda c: c.predict("sst2", [1]), SHAPE),
    (lambda c: c.predict("sst2", ["\ud800"]), "^inputs: must be .* in valid Unicode$"),
    (lambda c: c.predict("sst2", "a", topk=1), r"^parameters\.topk is not a known key$"),
    (lambda c: c.predict("sst2", "a", top_k=0), r"^parameters\.top_k: input should be greater than or equal to 1$"),
    (lambda c: c.predict("sst2", "a", num_beams=17), r"^parameters\.num_beams: input should be less than or equal"),
    (lambda c: c.predict("sst2", "a", temperature=float("nan")), r"^parameters\.temperature: "),
    (lambda c: c.predict("sst2", "a", answer="guess"), r"^parameters\.answer: input should be 'score' or 'generate'$"),
    (lambda c: c.predict_tasks([], "a"), "^tasks: list should have at least 1 item"),
    (lambda c: c.predict_tasks(["a"], ["b"]), "^input: must be a text or a"),
    (lambda c: c.predict_tasks(["a"], None), "^a body has either requests, or tasks and an input$"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_a_mistake_is_refused_before_it_is_sent(call: Call, sentence: str) -> None:
    """In one sentence that names the thing and the rule; no name leaves its place in an address."""
    transport = httpx2.MockTransport(lambda _: pytest.fail("a request was sent"))
    with Client(transport=transport) as client, pytest.raises(InvalidInput, match=sentence):
        call(client)


def test_a_missing_file_is_the_callers_own_error() -> None:
    """Reading the artifact fails as reading any file does."""
    with Client() as client, pytest.raises(FileNotFoundError):
        client.upload("does-not-exist.safetensors")
