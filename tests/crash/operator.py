"""A caller who changes the quotas and keys of one tenant all the time, and records what the server acknowledged."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import httpx2

from tests.crash.publisher import Tally

_UNAVAILABLE = 503
_MAX_KEYS = 100


@dataclass(frozen=True)
class Rights:
    """The quota of one tenant and its keys, each known by its note and true while it is valid."""

    max_adapters: int = 1
    keys: tuple[tuple[str, bool], ...] = ()


class Operator:
    """The only caller who changes the tenant `name`, so at most one change is in doubt."""

    def __init__(self, client: httpx2.Client, name: str, seed: int) -> None:
        self.name = name
        self.tally = Tally()
        self._random = random.Random(seed)
        self._rights = Rights()
        self._secrets: dict[str, str] = {}  # by note
        self._prefixes: dict[str, str] = {}  # by note
        self._doubt: Rights | None = None
        client.post("/v1/tenants", json={"name": name, "quotas": {"max_adapters": 1}}).raise_for_status()

    def work(self, client: httpx2.Client, num_changes: float, *, outage: bool = False) -> None:
        """Makes so many changes, or changes until one is not acknowledged: the connection breaks, or during an `outage`
        the answer is 503. Every other refusal fails."""
        last = self.tally.acknowledged + num_changes
        while self._doubt is None and self.tally.acknowledged < last:
            send, self._doubt = self._choose(client)
            try:
                answer = send()
            except httpx2.TransportError:
                return
            if outage and answer.status_code == _UNAVAILABLE:
                return
            assert answer.is_success, (self.name, answer.status_code, answer.text)
            if "/keys" in str(answer.request.url) and answer.request.method == "POST":
                made = answer.json()
                self._secrets[made["note"]], self._prefixes[made["note"]] = made["key"], made["prefix"]
            self._rights, self._doubt = self._doubt, None
            self.tally.acknowledged += 1

    def check(self, client: httpx2.Client) -> None:
        """Acknowledged changes are there, a change in doubt happened wholly or not at all; a valid key works, and a
        revoked one does not."""
        found = self._read(client)
        if self._doubt is not None:
            self.tally.in_doubt += 1
            if found == self._doubt:
                self.tally.in_doubt_applied += 1
                self._rights = self._doubt
            self._doubt = None
        assert found == self._rights, (self.name, self._rights, found)
        for note, valid in self._rights.keys[-4:]:
            if note in self._secrets:
                headers = {"authorization": f"Bearer {self._secrets[note]}"}
                status = client.get("/v1/adapters", headers=headers).status_code
                assert status == (200 if valid else 401), (self.name, note, valid, status)

    def _read(self, client: httpx2.Client) -> Rights:
        quotas = client.get(f"/v1/tenants/{self.name}").raise_for_status().json()["quotas"]
        asked = {"tenant": self.name, "limit": _MAX_KEYS}
        keys = client.get("/v1/keys", params=asked).raise_for_status().json()["keys"]
        self._prefixes = {key["note"]: key["prefix"] for key in keys}
        valid = {int(key["note"]): key["revoked_at"] is None for key in keys}
        return Rights(quotas["max_adapters"], tuple((str(note), valid[note]) for note in sorted(valid)))

    def _choose(self, client: httpx2.Client) -> tuple[Callable[[], httpx2.Response], Rights]:
        """A change, and the rights after it."""
        rights, draw = self._rights, self._random.random()
        valid = [note for note, is_valid in rights.keys if is_valid]
        if draw < 0.2 and len(rights.keys) < _MAX_KEYS:
            note = str(len(rights.keys))
            body = {"tenant": self.name, "scopes": ["predict"], "note": note}
            made = replace(rights, keys=(*rights.keys, (note, True)))
            return lambda: client.post("/v1/keys", json=body), made
        if draw < 0.4 and valid:
            note = self._random.choice(valid)
            left = tuple((one, is_valid and one != note) for one, is_valid in rights.keys)
            return lambda: client.delete(f"/v1/keys/{self._prefixes[note]}"), replace(rights, keys=left)
        number = self._random.randint(2, 10**6)
        url, quotas = f"/v1/tenants/{self.name}", {"max_adapters": number}
        return lambda: client.put(url, json=quotas), replace(rights, max_adapters=number)
