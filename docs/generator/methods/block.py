"""One transformer block with its stations, and the marks of what a part adds at a station."""

from collections.abc import Iterator

from docs.generator.methods.canvas import COLOURS, Place, arrow, box, circle, line, text

# The line on which a token's values pass from left to right.
FLOW = 140
# Middle and width of each station; queries, keys and values are above each other.
MAPS = {
    "query": Place(165, FLOW - 56, 74),
    "key": Place(165, FLOW, 74),
    "value": Place(165, FLOW + 56, 74),
    "output": Place(376, FLOW, 66),
    "intermediate": Place(600, FLOW, 92),
    "ffn_output": Place(712, FLOW, 80),
}
NORMS = {"attention": Place(514, FLOW, 48), "ffn": Place(878, FLOW, 48)}
# Where an adapter acts on the output of a sub-layer, and where the residual is added to it.
SITES = {"attention": 438, "ffn": 786}
SUMS = {"attention": 472, "ffn": 832}
TOKENS = Place(52, FLOW, 68)


def block() -> Iterator[str]:
    """The frozen block of a BERT: attention and feed-forward layer, each with its residual and its norm."""
    yield text(164, 26, "attention", note=True)
    yield text(656, 26, "feed-forward layer", note=True)
    yield _residual(104, SUMS["attention"])
    yield _residual(546, SUMS["ffn"])
    for y in (FLOW - 56, FLOW, FLOW + 56):
        yield arrow(f"M{TOKENS[0] + 34} {FLOW}L{104} {FLOW}L{104} {y}L126 {y}")
        yield arrow(f"M202 {y}L236 {FLOW + (y - FLOW) / 3:g}")
    yield line(f"M316 {FLOW}H340")
    yield line(f"M410 {FLOW}H{SUMS['attention'] - 11}M{SUMS['attention'] + 11} {FLOW}H490M538 {FLOW}H554")
    yield line(f"M646 {FLOW}H672M752 {FLOW}H{SUMS['ffn'] - 11}M{SUMS['ffn'] + 11} {FLOW}H854")
    yield arrow(f"M902 {FLOW}H946")
    yield box(TOKENS, "tokens")
    yield box(Place(278, FLOW, 80, 56))
    yield text(278, FLOW - 2, "softmax")
    yield text(278, FLOW + 14, "(q kᵀ) v")
    for name, place in MAPS.items():
        yield box(place, label(name))
    for place in NORMS.values():
        yield box(place, "norm")
    for x in SUMS.values():
        yield circle(x, FLOW, "+")


def _residual(start: float, end: float) -> str:
    return arrow(f"M{start:g} {FLOW}V44H{end:g}V{FLOW - 14}")


def label(name: str) -> str:
    """What is written on a map: both sub-layers end with one that is called output."""
    return "output" if name == "ffn_output" else name


def chip(place: Place, words: str, kind: str, *, gate: str = "") -> Iterator[str]:
    """A part beside a map: a label at the lower edge of its station, and its gate."""
    x, y = place.x, place.y
    yield box(Place(x, y + 19, max(7 * len(words) + 14, 22), 18), "", kind)
    yield text(x, y + 23, words, note=True)
    if gate:
        yield circle(x + place.width / 2 - 2, y + 19, gate, "gate", 9)


def cells(x: float, y: float, kind: str) -> Iterator[str]:
    """Vectors in front of a station."""
    fill, stroke = COLOURS[kind]
    for number in range(3):
        edge = f'x="{x + 8 * number:g}" y="{y - 13:g}" width="8" height="26"'
        yield f'<rect {edge} fill="{fill}" stroke="{stroke}"/>'


def adapter(site: str, words: str, *, reads: str, gated: bool, copies: int) -> Iterator[str]:
    """A bottleneck below the flow, at the output of a sub-layer."""
    x, y = SITES[site], 252
    fill, stroke = COLOURS["bottleneck"]
    if reads == "output":
        yield arrow(f"M{x - 20} {FLOW}V{y - 34}")
    else:
        after = NORMS[site][0]
        yield arrow(f"M{after} {FLOW + 17}V{y}H{x + 50}", dashed=True)
    out = x + 12 if reads == "output" else x
    yield arrow(f"M{out} {y - 24}V{FLOW + 3}")
    edge = ["-44", "-30", "44", "-30", "16", "0", "44", "30", "-44", "30", "-16", "0"]
    points = [(float(a), float(b)) for a, b in zip(edge[::2], edge[1::2], strict=True)]
    for number in reversed(range(copies)):
        corners = " ".join(f"{x + a + 5 * number:g},{y + b + 4 * number:g}" for a, b in points)
        yield f'<polygon points="{corners}" fill="{fill}" stroke="{stroke}"/>'
    if gated:
        yield circle(out, FLOW + 44, "G", "gate", 11)
    yield text(x, y + 48 + 4 * (copies - 1), words, note=True)
