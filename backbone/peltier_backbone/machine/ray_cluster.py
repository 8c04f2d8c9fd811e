"""Joins the cluster of Ray that RAY_ADDRESS names, or starts one that only this machine can reach."""

import logging
import os
from typing import Any

logger = logging.getLogger(__name__)

# Requests, trials and their answers pass through it only while they are on their way.
_STORE_BYTES = 100 * 2**20
# Ray gives its processes 15 to 30 s to start, which a busy machine exceeds.
_MAX_STARTS = 4
_VARIABLES = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# Despite its name, it makes Ray listen on 127.0.0.1 only.
_LOOPBACK_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


def set_variables() -> None:
    """Set the environment variables that Ray reads when it is imported. Call it before the first import of Ray."""
    own = _VARIABLES if "RAY_ADDRESS" in os.environ else {**_VARIABLES, _LOOPBACK_ONLY: "0"}
    for variable, value in own.items():
        os.environ.setdefault(variable, value)


def join_cluster(num_cpus: int, *, log_to_driver: bool = True) -> None:
    """Join, or start a cluster with `num_cpus`, which `ray.shutdown` ends. Call `set_variables` before.

    Raises a RuntimeError with one sentence if the cluster cannot be reached or does not start.
    """
    import ray

    own: dict[str, Any] = {}
    if "RAY_ADDRESS" not in os.environ:
        # Without "local", Ray would join the cluster that was last started on this machine.
        own = {
            "address": "local",
            "num_cpus": num_cpus,
            "include_dashboard": False,
            "object_store_memory": _STORE_BYTES,
        }
    for attempt in range(1, _MAX_STARTS + 1):
        try:
            ray.init(**own, log_to_driver=log_to_driver, logging_level=logging.ERROR)
        except ConnectionError as error:
            raise RuntimeError(f"Ray's cluster cannot be reached: {error}") from None
        except Exception as error:  # Ray has no class of its own for this
            ray.shutdown()
            if "timed out" not in str(error) or attempt == _MAX_STARTS:
                raise RuntimeError(f"Ray did not start: {error}") from None
            logger.warning("Ray did not start in time, and is started again")
        else:
            return
