"""The page of all metrics, in Prometheus' text format or in OpenMetrics."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

_OPENMETRICS = "application/openmetrics-text"
# Escapes underscores, so it changes every name. The library writes such a page.
_REWRITES_NAMES = "escaping=dots"
_CREATED = "_created"
_number: Callable[[float], str] = floatToGoString


class Exposition:
    """Writes pages of one registry, each equal to that of the library.

    The library takes most of its time to write the names and labels of the series anew. Here the series of the last
    page are remembered. Counters, gauges and histograms are supported, with names that Prometheus has always allowed.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._names: dict[tuple[str, ...], str] = {}

    def page(self, accept: str) -> tuple[bytes, str]:
        """The page in the format that `accept` prefers, and its content type."""
        encode, content_type = choose_encoder(accept)
        if _REWRITES_NAMES in content_type:
            return encode(self._registry), content_type
        names: dict[tuple[str, ...], str] = {}
        write = self._openmetrics if content_type.startswith(_OPENMETRICS) else self._text
        page = "".join(write(names)).encode()
        self._names = names
        return page, content_type

    def _openmetrics(self, names: dict[tuple[str, ...], str]) -> Iterator[str]:
        for family in self._registry.collect():
            yield _head(family.name, family.type, _escaped(family.documentation))
            yield from self._lines(family.samples, names)
        yield "# EOF\n"

    def _text(self, names: dict[tuple[str, ...], str]) -> Iterator[str]:
        for family in self._registry.collect():
            text = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
            created_name = family.name + _CREATED
            yield _head(_text_name(family), family.type, text)
            yield from self._lines([one for one in family.samples if one.name != created_name], names)
            created = [one for one in family.samples if one.name == created_name]
            if created:
                yield _head(created_name, "gauge", text)
                yield from self._lines(created, names)

    def _lines(self, samples: list[Sample], names: dict[tuple[str, ...], str]) -> Iterator[str]:
        for sample in samples:
            # All samples of a name have the same labels in the same order.
            key = (sample.name, *sample.labels.values())
            name = names[key] = self._names.get(key) or _name(sample)
            yield f"{name} {_number(sample.value)}\n"


def _text_name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _head(name: str, kind: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _name(sample: Sample) -> str:
    labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in sorted(sample.labels.items()))
    return f"{sample.name}{{{labels}}}" if labels else sample.name


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
