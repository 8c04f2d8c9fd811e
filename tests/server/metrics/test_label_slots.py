"""Which keys have their own labels."""

from hypothesis import given
from hypothesis import strategies as st
from peltier_server.metrics.label_slots import LabelSlots


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
