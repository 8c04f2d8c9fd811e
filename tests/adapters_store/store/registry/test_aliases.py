"""Aliases move in one step, name live versions only, and have a history."""

import asyncio
import random
from collections.abc import Mapping

import pytest
from peltier_store.registry.errors import InvalidRecord, RegistryConflict, VersionUnknown
from peltier_store.registry.extensions.registry import Registry

from tests.adapters_store.store.conftest import opened
from tests.adapters_store.store.registry.conftest import publish


@pytest.fixture
async def registry(registry: Registry) -> Registry:
    """`sst2` of `acme` in versions 1 to 3."""
    for data in (b"one", b"two", b"three"):
        await publish(registry, data)
    return registry


async def set_alias(registry: Registry, split: Mapping[int, float], alias: str = "production") -> None:
    set_to = await registry.set_alias("acme", "sst2", alias, split, actor="ann")
    assert (set_to.alias, set_to.split, set_to.created_by) == (alias, split, "ann")


async def named(registry: Registry) -> dict[str, Mapping[int, float]]:
    (adapter,) = (await registry.snapshot()).adapters
    return {alias.alias: alias.split for alias in adapter.aliases}


async def test_an_alias_names_what_it_was_set_to_last(registry: Registry) -> None:
    """It names one version or a split, independently of other aliases; shares may differ from 1 by rounding."""
    await set_alias(registry, {1: 1.0})
    await set_alias(registry, {2: 1.0}, "canary")
    thirds = {1: 0.333333, 2: 0.333333, 3: 0.333334}
    await set_alias(registry, thirds)
    assert await named(registry) == {"production": thirds, "canary": {2: 1.0}}


@pytest.mark.parametrize(
    ("alias", "split", "message"),
    [
        ("production", {}, "the shares of alias 'production' sum to 0: they must sum to 1"),
        ("production", {1: 0.5}, "the shares of alias 'production' sum to 0.5: they must sum to 1"),
        ("production", {1: 0.5, 2: 0.50001}, "the shares of alias 'production' sum to 1.00001: they must sum to 1"),
        ("production", {1: 1.0, 2: 0.0}, "alias 'production' gives version 2 the share 0.0: it must be above 0"),
        ("production", {1: 2.0, 2: -1.0}, "alias 'production' gives version 2 the share -1.0: it must be above 0"),
        ("production", {1: float("nan")}, "alias 'production' gives version 1 the share nan: it must be above 0"),
        ("3", {1: 1.0}, "the alias '3' looks like a version number"),
        (
            "A b",
            {1: 1.0},
            "the alias 'A b' is invalid: it must have at most 63 lower-case letters, digits, '.', '_' or '-', and "
            "begin with a letter or digit",
        ),
    ],
)
async def test_an_alias_that_makes_no_sense_is_refused(registry, alias, split, message):
    """The sentence names the alias, the value and the rule; nothing is changed."""
    with pytest.raises(InvalidRecord) as caught:
        await registry.set_alias("acme", "sst2", alias, split, actor="ann")
    assert str(caught.value) == message
    assert await named(registry) == {}


async def test_only_live_versions_can_be_named(registry: Registry) -> None:
    await registry.delete_version("acme", "sst2", 2, actor="ann")
    for split in ({1: 0.5, 4: 0.5}, {2: 1.0}):
        with pytest.raises(VersionUnknown, match=rf"^adapter 'sst2' has no version {max(split)}$"):
            await registry.set_alias("acme", "sst2", "production", split, actor="ann")


async def test_any_order_of_changes_can_be_rolled_back(registry: Registry) -> None:
    """An alias is a stack of splits, and the top one is in force unless the alias or its adapter is deleted: setting
    pushes another one, deleting hides the top, and a rollback shows it again or pops it, until one is left. A repeated
    change, whose answer was lost, is one."""
    draw, splits, shown = random.Random(0), [{1: 1.0}], True
    await set_alias(registry, splits[0])
    for _ in range(30):
        move = draw.choice(["set", "set", "delete", "delete adapter", "roll back", "roll back"])
        if move == "set":
            split = {draw.randint(1, 3): 1.0}
            await set_alias(registry, split)
            splits, shown = splits if shown and split == splits[-1] else [*splits, split], True
        elif move == "roll back" and (len(splits) > 1 or not shown):
            splits, shown = splits[:-1] if shown else splits, True
            assert (await registry.rollback_alias("acme", "sst2", "production", actor="ann")).split == splits[-1]
        elif move == "delete" and shown:
            await registry.delete_alias("acme", "sst2", "production", actor="ann")
            shown = False
        elif move == "delete adapter":
            await registry.delete_adapter("acme", "sst2", actor="ann")
            for number in (1, 2, 3):
                await registry.undelete("acme", "sst2", number, actor="ann")
            shown = False
        assert await named(registry) == ({"production": splits[-1]} if shown else {})
    for split in reversed(splits[:-1] if shown else splits):
        assert (await registry.rollback_alias("acme", "sst2", "production", actor="ann")).split == split
    with pytest.raises(RegistryConflict, match=r"'production' of adapter 'sst2' has no earlier split$"):
        await registry.rollback_alias("acme", "sst2", "production", actor="ann")


async def test_a_rollback_to_a_deleted_version_says_so(registry: Registry) -> None:
    """The alias does not change until the version is undeleted."""
    await set_alias(registry, {1: 1.0})
    await set_alias(registry, {2: 1.0})
    await registry.delete_version("acme", "sst2", 1, actor="ann")
    with pytest.raises(RegistryConflict, match=r"cannot go back to 1: 1: adapter 'sst2' has no version 1; undelete it"):
        await registry.rollback_alias("acme", "sst2", "production", actor="ann")
    assert await named(registry) == {"production": {2: 1.0}}
    await registry.undelete("acme", "sst2", 1, actor="ann")
    assert (await registry.rollback_alias("acme", "sst2", "production", actor="ann")).split == {1: 1.0}


async def test_the_history_has_every_change_with_its_author(registry: Registry) -> None:
    """Newest first; a deletion has no versions."""
    await set_alias(registry, {1: 1.0})
    await set_alias(registry, {1: 0.9, 2: 0.1})
    await registry.delete_alias("acme", "sst2", "production", actor="bob")
    history = await registry.alias_history("acme", "sst2", "production")
    assert [(change.versions, change.created_by) for change in history] == [
        ({}, "bob"), ({1: 0.9, 2: 0.1}, "ann"), ({1: 1.0}, "ann"),
    ]  # fmt: skip


async def test_an_alias_that_is_not_there_is_named(registry: Registry) -> None:
    calls = (registry.delete_alias, registry.rollback_alias)
    for call in calls:
        with pytest.raises(VersionUnknown, match=r"^adapter 'sst2' has no alias 'production'$"):
            await call("acme", "sst2", "production", actor="ann")
    with pytest.raises(VersionUnknown, match=r"^adapter 'sst2' has no alias 'production'$"):
        await registry.alias_history("acme", "sst2", "production")


async def test_flips_at_the_same_moment_leave_one_whole_alias(registry: Registry, url: str) -> None:
    """Two replicas set it many times at once: it names the last split, and its history has every change."""
    splits = [{1: number / 16, 2: 1 - number / 16} for number in range(1, 13)]
    async with opened(url) as other:
        await asyncio.gather(
            *(set_alias(one, split) for one, split in zip([registry, other] * 6, splits, strict=True)),
        )
    history = await registry.alias_history("acme", "sst2", "production")
    assert len(history) == 12
    assert await named(registry) == {"production": history[0].versions}
