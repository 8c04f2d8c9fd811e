"""The dashboards: overview, tenants, adapters, engine."""

from panels import Board, Panel, Query, Section

_HERE = 'instance=~"$instance"'
_TENANT = f'{_HERE}, tenant=~"$tenant"'
_VERSION = f'{_TENANT}, adapter=~"$adapter"'
_QUANTILES = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"))


def _rate(metric: str, labels: str = _HERE, by: str = "") -> str:
    """Events a second."""
    inner = f"rate({metric}{{{labels}}}[$__rate_interval])"
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"


def _quantile(quantile: float, metric: str, labels: str = _HERE, by: str = "") -> str:
    return f"histogram_quantile({quantile}, {_rate(f'{metric}_bucket', labels, ', '.join(filter(None, (by, 'le'))))})"


def _quantiles(metric: str, labels: str = _HERE) -> list[Query]:
    return [Query(_quantile(quantile, metric, labels), name) for quantile, name in _QUANTILES]


def _mean(metric: str) -> str:
    return f"{_rate(f'{metric}_sum')} / {_rate(f'{metric}_count')}"


def _failed(metric: str, labels: str, by: str = "") -> str:
    failed = f'{labels}, code=~"5..|424"'
    some, every = _rate(metric, failed, by), _rate(metric, labels, by)
    # Without a failure there is no series of one, and the share is 0.
    return f"({some} or 0 * {every}) / {every}"


def _requests(failed: str) -> str:
    return _rate("peltier_requests_total", f"{_HERE}, {failed}")


OVERVIEW = Board(
    "overview",
    "Whether the servers answer, how fast, and what limits them.",
    [
        Section(
            "Now",
            [
                Panel("Servers ready", "Servers whose /ready is 200.", "none",
                      [Query(f"sum(peltier_ready{{{_HERE}}})")], "number", width=4),
                Panel("Requests a second", "Answered requests of all tenants.", "reqps",
                      [Query(_rate("peltier_requests_total"))], "number", width=4),
                Panel("Failed", "Share of requests that read 5xx or 424.", "percentunit",
                      [Query(_failed("peltier_requests_total", _HERE))], "number", (0.001, 0.01), width=4),
                Panel("p99", "99th percentile from a request to the end of its answer.", "s",
                      [Query(_quantile(0.99, "peltier_request_seconds"))], "number", (0.25, 1), width=4),
                Panel("Queue", "Tokens in the queue, as a share of max_queue_tokens.", "percentunit",
                      [Query(f"sum(peltier_queue_tokens{{{_HERE}}}) / sum(peltier_queue_max_tokens{{{_HERE}}})")],
                      "number", (0.25, 0.5), width=4, maximum=1),
                Panel("Quarantined", "Versions that are refused after repeated failures.", "none",
                      [Query(f"sum(peltier_quarantined_adapters{{{_HERE}}})")], "number", (1, 5), width=4),
            ],
        ),
        Section(
            "Requests",
            [
                Panel("Requests by status", "499 is a caller who disconnected.", "reqps",
                      [Query(_rate("peltier_requests_total", by="code"), "{{code}}")], stacked=True),
                Panel("Latency", "From a request to the end of its answer.", "s",
                      _quantiles("peltier_request_seconds"), levels=(0.25, 1)),
                Panel("Failed by server", "Share of requests that read 5xx or 424.", "percentunit",
                      [Query(_failed("peltier_requests_total", _HERE, "instance"), "{{instance}}")],
                      levels=(0.001, 0.01), maximum=1),
                Panel("Requests by route", "By the template of the path; none is an unknown path.", "reqps",
                      [Query(_rate("peltier_route_request_seconds_count", by="method, path"), "{{method}} {{path}}")],
                      width=12),
                Panel("p99 by route", "From a request to the end of its answer.", "s",
                      [Query(_quantile(0.99, "peltier_route_request_seconds", by="method, path"),
                             "{{method}} {{path}}")], width=12),
            ],
        ),
        Section(
            "Where the time goes",
            [
                Panel("Waiting for a batch", "Time of a row in the queue.", "s",
                      _quantiles("peltier_queue_seconds"), levels=(0.1, 0.5)),
                Panel("Computing a batch", "Time of a whole batch.", "s", _quantiles("peltier_compute_seconds")),
                Panel("Loading an adapter", "To the device, from the host's memory or the store.", "s",
                      [Query(_quantile(0.99, "peltier_adapter_load_seconds", by="from"), "p99 from {{from}}")]),
            ],
        ),
        Section(
            "Processes",
            [
                Panel("CPU", "Cores in use.", "none",
                      [Query(_rate("process_cpu_seconds_total", f'job="peltier", {_HERE}', "instance"),
                             "{{instance}}")]),
                Panel("Memory", "Resident bytes.", "bytes",
                      [Query(f'process_resident_memory_bytes{{job="peltier", {_HERE}}}', "{{instance}}")]),
                Panel("File descriptors", "Share of the limit of the process.", "percentunit",
                      [Query(f'process_open_fds{{job="peltier", {_HERE}}} / process_max_fds', "{{instance}}")],
                      levels=(0.6, 0.8), maximum=1),
                Panel("Uploads", "By result.", "ops",
                      [Query(_rate("peltier_uploads_total", by="result"), "{{result}}")], stacked=True),
                Panel("Runner restarts", "Compute threads that were stuck and replaced, in the last hour.", "none",
                      [Query(f"increase(peltier_runner_restarts_total{{{_HERE}}}[1h])", "{{instance}}")],
                      levels=(1,), width=16),
            ],
        ),
    ],
)  # fmt: skip

TENANTS = Board(
    "tenants",
    "Who uses the servers, and what each tenant reads.",
    [
        Section(
            "Use",
            [
                Panel("Requests", "Answered requests by tenant. _others shares a series, _nobody has no key.", "reqps",
                      [Query(_rate("peltier_requests_total", _TENANT, "tenant"), "{{tenant}}")], stacked=True),
                Panel("Computed tokens", "Tokens a second, read and generated.", "none",
                      [Query(_rate("peltier_tenant_served_tokens_total", _TENANT, "tenant"), "{{tenant}}")],
                      stacked=True),
                Panel("Rows", "Rows and texts that left the queue to be computed.", "ops",
                      [Query(_rate("peltier_tenant_rows_total", _TENANT, "tenant"), "{{tenant}}")], stacked=True),
                Panel("Tokens in the last hour", "Computed tokens, which is what a quota of tokens counts.", "none",
                      [Query(f"sum by (tenant) (increase(peltier_tenant_served_tokens_total{{{_TENANT}}}[1h]))",
                             "{{tenant}}")], "bars", width=24),
            ],
        ),
        Section(
            "Waiting",
            [
                Panel("Queued tokens", "Tokens in the queue by tenant.", "none",
                      [Query(f"sum by (tenant) (peltier_queue_tokens{{{_TENANT}}})", "{{tenant}}")],
                      width=12, stacked=True),
                Panel("Mean wait of a row", "Time in the queue, by tenant.", "s",
                      [Query(f"{_rate('peltier_tenant_queue_seconds_total', _TENANT, 'tenant')}"
                             f" / {_rate('peltier_tenant_rows_total', _TENANT, 'tenant')}", "{{tenant}}")],
                      levels=(0.1, 0.5), width=12),
            ],
        ),
        Section(
            "What they read",
            [
                Panel("Failed", "Share of requests that read 5xx or 424, by tenant.", "percentunit",
                      [Query(_failed("peltier_requests_total", _TENANT, "tenant"), "{{tenant}}")],
                      levels=(0.001, 0.01), maximum=1),
                Panel("Refused by a quota", "Requests a second that read 429, by tenant.", "reqps",
                      [Query(_rate("peltier_requests_total", f'{_TENANT}, code="429"', "tenant"), "{{tenant}}")],
                      levels=(1,)),
                Panel("By status", "Requests a second by tenant and status.", "reqps",
                      [Query(_rate("peltier_requests_total", _TENANT, "tenant, code"), "{{tenant}} {{code}}")]),
                Panel("Truncated inputs", "Inputs a second that were cut to the max_length of their task.", "ops",
                      [Query(_rate("peltier_truncated_inputs_total", _TENANT, "tenant"), "{{tenant}}")], width=24),
            ],
        ),
    ],
    [("tenant", "peltier_requests_total")],
)  # fmt: skip

ADAPTERS = Board(
    "adapters",
    "Which versions answer, how fast, and where adapters are kept.",
    [
        Section(
            "Versions",
            [
                Panel("Requests", "By adapter version; a split shows as two lines.", "reqps",
                      [Query(_rate("peltier_adapter_requests_total", _VERSION, "tenant, adapter, version"),
                             "{{tenant}}:{{adapter}}@{{version}}")], stacked=True),
                Panel("p99", "From a request to the end of its answer, by version.", "s",
                      [Query(_quantile(0.99, "peltier_adapter_request_seconds", _VERSION,
                                       "tenant, adapter, version"), "{{tenant}}:{{adapter}}@{{version}}")]),
                Panel("Failed", "Share of requests that read 5xx or 424, by version.", "percentunit",
                      [Query(_failed("peltier_adapter_requests_total", _VERSION, "tenant, adapter, version"),
                             "{{tenant}}:{{adapter}}@{{version}}")], levels=(0.001, 0.01), maximum=1),
                Panel("Most requested", "Requests of the last hour, the ten versions with most.", "none",
                      [Query("topk(10, sum by (tenant, adapter, version) "
                             f"(increase(peltier_adapter_requests_total{{{_VERSION}}}[1h])))",
                             "{{tenant}}:{{adapter}}@{{version}}")], "bars", width=16),
                Panel("Quarantined", "Versions that are refused after repeated failures.", "none",
                      [Query(f"peltier_quarantined_adapters{{{_HERE}}}",
                             "{{tenant}}:{{adapter}}@{{version}}, {{instance}}")], levels=(1, 5)),
            ],
        ),
        Section(
            "Tiers",
            [
                Panel("Adapters", "In each cache tier.", "none",
                      [Query(f"sum by (tier) (peltier_adapters{{{_HERE}}})", "{{tier}}")]),
                Panel("Bytes", "Of adapters in each cache tier.", "bytes",
                      [Query(f"sum by (tier) (peltier_adapter_bytes{{{_HERE}}})", "{{tier}}")]),
                Panel("Where lookups end", "Share of lookups by the tier that had the adapter.", "percentunit",
                      [Query(f"{_rate('peltier_adapter_cache_requests_total', by='result')}"
                             f" / ignoring(result) group_left {_rate('peltier_adapter_cache_requests_total')}",
                             "{{result}}")], stacked=True, maximum=1),
                Panel("Evictions", "Adapters evicted from a tier.", "ops",
                      [Query(_rate("peltier_adapter_evictions_total", by="tier"), "{{tier}}")]),
                Panel("Evictions by lookup", "Evictions from the device for each lookup.", "percentunit",
                      [Query(f"""{_rate('peltier_adapter_evictions_total', f'{_HERE}, tier="device"')}"""
                             f" / {_rate('peltier_adapter_cache_requests_total')}", "share")], levels=(0.02, 0.1)),
                Panel("Loads", "Adapters loaded to the device, and loads that failed.", "ops",
                      [Query(_rate("peltier_adapter_loads_total"), "loaded"),
                       Query(_rate("peltier_adapter_load_failures_total"), "failed")]),
                Panel("Waiting for a load", "Until a load began (store), or there was room on the device (room).", "s",
                      [Query(_quantile(0.99, "peltier_adapter_wait_seconds", by="for"), "p99 for {{for}}")], width=24),
            ],
        ),
    ],
    [("tenant", "peltier_adapter_requests_total"), ("adapter", "peltier_adapter_requests_total")],
)  # fmt: skip

ENGINE = Board(
    "engine",
    "What the compute thread does: batches, their contents, and generated texts.",
    [
        Section(
            "Batches",
            [
                Panel("Batches a second", "By server.", "ops",
                      [Query(_rate("peltier_compute_seconds_count", by="instance"), "{{instance}}")]),
                Panel("Compute time", "Of a batch.", "s", _quantiles("peltier_compute_seconds")),
                Panel("Busy", "Share of the time in which the thread computes batches or steps.", "percentunit",
                      [Query(f"{_rate('peltier_compute_seconds_sum', by='instance')}"
                             f" + {_rate('peltier_decode_step_seconds_sum', by='instance')}", "{{instance}}")],
                      levels=(0.7, 0.9), maximum=1),
                Panel("Rows of a batch", "Mean, and 90th percentile.", "none",
                      [Query(_mean("peltier_batch_rows"), "mean"),
                       Query(_quantile(0.9, "peltier_batch_rows"), "p90")]),
                Panel("Tokens of a batch", "Mean, and 90th percentile.", "none",
                      [Query(_mean("peltier_batch_tokens"), "mean"),
                       Query(_quantile(0.9, "peltier_batch_tokens"), "p90")]),
                Panel("Adapters of a batch", "Distinct adapters: mean, and 90th percentile.", "none",
                      [Query(_mean("peltier_batch_adapters"), "mean"),
                       Query(_quantile(0.9, "peltier_batch_adapters"), "p90")]),
                Panel("Tokens a second", "Computed in batches.", "none",
                      [Query(_rate("peltier_batch_tokens_sum", by="instance"), "{{instance}}")], width=12),
                Panel("Queue", "Tokens that wait, by server, and the bound.", "none",
                      [Query(f"sum by (instance) (peltier_queue_tokens{{{_HERE}}})", "{{instance}}"),
                       Query(f"peltier_queue_max_tokens{{{_HERE}}}", "max_queue_tokens {{instance}}")], width=12),
            ],
        ),
        Section(
            "Generated texts",
            [
                Panel("Generated tokens", "Tokens a second.", "none",
                      [Query(_rate("peltier_generated_tokens_total", by="instance"), "{{instance}}")]),
                Panel("Texts in progress", "Texts and beams that are decoded at once.", "none",
                      [Query(f"peltier_decode_rows{{{_HERE}}}", "{{instance}}")]),
                Panel("Decoding step", "Time in which every text in progress gets a token.", "s",
                      _quantiles("peltier_decode_step_seconds")),
            ],
        ),
        Section(
            "Thread",
            [
                Panel("Restarts", "Stuck compute threads that were replaced, in the last hour.", "none",
                      [Query(f"increase(peltier_runner_restarts_total{{{_HERE}}}[1h])", "{{instance}}")],
                      levels=(1,), width=12),
                Panel("Ready", "1 while /ready is 200.", "none",
                      [Query(f"peltier_ready{{{_HERE}}}", "{{instance}}")], width=12, maximum=1),
            ],
        ),
    ],
)  # fmt: skip

BOARDS = (OVERVIEW, TENANTS, ADAPTERS, ENGINE)
