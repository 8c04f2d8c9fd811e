"""Creation and comparison of keys."""

import re

import pytest
from peltier_server.auth.credentials import Credentials, prefix_of

CREDENTIALS = Credentials(b"a secret of the server's own")


def test_a_key_has_the_form_of_the_contract() -> None:
    """256 random bits behind a public prefix."""
    issued = CREDENTIALS.issue()
    assert re.fullmatch(r"plt_[a-z0-9]{8}_[A-Za-z0-9_-]{43}", issued.text)
    assert prefix_of(issued.text) == issued.prefix


def test_no_two_keys_are_alike() -> None:
    """Neither the whole nor the prefix."""
    many = [CREDENTIALS.issue() for _ in range(1000)]
    assert len({one.text for one in many}) == len({one.prefix for one in many}) == 1000


def test_a_key_matches_its_digest_alone() -> None:
    """Another key of the same prefix does not, nor does the key under another server's secret."""
    issued = CREDENTIALS.issue()
    other = issued.text[:-1] + ("A" if issued.text[-1] != "A" else "B")
    assert CREDENTIALS.matches(issued.text, issued.digest)
    assert not CREDENTIALS.matches(other, issued.digest)
    assert not Credentials(b"another secret").matches(issued.text, issued.digest)


def test_a_key_is_in_no_repr() -> None:
    """What is logged by mistake opens nothing."""
    issued = CREDENTIALS.issue()
    assert issued.text not in repr(issued)
    assert issued.digest not in repr(issued)


@pytest.mark.parametrize(
    "text",
    ["", "plt_", "plt_abcdefgh_short", f"plt_abcdefgh_{'x' * 44}", f"plt_ABCDEFGH_{'x' * 43}", "plt_é" + "x" * 50],
)
def test_other_text_is_no_key(text: str) -> None:
    """For any text that a caller sends."""
    assert prefix_of(text) is None
