"""The server that the tests of the console share."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import httpx2

ADMIN = "plt_of_the_operator_of_this_server"
# The tenant with ten thousand adapters.
MANY = "many"


@dataclass(frozen=True)
class Site:
    """Its address, a client with the operator's key, and the folder of its store."""

    url: str
    client: httpx2.Client
    store: Path

    def upload(self, artifact: bytes, name: str = "") -> int:
        """`POST /v1/adapters`; the number of the version."""
        answer = self.client.post("/v1/adapters", files={"file": artifact}, data={"name": name} if name else {})
        answer.raise_for_status()
        return int(answer.json()["version"])

    def create_key(self, tenant: str = "default", *scopes: str) -> tuple[str, str]:
        """A new key and its prefix."""
        answer = self.client.post("/v1/keys", json={"tenant": tenant, "scopes": scopes or ["predict"]})
        answer.raise_for_status()
        return answer.json()["key"], answer.json()["prefix"]

    def shares(self, task: str, count: int) -> dict[int, float]:
        """Which share of `count` requests each version answers."""
        answers = [
            self.client.post(f"/v1/tasks/{task}/predict", json={"inputs": "my card was stolen"}) for _ in range(count)
        ]
        counts = Counter(int(answer.headers["x-adapter-version"]) for answer in answers)
        return {version: number / count for version, number in counts.items()}
