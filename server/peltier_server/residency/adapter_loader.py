"""What the device tier needs in order to load adapters."""

from collections.abc import Hashable
from typing import Protocol, TypeVar

from peltier_server.residency.fetches import Fetcher

K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)
A = TypeVar("A")
R_co = TypeVar("R_co", covariant=True)


class AdapterLoader(Fetcher[K_contra, A], Protocol[K_contra, A, R_co]):
    """Loads adapters to the device, without blocking the event loop. Their memory is freed with the last reference."""

    def device_bytes(self, artifact: A) -> int:
        """The bytes that the artifact takes on the device."""

    async def install(self, artifact: A) -> R_co:
        """Copies the artifact to the device."""
