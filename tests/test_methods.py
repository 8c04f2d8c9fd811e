"""The pages of docs/methods: every preset has one, and what they count and draw is what the code does."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from peltier_adapters.presets.baselines import BASELINES
from peltier_adapters.presets.presets import PRESETS

from docs.generator.methods.canvas import COLOURS, DARK
from docs.generator.methods.counts import counts
from docs.generator.methods.drawing import drawing
from docs.generator.methods.method import METHODS
from docs.generator.methods.pages import method_files
from tests.support.published_counts import PUBLISHED

DOCS = Path(__file__).parent.parent / "docs"
NAMED = {method.name: method for method in METHODS}


def test_every_preset_has_one_page():
    """The baselines too; no page is of another method."""
    presets = [preset for method in METHODS for preset in method.presets]
    assert sorted(presets) == sorted([*PRESETS, *BASELINES])
    assert sorted(path.stem for path in (DOCS / "methods").glob("*.md")) == sorted(NAMED)


def test_a_formula_that_the_code_contradicts_is_refused():
    """Each formula of the pages is computed and compared with the count of the code."""
    assert "| `lora` | BERT-base | 4 L r H | 294,912 |" in counts(NAMED["lora"])
    rule = r"^the formula of 'lora', 2\*L\*r\*H, is 147456; the code counts 294912$"
    with pytest.raises(ValueError, match=rule):
        counts(replace(NAMED["lora"], bert=("2*L*r*H",)))


def test_counts_of_training_are_the_published_ones():
    """Each row of docs/methods.md#counts is a published count, which other tests compare with the code."""
    section = (DOCS / "methods.md").read_text().partition("\n## Counts\n")[2].partition("<a id")[0]
    rows = re.findall(r"^\|[^|]*\| ([\d,]+) \| ([\d,]+)", section, flags=re.MULTILINE)
    published = {(one.served, one.trained) for one in PUBLISHED if one.backbone == "bert-base"}
    assert len(rows) == 4
    assert {(int(served.replace(",", "")), int(trained.replace(",", ""))) for served, trained in rows} <= published


def words(name: str) -> list[str]:
    """What is written in the drawing of a method, without its title."""
    tree = ElementTree.fromstring(drawing(NAMED[name]))  # noqa: S314  # written by the function
    return [str(one.text) for one in tree.iter("{http://www.w3.org/2000/svg}text")]


def test_a_drawing_marks_where_the_parts_act():
    """At the sites and maps of the preset, with the sizes of its settings."""
    assert words("houlsby").count("48 wide") == 2
    assert words("pfeiffer").count("48 wide") == 1
    assert words("lora").count("+ A B") == 2
    assert words("bitfit").count("b") == 8
    assert words("unipelt").count("G") == 5
    assert "4 experts, 48 wide" in words("adamix")
    assert "one A for all maps" in words("compacter")


def test_text_is_readable_on_each_colour_in_both_modes():
    """At least 4.5 to 1, as WCAG 2.2 asks, for words and notes on each fill and on the ground."""
    grounds = {"#fff", *(fill for fill, _ in COLOURS.values())}
    for text in ("#222", "#555"):
        for ground in grounds:
            assert contrast(text, ground) >= 4.5, (text, ground)
            assert contrast(DARK[text], DARK[ground]) >= 4.5, (text, ground, "dark")


def contrast(one: str, other: str) -> float:
    """The ratio of the relative luminances of two colours (WCAG 2.2)."""
    darker, lighter = sorted(map(luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    values = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in values)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_drawing_says_what_it_shows():
    """For those who cannot see it: a title in the file and a text in the page."""
    for path, text in method_files().items():
        if path.suffix == ".svg":
            assert "<title>" in text
        else:
            assert re.search(r"!\[\w.{20,}\]\(\.\./figures/methods/", text), path
