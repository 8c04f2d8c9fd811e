"""The shapes of graphs: few, so that most batches find a graph."""

from peltier_adapters.batch.shape import Shape

# The largest batch of a server's default settings.
MAX_TOKENS = 4096
_MIN_TOKENS = 32
_MIN_ROWS = 8
_MIN_ROW_TOKENS = 16


def round_shape(shape: Shape) -> Shape | None:
    """A shape that covers `shape` and is shared by many batches; None if no graph serves it."""
    if shape.tokens > MAX_TOKENS:
        return None
    return shape._replace(
        tokens=round_tokens(shape.tokens),
        rows=max(round_up(shape.rows), _MIN_ROWS),
        longest=max(round_up(shape.longest), _MIN_ROW_TOKENS),
    )


def round_up(count: int) -> int:
    """The smallest power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()


def round_tokens(count: int) -> int:
    """`count`, rounded up to a multiple of max(32, p / 4), where p is the largest power of two below `count`. So there
    are few different sizes."""
    step = max(round_up(count) // 8, _MIN_TOKENS)
    return -(-count // step) * step
