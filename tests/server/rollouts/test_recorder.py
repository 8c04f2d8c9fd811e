"""Which requests are compared under a share."""

from peltier_server.rollouts.recorder import Trial, match


def test_each_trial_is_compared_once() -> None:
    """With the newest one of the other version that waits, the candidate's first."""
    waiting: list[tuple[bool, Trial]] = []
    first, second, *others = (Trial(False, float(number)) for number in range(5))
    assert [match(waiting, True, one) for one in (first, second)] == [None, None]
    assert [match(waiting, False, one) for one in others] == [(second, others[0]), (first, others[1]), None]
    assert match(waiting, True, first) == (first, others[2])
