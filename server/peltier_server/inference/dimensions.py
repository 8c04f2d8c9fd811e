"""The number of values of an embedding."""

from peltier_client.errors import InvalidInput
from peltier_client.protocol import Parameters

from peltier_server.catalog.entry import Entry


def count_dimensions(entry: Entry, parameters: Parameters) -> int:
    """The values of each embedding that the request wants. Raises `InvalidInput` if it wants more than there are."""
    chosen = parameters.dimensions or entry.num_dimensions
    if chosen > entry.num_dimensions:
        raise InvalidInput(f"dimensions is {chosen}: the embeddings of this task have {entry.num_dimensions} values")
    return chosen
