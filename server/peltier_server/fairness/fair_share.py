"""How much of something that all tenants share one of them may have: three times what is then left to everyone.

Alone that is three quarters. Beside n tenants that take all they can, one part of 3 n + 1 stays free for a newcomer.
"""

TIMES_THE_REST = 3


def max_alone(limit: int) -> int:
    """The most that a tenant may have of `limit` while nobody else has anything."""
    return TIMES_THE_REST * limit // (TIMES_THE_REST + 1)


def is_fair(held: int, rest: int) -> bool:
    """Whether one tenant may hold so much, where `rest` is what is then left to everyone."""
    return held <= TIMES_THE_REST * rest
