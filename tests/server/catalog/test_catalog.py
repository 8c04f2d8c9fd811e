"""The version that a reference means, and the pages of lists."""

import gc
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import combinations
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.artifact.manifest import read_header
from peltier_backbone.backbone import Backbone
from peltier_client.errors import AdapterNotFound, VersionNotFound
from peltier_client.protocol.names import TaskReference
from peltier_server.auth.keyring import ALL_SCOPES, Caller
from peltier_server.catalog.catalog import Catalog
from peltier_server.catalog.published import Published, TrafficSplit, split_faults
from peltier_server.context import AdapterKey, RequestContext
from peltier_store.registry.records import AdapterRecord, AliasRecord, VersionRecord

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def manifest(bert: Backbone, make_artifact: Callable[..., bytes]) -> str:
    return json.dumps(read_header(make_artifact(bert, "bitfit"))[0].model_dump(mode="json"))


def make_version(manifest: str, tenant: str, name: str, number: int, digest: str = "") -> VersionRecord:
    digest = f"sha256:{digest or f'{tenant}{name}{number}'.encode().hex():0>64}"
    return VersionRecord(tenant, name, number, digest, 10, "bitfit", manifest, NOW)


def make_record(manifest, name, *numbers, tenant="default", public=False, **aliases):
    versions = tuple(make_version(manifest, tenant, name, number) for number in sorted(numbers))
    named = tuple(AliasRecord(alias, split, NOW, "me", 1) for alias, split in aliases.items())
    return AdapterRecord(tenant, name, public, versions, named)


def marked(record: AdapterRecord, number: int, **marks: object) -> AdapterRecord:
    versions = (replace(one, **marks) if one.number == number else one for one in record.versions)
    return replace(record, versions=tuple(versions))


def apply(catalog: Catalog, record: AdapterRecord) -> set[AdapterKey]:
    return catalog.replace(record.tenant, record.name, Published.of(record, catalog.find(record.tenant, record.name)))


@pytest.fixture
def catalog(manifest: str) -> Catalog:
    """`a` in versions 1, 3 and 10, `b` in version 2; of tenant other `shared`, which is public, and `secret`."""
    catalog = Catalog()
    for record in (
        make_record(manifest, "a", 1, 3, 10, canary={3: 1.0}),
        make_record(manifest, "b", 2),
        make_record(manifest, "shared", 1, tenant="other", public=True),
        make_record(manifest, "secret", 1, tenant="other"),
    ):
        apply(catalog, record)
    return catalog


def resolved(catalog: Catalog, text: str, tenant: str = "default", request_id: str = "1") -> int:
    context = RequestContext(request_id, known_caller=Caller(tenant, ALL_SCOPES, "test"))
    return catalog.resolve(TaskReference.parse(text), context).number


def test_a_bare_name_is_the_newest_version(catalog: Catalog) -> None:
    assert resolved(catalog, "a") == 10
    assert resolved(catalog, "a@3") == 3
    assert resolved(catalog, "a@canary") == 3
    assert resolved(catalog, "default:b") == 2


def test_a_bare_name_is_production_where_there_is_such_an_alias(catalog: Catalog, manifest: str) -> None:
    apply(catalog, make_record(manifest, "a", 1, 3, 10, production={1: 1.0}))
    assert resolved(catalog, "a") == resolved(catalog, "a@production") == 1


def test_a_deprecated_version_answers_a_bare_name_last(catalog: Catalog, manifest: str) -> None:
    """It answers to its number, and to the name when nothing else is left."""
    record = marked(make_record(manifest, "a", 1, 3), 3, deprecated_at=NOW, deprecation="worse")
    apply(catalog, record)
    assert resolved(catalog, "a") == 1
    assert resolved(catalog, "a@3") == 3
    apply(catalog, marked(record, 1, deleted_at=NOW))
    assert resolved(catalog, "a") == 3


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("c", AdapterNotFound, "adapter 'c' does not exist"),
        ("c@3", AdapterNotFound, "adapter 'c' does not exist"),
        ("a@2", VersionNotFound, "adapter 'a' has no version 2; its newest is 10"),
        ("a@production", VersionNotFound, "adapter 'a' has no alias 'production'"),
        ("other:a", AdapterNotFound, "adapter 'other:a' does not exist"),
        ("other:secret", AdapterNotFound, "adapter 'other:secret' does not exist"),
        ("other:secret@1", AdapterNotFound, "adapter 'other:secret' does not exist"),
        ("shared", AdapterNotFound, "adapter 'shared' does not exist"),
        ("other:shared@2", VersionNotFound, "adapter 'shared' has no version 2; its newest is 1"),
    ],
)
def test_what_is_not_there_is_named(catalog: Catalog, text: str, error: type[Exception], message: str) -> None:
    """An unknown name, version, alias or tenant; another tenant's private adapter reads like an unknown one."""
    with pytest.raises(error) as caught:
        resolved(catalog, text)
    assert str(caught.value) == message


def test_public_adapters_of_others_are_named_with_their_tenant(catalog: Catalog) -> None:
    """Their owner may name any of its own so too, without being public."""
    assert resolved(catalog, "other:shared") == 1
    assert resolved(catalog, "other:secret", tenant="other") == resolved(catalog, "secret", tenant="other") == 1


def test_who_gets_which_version_of_one_split_says_nothing_of_another(manifest: str) -> None:
    """Whether it is another alias, another adapter or another tenant's: of those who get the one version here, half
    get it there. Else the same callers would be in every canary."""
    catalog, halves = Catalog(), {1: 0.5, 2: 0.5}
    apply(catalog, make_record(manifest, "a", 1, 2, canary=halves, other=halves))
    apply(catalog, make_record(manifest, "b", 1, 2, canary=halves))
    apply(catalog, make_record(manifest, "a", 1, 2, tenant="zenith", public=True, canary=halves))
    ids = [f"request-{number}" for number in range(1000)]
    chosen = [
        {one for one in ids if resolved(catalog, task, request_id=one) == 1}
        for task in ("a@canary", "a@other", "b@canary", "zenith:a@canary")
    ]
    for one, other in combinations(chosen, 2):
        assert len(one & other) / len(one) == pytest.approx(0.5, abs=0.1)


def test_a_split_is_the_same_for_everyone_and_over_time(manifest: str) -> None:
    """A caller keeps the version when the adapter gains versions; callers of other tenants get the same one."""
    catalog, thirds = Catalog(), {1: 0.3, 2: 0.7}
    ids = [f"request-{number}" for number in range(100)]
    apply(catalog, make_record(manifest, "a", 1, 2, public=True, canary=thirds))
    before = [resolved(catalog, "a@canary", request_id=one) for one in ids]
    assert [resolved(catalog, "default:a@canary", tenant="zenith", request_id=one) for one in ids] == before
    apply(catalog, make_record(manifest, "a", 1, 2, 3, public=True, canary=thirds, production={3: 1.0}))
    assert [resolved(catalog, "a@canary", request_id=one) for one in ids] == before


def test_the_adapter_goes_with_its_last_version(catalog: Catalog, manifest: str) -> None:
    """A deleted version is as good as gone, until it is undeleted."""
    record = make_record(manifest, "b", 2)
    apply(catalog, marked(record, 2, deleted_at=NOW))
    with pytest.raises(AdapterNotFound):
        resolved(catalog, "b")
    assert len(catalog) == 3
    apply(catalog, record)
    assert resolved(catalog, "b") == 2


def test_bytes_are_held_while_any_version_has_them(catalog: Catalog, manifest: str) -> None:
    """Two adapters of a tenant may share them, and the last one to leave takes them along; other tenants do not."""
    shared = [
        AdapterRecord(tenant, name, False, (make_version(manifest, tenant, name, 1, digest="f"),), ())
        for tenant, name in (("p", "x"), ("p", "y"), ("q", "x"))
    ]
    for record in shared:
        assert apply(catalog, record) == set()
    owned = AdapterKey("p", shared[0].versions[0].digest)
    assert apply(catalog, replace(shared[0], versions=())) == set()
    assert catalog.holds(owned)
    assert apply(catalog, replace(shared[1], versions=())) == {owned}
    assert not catalog.holds(owned)
    assert catalog.holds(owned._replace(tenant="q"))


def test_bytes_have_the_references_of_all_their_versions(catalog: Catalog, manifest: str) -> None:
    """Those of every adapter of the tenant, as they are now: the bare name goes with the alias."""
    for name in ("x", "y"):
        version = make_version(manifest, "default", name, 1, digest="f")
        apply(catalog, AdapterRecord("default", name, False, (version,), ()))
    owned = AdapterKey("default", version.digest)
    assert catalog.references(owned) == ("x", "x@1", "y", "y@1")
    second = make_version(manifest, "default", "x", 2)
    apply(catalog, AdapterRecord("default", "x", True, (replace(version, name="x"), second), ()))
    assert catalog.references(owned) == ("y", "y@1", "x@1", "default:x@1")
    split = (AliasRecord("production", {1: 0.5, 2: 0.5}, NOW, "me", 1),)
    apply(catalog, AdapterRecord("default", "x", False, (replace(version, name="x"), second), split))
    assert catalog.references(owned) == ("y", "y@1", "x", "x@1")
    assert catalog.references(owned._replace(tenant="other")) == ()


def test_manifests_are_read_once(catalog: Catalog, manifest: str) -> None:
    """An adapter with a thousand versions must not be read anew for each of its aliases."""
    before = catalog.get("default", "a").entries
    apply(catalog, marked(make_record(manifest, "a", 1, 3, 10), 3, deprecated_at=NOW, deprecation="worse"))
    after = catalog.get("default", "a").entries
    assert after[1] is before[1]
    assert after[3].task is before[3].task
    assert after[3].on_the_wire.deprecation == "worse"


def test_an_unreadable_version_does_not_hide_the_others(manifest: str, caplog: pytest.LogCaptureFixture) -> None:
    """A manifest of another release costs one version, not the server."""
    catalog, record = Catalog(), make_record(manifest, "a", 1, 2)
    apply(catalog, marked(record, 2, manifest="{}"))
    assert resolved(catalog, "a") == 1
    assert "default:a@2 is not served" in caplog.text


def test_a_version_whose_manifest_is_known_needs_none_again(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    """One that could not be read when it came stays away, and the log has said why."""
    task = catalog.get("default", "b").newest.task
    apply(catalog, marked(make_record("", "b", 2, 3), 2, deprecated_at=NOW, deprecation="old"))
    newest = catalog.get("default", "b").newest
    assert (newest.number, newest.task, newest.version.deprecation) == (2, task, "old")
    assert "not served" not in caplog.text


def test_a_whole_catalog_takes_the_place_of_another(manifest: str, catalog: Catalog) -> None:
    """Nothing of the former one is left: names, pins, owners of bytes. The bytes that no version has any more are
    told."""
    fresh, shared = Catalog(), make_record(manifest, "a", 1, 2)
    apply(fresh, shared)
    before = {entry.owned for entry in catalog.entries()}
    assert catalog.become(fresh) == before - {entry.owned for entry in fresh.entries()}
    assert [one.name for one in catalog.page("default", after="", containing="", limit=9)] == ["a"]
    assert {entry.number for entry in catalog.entries()} == {1, 2}
    assert all(catalog.holds(entry.owned) for entry in catalog.entries())
    assert (catalog.count("other"), len(catalog)) == (0, 1)


def test_pages_hold_the_tenants_own_names_in_order(catalog: Catalog, manifest: str) -> None:
    for name in ("zz", "ab", "aa"):
        apply(catalog, make_record(manifest, name, 1))
    apply(catalog, AdapterRecord("default", "ab", False, (), ()))

    def names(**given: object) -> list[str]:
        asked = {"after": "", "containing": "", "limit": 10, **given}
        return [published.name for published in catalog.page("default", **asked)]

    assert names() == ["a", "aa", "b", "zz"]
    assert names(after="a", limit=2) == ["aa", "b"]
    assert names(containing="a") == ["a", "aa"]
    assert [published.name for published in catalog.page("nobody", after="", containing="", limit=9)] == []


def num_calls(function: Callable[[], object]) -> int:
    """How many functions are entered, and generators gone on with."""
    count = 0

    def see(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # its callbacks would count
    sys.setprofile(see)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def test_ten_thousand_adapters_cost_a_lookup_and_a_page_no_more_than_few(manifest: str) -> None:
    """A lookup's steps are always the same, and a page's are those of the names that it looks at."""
    read = Published.of(make_record(manifest, "x", 1, 2, ab={1: 0.5, 2: 0.5}))
    assert read is not None
    catalogs = {10_000: Catalog(), 1000: Catalog()}
    for size, catalog in catalogs.items():
        for number in range(10_000 - size, 10_000):
            catalog.replace("default", f"task-{number:05}", replace(read, name=f"task-{number:05}"))
    lookups, pages = set(), set()
    resolved(catalogs[1000], "task-09500@ab", request_id="a")  # a name is parsed once
    for catalog in catalogs.values():
        lookups.add(num_calls(partial(resolved, catalog, "task-09500@ab", request_id="a")))
        page = partial(catalog.page, "default", after="task-09100", containing="9", limit=100)
        pages.add(num_calls(page))
        assert len(page()) == 100
    assert len(lookups) == len(pages) == 1


IDS = [f"request-{number}" for number in range(20_000)]


def test_the_same_request_id_always_gets_the_same_version() -> None:
    assert [TrafficSplit({3: 0.5, 4: 0.5}, "t:a@x").choose(one) for one in IDS[:8]] == [3, 4, 3, 4, 3, 4, 3, 4]


def test_the_shares_come_out_over_many_ids() -> None:
    counts = Counter(map(TrafficSplit({1: 0.7, 2: 0.2, 3: 0.1}, "salt").choose, IDS))
    for number, share in ((1, 0.7), (2, 0.2), (3, 0.1)):
        assert counts[number] / len(IDS) == pytest.approx(share, abs=4 * (share * (1 - share) / len(IDS)) ** 0.5)


def test_moving_a_share_moves_no_more_ids_than_it_must() -> None:
    """An id in the canary stays in it as the canary grows."""
    small, large = TrafficSplit({1: 0.9, 2: 0.1}, "salt"), TrafficSplit({1: 0.6, 2: 0.4}, "salt")
    assert all(large.choose(one) == 2 for one in IDS if small.choose(one) == 2)


def test_splits_of_different_aliases_are_independent() -> None:
    """A tenth of the ids is in the smaller share of one; of these a tenth is in that of the other."""
    one, other = TrafficSplit({1: 0.9, 2: 0.1}, "a"), TrafficSplit({1: 0.9, 2: 0.1}, "b")
    chosen = [name for name in IDS if one.choose(name) == 2]
    assert sum(other.choose(name) == 2 for name in chosen) / len(chosen) == pytest.approx(0.1, abs=0.04)


@given(
    weights=st.dictionaries(st.integers(1, 99), st.floats(1e-9, 1.0), min_size=1, max_size=9),
    request_id=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
)
def test_only_versions_of_the_split_are_chosen(weights: dict[int, float], request_id: str) -> None:
    total = sum(weights.values())
    shares = {number: weight / total for number, weight in weights.items()}
    assert split_faults(shares) == []
    assert TrafficSplit(shares, "salt").choose(request_id) in shares


@pytest.mark.parametrize(
    ("shares", "faults"),
    [
        ({}, ["versions is empty: a split names at least one version"]),
        ({1: 0.5, 2: 0.4}, ["the shares sum to 0.9: they must sum to 1"]),
        (
            {1: float("nan"), 2: -0.5, 3: float("inf"), 4: 1.0},
            [
                "version 1 has the share nan: it must be a number above 0",
                "version 2 has the share -0.5: it must be a number above 0",
                "version 3 has the share inf: it must be a number above 0",
            ],
        ),
    ],
)
def test_every_fault_is_named(shares: dict[int, float], faults: list[str]) -> None:
    assert split_faults(shares) == faults
