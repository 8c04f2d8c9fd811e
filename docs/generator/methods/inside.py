"""What a part computes, as a row of boxes below the block."""

from collections.abc import Iterator

from docs.generator.methods.canvas import COLOURS, Place, arrow, box, circle, funnel, line, text

# The line of the row.
ROW = 408


def bottleneck(down: str, up: str, activation: str, reads: str, *, gated: bool) -> Iterator[str]:
    """z through a narrow layer, added to the output of the sub-layer."""
    yield box(Place(90, ROW, 112, 40), reads, "plain")
    yield arrow(f"M146 {ROW}H222")
    yield funnel(252, ROW, "D", "bottleneck", narrows=True)
    yield text(252, ROW + 54, down, note=True)
    yield arrow(f"M280 {ROW}H348")
    yield box(Place(386, ROW, 72, 32), activation, "plain")
    yield arrow(f"M422 {ROW}H490")
    yield funnel(520, ROW, "U", "bottleneck", narrows=False)
    yield text(520, ROW + 54, up, note=True)
    if gated:
        yield circle(610, ROW, "G", "gate")
        yield line(f"M547 {ROW}H599")
        yield arrow(f"M621 {ROW}H686")
    else:
        yield arrow(f"M547 {ROW}H686")
    yield circle(700, ROW, "+")
    yield arrow(f"M700 {ROW - 52}V{ROW - 14}")
    yield text(712, ROW - 44, "f, the sub-layer's output", anchor="start", note=True)
    yield arrow(f"M711 {ROW}H760")


def sum_of_products(left: str, right: str, note: str) -> Iterator[str]:
    """How D or U is made of smaller matrices, to the right of the row."""
    yield text(858, ROW - 26, "D, U =", note=True)
    yield box(Place(820, ROW, 40, 34), left, "bottleneck")
    yield text(850, ROW + 5, "⊗" if left == "Aᵢ" else "·")
    yield box(Place(892, ROW, 56, 34), right, "bottleneck")
    yield text(858, ROW + 36, note, note=True)


def lora(gated: bool) -> Iterator[str]:
    """A product of two thin matrices beside a frozen map."""
    yield from _frozen_map(sum_at=640)
    yield arrow(f"M120 {ROW + 10}H180V{ROW + 34}H252")
    yield funnel(282, ROW + 34, "A", "lora", narrows=True)
    yield text(282, ROW + 86, "in × r", note=True)
    yield arrow(f"M309 {ROW + 34}H424")
    yield funnel(454, ROW + 34, "B", "lora", narrows=False)
    yield text(454, ROW + 86, "r × out", note=True)
    yield arrow(f"M481 {ROW + 34}H{536 if gated else 532}")
    yield circle(550, ROW + 34, "G" if gated else "c", "gate" if gated else "plain", 13)
    yield arrow(f"M563 {ROW + 34}H640V{ROW + 14}")


def vera() -> Iterator[str]:
    """The product of two matrices that all tasks share, with the task's factors behind each."""
    yield from _frozen_map(sum_at=720)
    yield arrow(f"M120 {ROW + 10}H180V{ROW + 34}H222")
    yield funnel(252, ROW + 34, "A", "frozen", narrows=True)
    yield text(252, ROW + 86, "random, shared", note=True)
    yield arrow(f"M279 {ROW + 34}H346")
    yield box(Place(376, ROW + 34, 56, 30), "d", "lora")
    yield text(376, ROW + 86, "r factors", note=True)
    yield arrow(f"M404 {ROW + 34}H472")
    yield funnel(502, ROW + 34, "B", "frozen", narrows=False)
    yield text(502, ROW + 86, "random, shared", note=True)
    yield arrow(f"M529 {ROW + 34}H596")
    yield box(Place(626, ROW + 34, 56, 30), "b", "lora")
    yield text(626, ROW + 86, "out factors", note=True)
    yield arrow(f"M654 {ROW + 34}H720V{ROW + 14}")


def _frozen_map(sum_at: int) -> Iterator[str]:
    """x, the frozen map above its middle, and at `sum_at` the sum of the map's output and another one."""
    yield box(Place(90, ROW, 60, 40), "x", "plain")
    yield arrow(f"M120 {ROW - 10}H180V{ROW - 30}H306")
    yield box(Place(370, ROW - 30, 124, 34), "W, frozen")
    yield arrow(f"M432 {ROW - 30}H{sum_at}V{ROW - 12}")
    yield circle(sum_at, ROW, "+")
    yield arrow(f"M{sum_at + 11} {ROW}H{sum_at + 80}")
    yield text(sum_at + 90, ROW + 5, "y", anchor="start")


def prefix(gated: bool) -> Iterator[str]:
    """P keys and values in front of those of the text."""
    for number, name in enumerate(("keys", "values")):
        y = ROW - 28 + 60 * number
        yield text(70, y + 5, name)
        yield from _row(120, y, 6, "prefix")
        yield from _row(120 + 6 * 26, y, 14, "frozen")
        if gated:
            yield circle(198, y, "G", "gate")
    yield text(198, ROW + 68, "P, of the task", note=True)
    yield text(458, ROW + 68, "one for each token of the text", note=True)
    yield arrow(f"M650 {ROW}H720")
    yield box(Place(790, ROW, 136, 44), "attention, as before", "plain")


def prompt() -> Iterator[str]:
    """P vectors in front of the embeddings of the text."""
    yield text(70, ROW + 5, "embeddings")
    yield from _row(120, ROW, 6, "prompt")
    yield from _row(120 + 6 * 26, ROW, 14, "frozen")
    yield text(198, ROW + 44, "P, of the task", note=True)
    yield text(458, ROW + 44, "one for each token of the text", note=True)
    yield arrow(f"M650 {ROW}H720")
    yield box(Place(790, ROW, 136, 44), "all blocks, as before", "plain")


def biases() -> Iterator[str]:
    """A frozen map whose bias belongs to the task."""
    return _after_a_map("+", "b, of the task")


def scales() -> Iterator[str]:
    """A frozen map whose outputs are multiplied by the task's factors."""
    return _after_a_map("×", "l, of the task")


def _after_a_map(sign: str, label: str) -> Iterator[str]:
    yield box(Place(90, ROW, 60, 40), "x", "plain")
    yield arrow(f"M120 {ROW}H226")
    yield box(Place(290, ROW, 124, 34), "W, frozen")
    yield arrow(f"M352 {ROW}H446")
    yield circle(460, ROW, sign)
    yield box(Place(460, ROW + 58, 96, 30), label, "bias")
    yield arrow(f"M460 {ROW + 43}V{ROW + 14}")
    yield arrow(f"M471 {ROW}H560")
    yield text(570, ROW + 5, "y", anchor="start")


def every_weight() -> Iterator[str]:
    """All weights of the backbone move along a projection of one short vector."""
    yield box(Place(110, ROW, 150, 34), "θ, 20,000 numbers", "trained")
    yield arrow(f"M185 {ROW}H270")
    yield box(Place(360, ROW, 176, 34), "F, fixed at random")
    yield arrow(f"M448 {ROW}H566")
    yield circle(580, ROW, "+")
    yield box(Place(580, ROW + 58, 170, 30), "Wᵢ⁰, the checkpoint's")
    yield arrow(f"M580 {ROW + 43}V{ROW + 14}")
    yield arrow(f"M591 {ROW}H680")
    yield text(690, ROW + 5, "Wᵢ, every weight", anchor="start")


def _row(x: float, y: float, count: int, kind: str) -> Iterator[str]:
    fill, stroke = COLOURS[kind]
    for number in range(count):
        place = f'x="{x + 26 * number:g}" y="{y - 18:g}" width="24" height="36" rx="3"'
        yield f'<rect {place} fill="{fill}" stroke="{stroke}"/>'
