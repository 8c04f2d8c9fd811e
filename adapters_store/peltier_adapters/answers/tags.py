"""Tags of words or tokens: `O`, or a label with the prefix of a scheme. Imports no torch."""

from collections.abc import Iterator, Sequence

OUTSIDE = "O"
# The prefixes of BIO and BILOU, and of BIOES, which has E and S for L and U.
_BEGINS, _CONTINUES, _ENDS = ("B-", "U-", "S-"), ("I-", "L-", "E-"), ("L-", "E-", "U-", "S-")


def split_tag(tag: str) -> tuple[bool, str]:
    """Whether a tag begins an entity, and its label. A tag without a prefix continues an entity."""
    return tag.startswith(_BEGINS), tag[2:] if has_prefix(tag) else tag


def has_prefix(tag: str) -> bool:
    """Whether a tag has the prefix of a scheme, and a label after it."""
    return tag.startswith(_BEGINS + _CONTINUES) and len(tag) > 2


def join_tags(tags: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """The entities in tags of any scheme: the number of the first tag, that after the last one, and the label.

    A tag that continues no entity of its label begins one, as in IO."""
    first, label = 0, OUTSIDE
    for place, tag in enumerate([*tags, OUTSIDE]):
        begins, own = split_tag(tag)
        if label != OUTSIDE and (begins or own != label or tags[place - 1].startswith(_ENDS)):
            yield first, place, label
            label = OUTSIDE
        if own != OUTSIDE and label == OUTSIDE:
            first, label = place, own
