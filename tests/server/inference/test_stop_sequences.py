"""Texts end before the first stop sequence, for any division into pieces."""

from hypothesis import given
from hypothesis import strategies as st
from peltier_server.inference.stop_sequences import StopSequences

TEXTS = st.text("ab", max_size=12)


@given(pieces=st.lists(TEXTS, max_size=8), stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=4))
def test_a_text_ends_before_its_first_stop(pieces: list[str], stops: list[str]) -> None:
    """And is whole where it has none."""
    cutter, sent = StopSequences(stops), ""
    for number, piece in enumerate(pieces):
        sent += cutter.push(piece)
        so_far = "".join(pieces[: number + 1])
        places = [so_far.find(stop) for stop in stops if stop in so_far]
        assert cutter.found == bool(places)
        if places:
            assert sent == so_far[: min(places)]
            return
        assert so_far.startswith(sent)
    assert sent + cutter.end() == "".join(pieces)


def test_what_cannot_begin_a_stop_is_not_held_back() -> None:
    """A caller waits only for what may have to be left out."""
    cutter = StopSequences(["\n\n"])
    assert [cutter.push(piece) for piece in ("one", "\n", "two\n", "\nthree")] == ["one", "", "\ntwo", ""]
    assert cutter.found
