"""What the caller's adapters answered, and where they are."""

from collections.abc import Callable

from peltier_backbone.backbone import Backbone

from tests.server.conftest import Running


async def test_requests_errors_and_tiers_are_those_of_each_version(
    caller: Running, bert: Backbone, make_artifact: Callable[..., bytes]
) -> None:
    """A version that nobody asked is not there; one that is deleted is there no more."""
    digests = [
        (await caller.upload(make_artifact(bert, "bitfit", name=name, seed=seed))).json()["digest"]
        for seed, name in enumerate(("asked", "idle", "gone"))
    ]
    for _ in range(3):
        assert (await caller.predict("asked", "good")).is_success
    assert (await caller.predict("asked", "good", num_beams=2)).status_code == 422
    assert (await caller.predict("gone", "good")).is_success
    await caller.client.delete("/v1/adapters/gone")
    activity = (await caller.client.get("/v1/activity")).json()
    (one,) = activity["versions"]
    assert (one["name"], one["version"], one["tier"], one["requests"], one["errors"]) == ("asked", 1, "device", 4, 1)
    assert 0 < one["p50_seconds"] <= one["p99_seconds"]
    # Golden examples of an upload run on the device.
    assert {resident["digest"] for resident in activity["residents"]} == set(digests[:2])
    assert activity["num_residents"] == 2


async def test_an_answer_has_at_most_as_many_as_asked(
    caller: Running, bert: Backbone, make_artifact: Callable[..., bytes]
) -> None:
    """The versions with most requests first; all residents are counted."""
    for seed, name in enumerate(("a", "b", "c")):
        await caller.upload(make_artifact(bert, "bitfit", name=name, seed=seed))
    for task in ("b", "b", "c"):
        await caller.predict(task, "good")
    activity = (await caller.client.get("/v1/activity", params={"limit": 1})).json()
    assert [one["name"] for one in activity["versions"]] == ["b"]
    assert (len(activity["residents"]), activity["num_residents"]) == (1, 3)
