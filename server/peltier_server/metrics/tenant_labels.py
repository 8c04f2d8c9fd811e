"""Which tenants have a label of their own in metrics."""

from peltier_server.metrics.label_slots import LabelSlots

_MAX_LABELS = 100
# Neither can be a tenant's name, which begins with a letter or digit.
_OTHERS = "_others"
_NOBODY = "_nobody"


class TenantLabels:
    """The first hundred tenants that call keep their labels; all others share one, and so do callers without a key.

    Each label makes a time series of every metric that has it, and tenants may come without end. The slots are never
    turned over: what a tenant has used is added up over days, and its series shall not end meanwhile.
    """

    def __init__(self, max_labels: int = _MAX_LABELS) -> None:
        self._slots = LabelSlots[str](max_labels)

    @property
    def known(self) -> tuple[str, ...]:
        """Every label that a metric may have had."""
        return (*self._slots.held, *((_OTHERS,) if self._slots.are_taken else ()))

    def of(self, tenant: str | None) -> str:
        """The label for `tenant`; None is someone who has not said who he is."""
        if tenant is None:
            return _NOBODY
        return tenant if self._slots.use(tenant) else _OTHERS
