"""Values of labels: keys, tenants and routes."""

from hypothesis import given
from hypothesis import strategies as st
from peltier_server.metrics.labels import LabelSlots, TenantLabels

from tests.server.conftest import Running
from tests.server.metrics.test_metrics import samples_of

DEMO = "/v1/tasks/demo/predict"
TEMPLATE = "/v1/tasks/{task}/predict"


def test_free_slots_are_taken_at_the_first_use() -> None:
    """Later keys have none until slots change their key."""
    slots = LabelSlots[str](2)
    assert [slots.use(key) for key in ("a", "b", "c", "a")] == [True, True, False, True]
    assert slots.held == {"a", "b"}


def test_a_key_that_is_clearly_used_more_takes_the_slot_of_the_least_used() -> None:
    """More than twice as much; the others stay."""
    slots = LabelSlots[str](2)
    for key in "aab" + 3 * "c":
        slots.use(key)
    assert slots.turn_over(worth=1.0) == {"b"}
    assert slots.held == {"a", "c"}


def test_the_counts_of_many_keys_take_bounded_memory() -> None:
    """Where nothing turns slots over, too; the most used keys are remembered."""
    slots = LabelSlots[int](2)
    for key in range(10_000):
        slots.use(key)
        slots.use(1)
        slots.use(-1)
    assert len(slots._uses) <= 200
    assert slots.turn_over(worth=1.0) == {0}
    assert slots.held == {1, -1}


def test_keys_that_are_used_alike_do_not_take_turns() -> None:
    """Every change of hands makes new time series."""
    slots = LabelSlots[str](1)
    for _ in range(10):
        for key in "abb":
            slots.use(key)
        assert slots.turn_over(worth=0.9) == frozenset()
    assert slots.held == {"a"}


def test_uses_of_long_ago_count_less() -> None:
    """Who was used most last year makes room for who is used now."""
    slots = LabelSlots[str](1)
    for _ in range(100):
        slots.use("old")
    assert slots.turn_over(worth=0.01) == frozenset()
    for _ in range(3):
        slots.use("new")
    assert slots.turn_over(worth=1.0) == {"old"}
    assert slots.held == {"new"}


def test_a_tenth_of_the_slots_changes_hands_at_a_time() -> None:
    """The least used go first, the most used come first."""
    slots = LabelSlots[int](20)
    for key in range(20):
        slots.use(key)
    for key in range(20, 40):
        for _ in range(key):
            slots.use(key)
    assert len(slots.turn_over(worth=1.0)) == 2
    assert slots.held >= {39, 38}
    assert len(slots.held) == 20


def test_without_slots_nobody_has_one() -> None:
    """However often it is used."""
    slots = LabelSlots[str](0)
    assert not slots.use("a")
    assert slots.turn_over(worth=0.5) == frozenset()
    assert not slots.use("a")


@given(max_slots=st.integers(0, 4), steps=st.lists(st.one_of(st.integers(0, 9), st.none()), max_size=100))
def test_no_more_keys_have_slots_than_there_are(max_slots: int, steps: list[int | None]) -> None:
    """For any sequence of uses and changes; a key that loses its slot had one, and has none then."""
    slots = LabelSlots[int](max_slots)
    for step in steps:
        before = slots.held
        if step is None:
            lost = slots.turn_over(worth=0.5)
            assert lost <= before - slots.held
            assert len(slots.held) == len(before)
        else:
            assert slots.use(step) == (step in slots.held)
            assert before <= slots.held
        assert len(slots.held) <= max_slots


def test_tenant_labels_are_bounded_in_number() -> None:
    """The first tenants keep their labels."""
    labels = TenantLabels(max_labels=2)
    assert [labels.of(tenant) for tenant in ("a", "b", "c", "a", "d", "b")] == [
        "a",
        "b",
        "_others",
        "a",
        "_others",
        "b",
    ]
    assert set(labels.known) == {"a", "b", "_others"}


def test_callers_without_a_key_share_a_label() -> None:
    """Which no tenant can have as a name."""
    assert TenantLabels().of(None) == "_nobody"


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
