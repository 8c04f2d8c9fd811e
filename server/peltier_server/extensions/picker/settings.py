"""The settings of the gauges for endpoint pickers."""

from peltier_server.settings_group import SettingsGroup, setting


class RoutingSettings(SettingsGroup):
    """The address of the gauges for endpoint pickers."""

    routing_port: int | None = setting(
        None, "Serve GET /routing-metrics for endpoint pickers on this port; 0 chooses a free one.", ge=0, le=65535
    )
    routing_host: str = setting(
        "127.0.0.1", "Address to bind for /routing-metrics, which needs no key and names adapters of all tenants."
    )
    routing_prefix: str = setting(
        "vllm:", "Begins the names of the gauges on /routing-metrics.", pattern="^[a-zA-Z_:][a-zA-Z0-9_:]*$"
    )
    max_routing_names: int = setting(100, "Maximum names of adapters in each list on /routing-metrics.", ge=1, le=1000)
