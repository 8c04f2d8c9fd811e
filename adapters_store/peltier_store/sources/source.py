"""Sources of artifacts by their addresses, before anything connects to them."""

from pathlib import Path

from peltier_adapters.hub.address import is_hub, parse_repository

from peltier_store.blobs.location import is_remote, local_path, locate


def check_source(source: str | Path) -> str | Path:
    """The source, a local one as a path; raises AdapterError for one that is neither a path nor a valid URL."""
    if is_hub(source):
        parse_repository(str(source))
        return source
    if is_remote(source):
        locate(source)
        return source
    return local_path(source)
