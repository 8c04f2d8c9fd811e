"""The fields that log records have while a request is being answered."""

from opentelemetry.trace import format_span_id, format_trace_id

from peltier_server.context import current_context


def request_fields() -> dict[str, str | int]:
    """The id of the current request, the tenant of its caller and the adapter version that it asks for, as far as
    they are known, and the ids of its trace and span if the server traces. An adapter of another tenant is
    `tenant:name`. The result is empty outside of requests.
    """
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
    if context.trace is not None:
        span = context.trace.span_context
        fields["trace_id"], fields["span_id"] = format_trace_id(span.trace_id), format_span_id(span.span_id)
    return fields
