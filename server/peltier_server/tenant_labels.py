"""Which tenants have a label of their own in metrics."""

_MAX_LABELS = 100
# Neither can be a tenant's name, which begins with a letter or digit.
_OTHERS = "_others"
_NOBODY = "_nobody"


class TenantLabels:
    """The first hundred tenants that call keep their labels; all others share one, and so do callers without a key.

    Each label makes a time series of every metric that has it, and tenants may come without end.
    """

    def __init__(self, max_labels: int = _MAX_LABELS) -> None:
        self._max_labels = max_labels
        self._own: set[str] = set()

    @property
    def known(self) -> tuple[str, ...]:
        """Every label that a metric may have had."""
        return (*self._own, *((_OTHERS,) if len(self._own) >= self._max_labels else ()))

    def of(self, tenant: str | None) -> str:
        """The label for `tenant`; None is someone who has not said who he is."""
        if tenant is None:
            return _NOBODY
        if tenant not in self._own:
            if len(self._own) >= self._max_labels:
                return _OTHERS
            self._own.add(tenant)
        return tenant
