"""What log records say of the request that is being answered."""

from peltier_server.context import current_context


def request_fields() -> dict[str, str | int]:
    """The request's id, its caller's tenant, and the adapter version that was asked, as far as they are known. Another
    tenant's adapter is `tenant:name`. Nothing outside of requests."""
    context = current_context.get()
    if context is None:
        return {}
    fields: dict[str, str | int] = {"request_id": context.request_id}
    if context.known_caller is not None:
        fields["tenant"] = context.tenant
    if context.version is not None:
        tenant, adapter, number = context.version
        fields["adapter"] = adapter if tenant == context.tenant else f"{tenant}:{adapter}"
        fields["version"] = int(number)
    return fields
