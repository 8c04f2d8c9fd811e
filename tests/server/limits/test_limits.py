"""docs/limits.md describes the server: each row is tested on a running server, and every bound has a row."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import httpx2
import peltier_backbone
import peltier_client.protocol
import peltier_server
import peltier_store
import pytest
from peltier_backbone.backbone import Backbone
from peltier_client.protocol.administration import TenantQuotas
from peltier_server.extensions.settings import SETTINGS

from tests.server.conftest import Listen
from tests.server.limits import (  # noqa: F401 - each registers its probes
    of_batches,
    of_life,
    of_memory,
    of_requests,
    of_rollouts,
    of_stores,
    of_tenants,
    of_texts,
    of_the_queue,
    of_trainings,
    of_uploads,
)
from tests.server.limits.page import Row, read_limits
from tests.server.limits.probe import PROBES
from tests.server.limits.servers import Servers

ROWS = read_limits()
# What a setting says that bounds nothing.
NO_BOUNDS = frozenset({
    "backbone", "store", "without", "registry", "publish", "host", "port", "grpc_port", "insecure", "device", "dtype",
    "grpc_certificate", "grpc_private_key", "admin_key", "metrics_key", "secret", "rate_store", "kernels",
    "cuda_graphs", "threads", "warm", "oidc_issuer", "oidc_audience", "oidc_jwks_url", "oidc_tenant_claim",
    "oidc_scope_claim", "log_format", "log_level", "access_log", "routing_port", "routing_host", "routing_prefix",
    "worker",
    # Without Ray they mean nothing, and the queue of each replica has its own bounds.
    "ray", "min_replicas", "max_replicas", "max_workers", "target_queued_tokens", "upscale_seconds",
    "downscale_seconds",
})  # fmt: skip

PACKAGES = (peltier_backbone, peltier_server, peltier_client.protocol, peltier_store)
# What no caller meets: how often and how long the server does things by itself, what its log and a shell show, the
# range of a number's type, and a constant that a setting or another row stands for.
UNMET = frozenset(
    {
        "peltier_store.registry.claims.MAX_COLLECTING",
        "peltier_store.registry.extensions.queue._MAX_LEASE",
        "peltier_server.extensions.batches.runner._MAX_KEPT",
        "peltier_server.extensions.batches.runner._MAX_KEPT_BYTES",
        "peltier_server.extensions.batches.runner._MAX_PAUSE_SECONDS",
        "peltier_store.registry.extensions.rollouts.MAX_WAITING",
        "peltier_server.extensions.rollouts.answers._MAX_SHOWN_LABELS",
        "peltier_server.extensions.rollouts.decision._MAX_LOG",
        "peltier_server.extensions.rollouts.recorder._MAX_UNMATCHED",
        "peltier_store.registry.extensions.files._MAX_CREATING",
        "peltier_store.backup._MAX_SUMMARY_BYTES",
        "peltier_store.blobs.location._MAX_RETRIES",
        "peltier_store.blobs.sources._MAX_PIECES",
        "peltier_store.commands._MAX_GRACE_SECONDS",
        "peltier_store.commands._MAX_SHOWN_ORPHANS",
        "peltier_store.garbage._MAX_DELETIONS",
        "peltier_store.garbage._MAX_STOPPING_SECONDS",
        "peltier_backbone.attention.attention._MAX_PADDED_TOKENS",
        "peltier_backbone.text.known_words._MAX_LEARNT_WORDS",
        "peltier_backbone.text.known_words._MAX_WORDS",
        "peltier_backbone.text.known_words._MAX_WORD_CHARS",
        "peltier_backbone.native.trial._MAX_SECONDS",
        "peltier_backbone.linear.quantized_linear.MAX_INNER",
        "peltier_backbone.linear.quantized_linear._MAX_PAIR",
        "peltier_backbone.attention.ragged_attention._MAX_WASTED_LOGITS",
        "peltier_client.protocol.names.MAX_VERSION",
        "peltier_client.protocol.predict.MAX_BEAMS",
        "peltier_client.protocol.predict.MAX_TEMPERATURE",
        "peltier_client.protocol.administration._MAX_COUNT",
        "peltier_server.catalog.published._MAX_LISTED_ALIASES",
        "peltier_server.extensions.oidc.tokens._MAX_KEY_SET_BYTES",
        "peltier_server.extensions.ray.replica._MAX_STARTS",
        "peltier_backbone.machine.ray_cluster._MAX_STARTS",
        "peltier_server.extensions.picker.server.MAX_CONNECTIONS",
        "peltier_server.extensions.picker.server._MAX_HEAD_BYTES",
        "peltier_server.extensions.picker.server._MAX_UNREAD_BYTES",
        "peltier_server.tracing._MAX_LINKS",
        "peltier_server.tracing._MAX_SPANS",
        "peltier_server.tracing._MAX_TASK_LEN",
        "peltier_server.logs.access_log._MAX_METHOD_LEN",
        "peltier_server.logs.access_log._MAX_PATH_LEN",
        "peltier_server.errors._MAX_SHOWN_CHARS",
        "peltier_server.errors._MAX_SHOWN_PLACE_CHARS",
        "peltier_server.extensions.grpc.fields._MAX_VARINT_BYTES",
        "peltier_server.fairness.preparation.MAX_PIECE_COST",
        "peltier_server.queue.prices.MAX_CHANGE",
        "peltier_server.queue.prices._MAX_TIME_RATIO",
        "peltier_server.metrics.series._MAX_KEYS_PER_SLOT",
        "peltier_server.runner.supervisor._MAX_PAUSE_SECONDS",
        "peltier_server.service._MAX_JOIN_SECONDS",
        "peltier_server.catalog.purge._MAX_PAUSE_SECONDS",
        "peltier_server.extensions.trainings.worker_process.MAX_PAUSE_SECONDS",
        "peltier_server.extensions.trainings.worker_process.MAX_STOP_SECONDS",
    }
)


@pytest.fixture(scope="module")
def servers(listen: Listen, bert: Backbone, t5: Backbone, make_artifact: Callable[..., bytes]) -> Iterator[Servers]:
    started = Servers(listen, {"bert": bert, "t5": t5}, make_artifact)
    yield started
    started.close()


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_says_what_the_caller_reads(row: Row, servers: Servers) -> None:
    """Status, code and sentence where there is an answer; else what the probe has seen, in the page's words."""
    assert row.bound in PROBES, "the row has no probe: add one beside its like in tests/server/limits"
    met = PROBES[row.bound].meet(servers)
    if row.answer is None:
        assert met == row.reads
        return
    status, code, sentence = row.answer
    assert isinstance(met, httpx2.Response), met
    error = met.json()["error"]
    assert (met.status_code, error["code"]) == (status, code), error
    assert sentence.fullmatch(error["message"]), error["message"]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_says_the_default(row: Row) -> None:
    try:
        default = row.default_in_code
    except KeyError:
        default = PROBES[row.bound].default
    if row.number is None:
        assert default is None, f"the page says {row.default!r}"
    else:
        assert row.number == default


def test_every_probe_has_a_row() -> None:
    assert PROBES.keys() <= ROWS.keys()


def test_every_setting_and_quota_that_bounds_something_has_a_row() -> None:
    named = set().union(*(row.names for row in ROWS.values()))
    assert SETTINGS.keys() - NO_BOUNDS - named == set()
    assert TenantQuotas.model_fields.keys() - named == set()


def test_every_constant_that_bounds_something_has_a_row() -> None:
    """One that is called MAX_… is either a row's source or named above as one that callers never meet."""
    sources = {probe.source for probe in PROBES.values()}
    found = {name for package in PACKAGES for name in _constants(package)}
    assert found - sources - UNMET == set()
    assert found >= UNMET


def _constants(package: ModuleType) -> Iterator[str]:
    """The full names of what a package's modules set that begins with MAX."""
    for path in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
        module = ".".join(
            (package.__name__, *path.relative_to(Path(str(package.__file__)).parent).with_suffix("").parts)
        )
        for found in re.finditer(r"^(_?MAX_\w+)(?=[ :=])", path.read_text(), re.MULTILINE):
            yield f"{module.removesuffix('.__init__')}.{found[1]}"
