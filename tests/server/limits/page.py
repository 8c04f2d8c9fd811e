"""docs/limits.md as rows."""

import re
from dataclasses import dataclass
from pathlib import Path

from peltier_client.protocol.administration import TenantQuotas
from peltier_server.extensions.settings import SETTINGS

PAGE = Path(__file__).parents[3] / "docs/limits.md"
_NUM_CELLS = 5
_UNITS = {
    "": 1.0,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "ms": 0.001,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "days": 86_400.0,
}
_STATUS = re.compile(r"(\d{3}) `(\w+)`: (.+)")


@dataclass(frozen=True)
class Row:
    """One bound. `default` is as it stands there; `number` what it means, None where it is a word."""

    bound: str
    set_by: str
    default: str
    reads: str

    @property
    def number(self) -> float | None:
        found = re.fullmatch(r"([\d,.]+) ?([A-Za-z]*)", self.default)
        return None if found is None else float(found[1].replace(",", "")) * _UNITS[found[2]]

    @property
    def names(self) -> set[str]:
        return set(re.findall(r"`(\w+)`", self.set_by + self.bound))

    @property
    def default_in_code(self) -> object:
        """The default of the setting or quota that alone sets the bound; raises KeyError where it is another thing."""
        found = re.fullmatch(r"(quota )?`(\w+)`", self.set_by)
        if found is None:
            raise KeyError(self.set_by)
        return getattr(TenantQuotas(), found[2]) if found[1] else SETTINGS[found[2]].default

    @property
    def answer(self) -> tuple[int, str, re.Pattern[str]] | None:
        found = _STATUS.fullmatch(self.reads)
        if found is None:
            return None
        return int(found[1]), found[2], re.compile(".+".join(map(re.escape, found[3].split("…"))))


def read_limits() -> dict[str, Row]:
    """Every row of the page's tables of bounds, by its first cell; a bound stands there once."""
    rows: dict[str, Row] = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("| ") or len(cells) != _NUM_CELLS or cells[0] == "bound":
            continue
        bound, set_by, default, _protects, reads = cells
        assert bound not in rows, f"the page has two rows {bound!r}"
        rows[bound] = Row(bound, set_by, default, reads)
    return rows
