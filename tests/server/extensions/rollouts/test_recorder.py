"""Which requests are compared under a share."""

from peltier_server.extensions.rollouts.recorder import match


def test_each_request_is_compared_once() -> None:
    """With the newest one of the other version that waits, the candidate's first."""
    waiting: list[tuple[bool, bool]] = []
    assert [match(waiting, True, failed) for failed in (True, False)] == [None, None]
    assert [match(waiting, False, failed) for failed in (True, False, True)] == [(False, True), (True, False), None]
    assert match(waiting, True, False) == (False, True)
