"""Draws the plots of docs/figures from the files that benchmarks write with --json.

    .venv/bin/python benchmarks/traffic.py --json runs/traffic.json
    .venv/bin/python benchmarks/traffic.py --adapters 1 10000 --json runs/traffic-10000.json
    .venv/bin/python benchmarks/peers/throughput.py --json runs/methods.json
    .venv/bin/python benchmarks/peers/crowds.py --json runs/crowds.json
    .venv/bin/python benchmarks/peers/loads.py --json runs/loads.json
    .venv/bin/python benchmarks/figures.py --from runs --to docs/figures

It draws each plot whose file exists. It needs matplotlib, which the extra training installs.
"""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from common.harness import create_parser, percentile

mpl.use("svg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

BLUE, ORANGE, GREY, GREEN = "#1f5fa8", "#d9722b", "#8a8f98", "#3a8f5c"
LABEL_PIXELS = 20


def draw_throughput(axes: Axes, found: dict[str, Any]) -> None:
    """Throughput at saturation against the number of adapters."""
    crowds = found["crowds"]
    counts = [crowd["adapters"] for crowd in crowds]
    # Wall-clock time would depend on other programs.
    rounds = [crowd["ratios"]["by CPU time"] for crowd in crowds]
    middles = [statistics.median(one) for one in rounds]
    axes.fill_between(counts, [min(one) for one in rounds], [max(one) for one in rounds], color=BLUE, alpha=0.12)
    axes.plot(counts, middles, marker="o", color=BLUE)
    for count, middle in zip(counts, middles, strict=True):
        axes.annotate(f"{middle:.2f}", (count, middle), (0, -19), textcoords="offset points", ha="center")
    adapters_axis(axes, counts, "adapters, asked by a power law; median and range of the rounds")
    axes.set_ylim(0, 1.05 * max(map(max, rounds)))
    axes.set_ylabel("requests a CPU second / one adapter's")
    axes.set_title(f"{counts[-1]:,} adapters: {middles[-1]:.0%} of one adapter's throughput on a core")


def draw_latency(axes: Axes, found: dict[str, Any]) -> None:
    """Percentiles of the latency under Poisson arrivals."""
    crowds = found["crowds"]
    shades = plt.get_cmap("Blues")
    # Evenly on the axis, up to the 99th.
    parts = [1 - 100 ** -(place / 50) for place in range(51)]
    for place, crowd in enumerate(crowds):
        color = ORANGE if place == 0 else shades(0.3 + 0.65 * place / (len(crowds) - 1))
        name = "1 adapter" if crowd["adapters"] == 1 else f"{crowd['adapters']:,} adapters"
        curve = [latency(crowd, part) / latency(crowd["first"], 0.5) for part in parts]
        axes.plot([1 / (1 - part) for part in parts], curve, color=color, label=name)
    axes.set_xscale("log")
    places = {1: "0", 2: "50", 10: "90", 100: "99"}
    axes.set_xticks(list(places), labels=list(places.values()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(left=1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("percentile of the requests (Poisson arrivals)")
    axes.set_ylabel("arrival to answer / one adapter's median")
    most = max(latency(crowd, 0.99) / latency(crowd["first"], 0.99) for crowd in crowds)
    axes.set_title(f"Up to {crowds[-1]['adapters']:,} adapters: p99 at most {most:.2f} times one adapter's")
    axes.legend(frameon=False, loc="upper left")


def draw_methods(axes: Axes, found: dict[str, Any]) -> None:
    """Throughput against the number of methods in a batch."""
    for library, cases in found.items():
        for width in ("64", "16"):
            counts = sorted(int(name.split()[1]) for name in cases if name.startswith(width) and "methods" in name)
            rounds = [cases[f"{width} lora"], *(cases[f"{width} {count} methods"] for count in counts)]
            name = f"{library}, 32 x {width}"
            draw_line(axes, name, [1, *counts], rounds, name if counts else name.replace(",", " (LoRA alone),"))
    axes.set_xlabel("methods in a batch of 32 rows (of 64 or 16 tokens) with 32 adapters")
    beside_plain(axes, [1, 8])
    own, other = (statistics.median(found[name]["64 4 methods"]) for name in ("peltier", "adapterhub"))
    axes.set_title(f"Four methods in a batch: {own / other:.1f} times as fast as AdapterHub's four forwards")
    axes.legend(frameon=False, loc="lower left", ncols=len(found), fontsize=9)


def draw_crowds(axes: Axes, found: dict[str, Any]) -> None:
    """Throughput of the forward alone against the number of adapters that are loaded."""
    counts = sorted({int(count) for widths in found.values() for count in widths})
    ends = {}
    for name, widths in found.items():
        own = [int(count) for count in widths]
        middles = draw_line(axes, name, own, [rounds["64"] for rounds in widths.values()], name)
        ends[name] = (own[-1], middles[-1])
    beside_plain(axes, counts)
    adapters_axis(axes, counts, "adapters loaded, asked by a power law; batches of 32 x 64 tokens")
    (most, own), (fewer, other) = ends["peltier, compacter"], ends["adapterhub, compacter"]
    axes.set_title(f"Peltier with {most:,} Compacters: {own:.2f}; AdapterHub with {fewer:,}: {other:.2f}")
    axes.legend(frameon=False, loc="lower left", ncols=3, fontsize=9)


def draw_ends(axes: Axes, curves: Mapping[str, Sequence[float]]) -> None:
    """A line for each name, against the adapters that are loaded, with the name at its end."""
    for name, values in curves.items():
        axes.plot(range(len(values)), values, **look(name))
    label_ends(axes, {name: (len(values) - 1, values[-1]) for name, values in curves.items()})


def draw_loads(axes: Axes, found: dict[str, Any]) -> None:
    """Load time against adapters that are loaded already."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("adapters loaded already")
    axes.set_ylabel("CPU time of one more load, ms")
    axes.set_title("Only Peltier loads the last adapter as fast as the first")
    draw_ends(axes, {name: smooth(own["seconds"], 1e3) for name, own in found.items()})


def draw_memory(axes: Axes, found: dict[str, Any]) -> None:
    """Memory against adapters that are loaded."""
    axes.set_xlabel("adapters loaded")
    axes.set_ylabel("memory above that with one, MB")
    axes.set_title("What an adapter takes in memory: in Peltier its tensors, and nothing more")
    bytes_of = {name: own["peak_bytes"] for name, own in found.items()}
    axes.set_ylim(0, 1.05 * max(own[-1] - own[0] for own in bytes_of.values()) / 1e6)
    draw_ends(axes, {name: [(one - own[0]) / 1e6 for one in own] for name, own in bytes_of.items()})


def smooth(values: Sequence[float], factor: float) -> list[float]:
    """The median of eleven neighbours, times `factor`."""
    return [factor * statistics.median(values[max(0, place - 5) : place + 6]) for place in range(len(values))]


def draw_line(
    axes: Axes, name: str, counts: Sequence[int], rounds: Sequence[Sequence[float]], label: str
) -> list[float]:
    """Draws the medians of the rounds, and returns them."""
    middles = [statistics.median(one) for one in rounds]
    face = "white" if look(name)["linestyle"] == "--" else None
    axes.plot(counts, middles, marker="o", markerfacecolor=face, label=label, **look(name))
    return middles


def beside_plain(axes: Axes, counts: Sequence[int]) -> None:
    """Draws a thin line for the reference."""
    axes.plot([counts[0], counts[-1]], [1, 1], color=GREY, linewidth=1, zorder=1)
    axes.set_ylim(0, 1.25)
    axes.set_ylabel("throughput / plain transformers'")


def look(name: str) -> dict[str, Any]:
    """A color for each library, a line for each method or shape."""
    library, _, kind = name.partition(", ")
    colors = {"peltier": BLUE, "adapterhub": ORANGE, "peft": GREEN}
    return {"color": colors[library], "linestyle": "-" if kind in ("compacter", "32 x 64") else "--"}


def label_ends(axes: Axes, ends: Mapping[str, tuple[float, float]]) -> None:
    """Writes each line's name at its end, without overlaps."""
    places = {name: axes.transData.transform(end)[1] for name, end in ends.items()}
    last = float("-inf")
    for name in sorted(places, key=lambda name: places[name]):
        last = max(places[name], last + LABEL_PIXELS)
        lift = (last - places[name]) * 72 / axes.figure.dpi
        axes.annotate(name, ends[name], (7, lift), textcoords="offset points", va="center", color=look(name)["color"])


def adapters_axis(axes: Axes, counts: Sequence[int], label: str) -> None:
    """Labels an axis with powers of ten, written out."""
    axes.set_xscale("log")
    axes.set_xticks(counts, labels=[f"{count:,}" for count in counts])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(label)


def latency(crowd: dict[str, Any], part: float) -> float:
    """A quantile of the latency in seconds: the median of the rounds."""
    return statistics.median(percentile(one, 100 * part) for one in crowd["latency_seconds"])


def read(files: Sequence[Path]) -> dict[str, Any]:
    """One run; of several those servers that no run before had, each beside the `first` of its own run."""
    found, *others = (json.loads(file.read_text()) for file in files)
    for run in (found, *others):
        for crowd in run.get("crowds", ()):
            crowd["first"] = run["crowds"][0]
    for other in others:
        known = {crowd["adapters"] for crowd in found["crowds"]}
        found["crowds"] += [crowd for crowd in other["crowds"] if crowd["adapters"] not in known]
    return dict(found)


FIGURES: dict[str, tuple[str, Callable[[Axes, dict[str, Any]], None]]] = {
    "throughput-adapters": ("traffic*.json", draw_throughput),
    "latency-adapters": ("traffic*.json", draw_latency),
    "throughput-presets": ("methods.json", draw_methods),
    "throughput-loaded": ("crowds.json", draw_crowds),
    "load-time": ("loads.json", draw_loads),
    "memory": ("loads.json", draw_memory),
}


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--from", dest="source", type=Path, default=Path("runs"), help="folder of the JSON files")
    parser.add_argument("--to", type=Path, default=Path("docs/figures"))
    parser.add_argument("--format", choices=("svg", "png"), default="svg")
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    plt.style.use(Path(__file__).with_suffix(".mplstyle"))
    for name, (source, draw) in FIGURES.items():
        files = sorted(given.source.glob(source), key=lambda file: len(file.name))
        if not files:
            continue
        figure, axes = plt.subplots()
        draw(axes, read(files))
        file = given.to / f"{name}.{given.format}"
        figure.savefig(file, dpi=110, metadata={"Date": None} if given.format == "svg" else None)
        plt.close(figure)
        print(file)


if __name__ == "__main__":
    main()
