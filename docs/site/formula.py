"""Formulas: a block ```math of a page, which git hosts draw from LaTeX, becomes MathML, which browsers draw."""

from typing import Any

from latex2mathml.converter import convert


def as_mathml(source: str, language: str, css_class: str, options: Any, md: Any, **more: Any) -> str:
    """The block's formulas as one element; the signature is that of a custom fence of pymdownx.superfences."""
    return f'<div class="{css_class}">{convert(source.strip(), display="block")}</div>'
