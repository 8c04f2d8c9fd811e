"""The pages of several replicas as one page for Prometheus."""

import re
from collections.abc import Mapping

_FAMILY = re.compile(r"^# (?:HELP|TYPE) (\S+)")
_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{)?")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def merge_pages(pages: Mapping[str, bytes]) -> bytes:
    """One page in Prometheus' text format with every sample of `pages`, each with the label `replica`, the key of its
    page. The samples of a metric stand together, as the format requires."""
    heads, samples = dict[str, list[str]](), dict[str, list[str]]()
    for replica, page in sorted(pages.items()):
        family = ""
        for line in page.decode().splitlines():
            if found := _FAMILY.match(line):
                family = found[1]
                head = heads.setdefault(family, [])
                if line not in head:
                    head.append(line)
            elif line and not line.startswith("#"):
                samples.setdefault(family, []).append(_labelled(line, replica))
    return "".join(f"{line}\n" for family in heads for line in (*heads[family], *samples.get(family, ()))).encode()


def _labelled(sample: str, replica: str) -> str:
    name, rest = _SAMPLE.match(sample), ""
    assert name is not None, "every other line is a sample"
    rest = sample[name.end() :]
    return f'{name[1]}{{replica="{replica}"' + (f",{rest}" if name[2] else f"}}{rest}")
