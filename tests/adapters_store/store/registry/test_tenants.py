"""Tenants and their quotas."""

import pytest
from peltier_store.registry import InvalidRecord, Quotas, Registry, RegistryConflict, TenantUnknown

QUOTAS = Quotas(10.5, 1e6, 4, 2**40, 1000, weight=2.0)


async def test_there_is_a_default_tenant_without_limits(registry: Registry) -> None:
    """It is there from the first migration on."""
    (default,) = [tenant for tenant in (await registry.snapshot()).tenants if tenant.name == "default"]
    assert default.quotas == Quotas(None, None, None, None, None, weight=1.0)
    assert (await registry.snapshot()).keys == ()


async def test_quotas_are_kept_as_given(registry: Registry) -> None:
    """Those of the beginning, and each later set in place of all before."""
    made = await registry.create_tenant("umbra", QUOTAS, actor="operator")
    assert made in (await registry.snapshot()).tenants
    await registry.update_tenant("umbra", Quotas(max_adapters=0), actor="operator")
    (updated,) = [tenant for tenant in (await registry.snapshot()).tenants if tenant.name == "umbra"]
    assert updated.quotas == Quotas(max_adapters=0)
    assert updated.created_at == made.created_at


async def test_a_tenant_is_made_once(registry: Registry) -> None:
    """A second one of its name is refused, and an unknown one cannot be changed."""
    with pytest.raises(RegistryConflict, match=r"^tenant 'acme' exists already$"):
        await registry.create_tenant("acme", actor="operator")
    with pytest.raises(TenantUnknown, match=r"^tenant 'umbra' does not exist$"):
        await registry.update_tenant("umbra", Quotas(), actor="operator")


@pytest.mark.parametrize("name", ["", "Acme", "-a", "a b", "a\n", "ä", "a" * 64, "a:b"])
async def test_a_bad_name_is_refused(registry: Registry, name: str) -> None:
    """Tenants stand in references, so their names follow the rule of adapters' names."""
    with pytest.raises(InvalidRecord, match=r"^the tenant '.*' is not a letter or digit"):
        await registry.create_tenant(name, actor="operator")


@pytest.mark.parametrize(
    ("quotas", "message"),
    [
        (Quotas(requests_per_second=0), "requests_per_second is 0: it must be a number above 0"),
        (Quotas(tokens_per_second=float("inf")), "tokens_per_second is inf: it must be a number above 0"),
        (Quotas(weight=0), "weight is 0: it must be from 0.01 to 100"),
        (Quotas(weight=float("nan")), "weight is nan: it must be from 0.01 to 100"),
        (Quotas(max_adapters=-1), f"max_adapters is -1: it must be from 0 to {2**63 - 1}"),
        (Quotas(max_stored_bytes=2**63), f"max_stored_bytes is {2**63}: it must be from 0 to {2**63 - 1}"),
    ],
)
async def test_a_quota_that_makes_no_sense_is_refused(registry: Registry, quotas: Quotas, message: str) -> None:
    """The sentence names the quota, the value and the rule."""
    for call, name in ((registry.create_tenant, "umbra"), (registry.update_tenant, "acme")):
        with pytest.raises(InvalidRecord) as caught:
            await call(name, quotas, actor="operator")
        assert str(caught.value) == message
