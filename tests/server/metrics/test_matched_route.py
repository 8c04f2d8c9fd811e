"""Routes as labels."""

from tests.server.conftest import Running
from tests.server.metrics.test_metrics import samples_of

DEMO = "/v1/tasks/demo/predict"
TEMPLATE = "/v1/tasks/{task}/predict"


async def routes_of(running: Running) -> set[tuple[str, str]]:
    """Every method and path that has been measured."""
    return {
        (one.labels["method"], one.labels["path"])
        for one in await samples_of(running)
        if one.name == "peltier_route_request_seconds_count"
    }


async def test_a_prediction_and_a_refused_one_are_one_route(running: Running) -> None:
    """Its label is the template of the path."""
    await running.predict("demo", "good")
    assert await routes_of(running) == {("POST", TEMPLATE)}
    await running.client.post(DEMO, content=b"{", headers={"content-type": "application/json"})
    assert await routes_of(running) == {("POST", TEMPLATE), ("GET", "/metrics")}


async def test_callers_cannot_make_labels(running: Running) -> None:
    """All unknown paths and methods share one label each, and so do requests refused by authentication."""
    for number in range(20):
        await running.client.get(f"/v1/nothing/{number}")
        await running.client.get(f"/v1/adapters/{number}/versions")
        await running.client.request(f"METHOD{number}", f"/{number}")
        await running.client.request(f"METHOD{number}", "/info")
    await running.client.get("/info", headers={"origin": "https://evil.example"})
    assert await routes_of(running) == {
        ("GET", "none"),
        ("GET", "/v1/adapters/{name}/versions"),
        ("other", "none"),
        ("other", "/info"),
    }
