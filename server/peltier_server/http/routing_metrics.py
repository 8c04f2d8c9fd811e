"""The gauges by which endpoint pickers choose a replica.

Endpoint pickers follow the Gateway API Inference Extension, as llm-d-router does. They read the gauges of every replica
up to twenty times a second, with the names and labels of vLLM's:

- `lora_requests_info` has its information in labels, which list names separated by commas, and the time as its value.
- `num_requests_waiting` and `num_requests_running` count requests, here rows: an input, or a window of a long one.
- `kv_cache_usage_perc` is a share from 0 to 1 of memory in use, here of the adapters on the device.
"""

import time
from collections.abc import Iterable
from itertools import chain, islice

from peltier_server.service import Service

_GAUGES = (
    ("num_requests_running", "Rows and texts that are computed", " {running}"),
    ("num_requests_waiting", "Rows in the queue, and adapters that are loaded", " {waiting}"),
    ("kv_cache_usage_perc", "Share of the device's memory for adapters that is in use", " {usage}"),
    (
        "lora_requests_info",
        "Adapters on the device and adapters that are loaded; the value is the time",
        '{{max_lora="{max_lora}",running_lora_adapters="{on_device}",waiting_lora_adapters="{loading}"}} {now}',
    ),
)


class RoutingMetrics:
    """The page of the gauges.

    An adapter on the device is running, because it answers at once, and an adapter that is being loaded is waiting. An
    idle adapter can be evicted, so only leased ones use memory. `max_lora` is the number of the listed names and of the
    adapters that fit beside them without an eviction. So a picker sees free room exactly if there is some, also where
    the device has more adapters than are listed.
    """

    def __init__(self, *, prefix: str, max_names: int) -> None:
        """`prefix` begins the name of each gauge. At most `max_names` names are listed, those of the most recently used
        adapters first."""
        self._max_names = max_names
        self._page = "".join(
            f"# HELP {prefix}{name} {text}\n# TYPE {prefix}{name} gauge\n{prefix}{name}{sample}\n"
            for name, text, sample in _GAUGES
        )

    def page(self, service: Service) -> str:
        """The gauges now, as Prometheus' text. Its time depends on `max_names`, not on the number of adapters."""
        slots, batcher, names_of = service.slots, service.batcher, service.catalog.references
        on_device = self._names(chain.from_iterable(map(names_of, slots.device.loaded())))
        loading = self._names(chain.from_iterable(map(names_of, slots.loading())))
        return self._page.format(
            running=batcher.running_rows,
            waiting=batcher.queued_rows + slots.num_loading,
            usage=slots.device.leased_share,
            max_lora=len(on_device) + len(loading) + slots.device.num_free,
            on_device=",".join(on_device),
            loading=",".join(loading),
            now=round(time.time(), 3),
        )

    def _names(self, names: Iterable[str]) -> dict[str, None]:
        # Adapters of two tenants may have the same name.
        return dict.fromkeys(islice(names, self._max_names))
