"""Callers who change one adapter or one tenant all the time, and record what the server acknowledged."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
from peltier_adapters.golden.golden import Golden

_UNAVAILABLE = 503
_TOLERANCE = 1e-4  # that of golden examples in float32
_ALIAS = "production"
_MAX_KEYS = 100
Send = Callable[[], httpx2.Response]


@dataclass
class Tally:
    """How calls ended."""

    acknowledged: int = 0
    in_doubt: int = 0
    in_doubt_applied: int = 0
    versions_checked: int = 0

    def add(self, other: "Tally") -> None:
        """The sum of two counts."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class Changer:
    """The only caller who changes what `name` names, so at most one change is in doubt."""

    def __init__(self, name: str, seed: int, state: Any) -> None:
        self.name = name
        self.tally = Tally()
        self._random = random.Random(seed)
        self._state = state
        self._doubt: Any = None  # the state after a change that was not acknowledged

    def work(self, client: httpx2.Client, num_changes: float = math.inf, *, outage: bool = False) -> None:
        """Makes so many changes, or changes until one is not acknowledged.

        That is when the connection breaks, or during an `outage` with 503. Every other refusal fails.
        """
        last = self.tally.acknowledged + num_changes
        while self._doubt is None and self.tally.acknowledged < last:
            send, self._doubt = self._choose(client)
            try:
                answer = send()
            except httpx2.TransportError:
                return
            if outage and answer.status_code == _UNAVAILABLE:
                return
            assert answer.is_success, (self.name, answer.request.url, answer.status_code, answer.text)
            self._learn(answer)
            self._state, self._doubt = self._doubt, None
            self.tally.acknowledged += 1

    def check(self, client: httpx2.Client) -> None:
        """Acknowledged changes are there, a change in doubt happened wholly or not at all, and no other."""
        found = self._read(client)
        if self._doubt is not None:
            self.tally.in_doubt += 1
            if found == self._seen(self._doubt) and found != self._seen(self._state):
                self.tally.in_doubt_applied += 1
                self._state = self._doubt
            self._doubt = None
        assert found == self._seen(self._state), (self.name, self._state, found)

    def _choose(self, client: httpx2.Client) -> tuple[Send, Any]:
        """A change, and the state after it."""
        raise NotImplementedError

    def _read(self, client: httpx2.Client) -> Any:
        """What a reader finds now."""
        raise NotImplementedError

    def _seen(self, state: Any) -> Any:
        """What a reader finds in this state."""
        return state

    def _learn(self, answer: httpx2.Response) -> None:
        """Keeps what only the answer to a change has."""


@dataclass(frozen=True)
class Specimen:
    """An artifact and its expected answer."""

    data: bytes
    digest: str
    golden: Golden


@dataclass(frozen=True)
class Versions:
    """One adapter: its live and its deleted versions by number, each with its digest, and where its alias points."""

    last_number: int = 0
    live: Mapping[int, str] = field(default_factory=dict)
    deleted: Mapping[int, str] = field(default_factory=dict)
    alias: int | None = None


class Publisher(Changer):
    """Changes the adapter `name`: new and known bytes, deletions and what takes them back, and an alias."""

    def __init__(self, name: str, specimens: Sequence[Specimen], seed: int) -> None:
        super().__init__(name, seed, Versions())
        self._specimens = {specimen.digest: specimen for specimen in specimens}

    def digests(self) -> dict[int, str]:
        """The digest of every acknowledged version by number, also of deleted ones."""
        return {**self._state.live, **self._state.deleted}

    def check(self, client: httpx2.Client) -> None:
        """And each live version has its bytes and answers right."""
        super().check(client)
        for number, digest in self._state.live.items():
            artifact = client.get(f"/v1/adapters/{self.name}/versions/{number}/artifact")
            assert artifact.content == self._specimens[digest].data, (self.name, number)
            self.tally.versions_checked += 1
        self.check_answers(client)
        if self._state.alias is not None:
            self._check_answer(client, self.name, self._state.alias)

    def check_answers(self, client: httpx2.Client) -> None:
        """Every live version answers right."""
        for number in self._state.live:
            self._check_answer(client, f"{self.name}@{number}", number)

    def _check_answer(self, client: httpx2.Client, reference: str, number: int) -> None:
        golden = self._specimens[self._state.live[number]].golden
        asked = {"inputs": golden.input, "parameters": {"raw_scores": True}}
        answer = client.post(f"/v1/tasks/{reference}/predict", json=asked).raise_for_status().json()
        assert answer["adapter"]["version"] == number
        scores = answer["predictions"][0]["scores"].values()
        assert all(abs(a - b) < _TOLERANCE for a, b in zip(scores, golden.output, strict=True)), reference

    def _seen(self, state: Versions) -> tuple[Mapping[int, str], int | None]:
        return state.live, state.alias

    def _read(self, client: httpx2.Client) -> tuple[Mapping[int, str], int | None]:
        versions = client.get(f"/v1/adapters/{self.name}/versions")
        if versions.status_code == 404:
            return {}, None
        live = {one["version"]: one["digest"] for one in versions.raise_for_status().json()["versions"]}
        aliases = client.get(f"/v1/adapters/{self.name}/aliases").raise_for_status().json()["aliases"]
        return live, next((int(next(iter(one["versions"]))) for one in aliases if one["alias"] == _ALIAS), None)

    def _choose(self, client: httpx2.Client) -> tuple[Send, Versions]:
        """Uploads most of all; a version that the alias points to stays."""
        state, draw, path = self._state, self._random.random(), f"/v1/adapters/{self.name}"
        idle = [number for number in state.live if number != state.alias]
        if len(state.live) > 6 or (draw < 0.2 and idle):
            number = self._random.choice(idle)
            left, deleted = without(state.live, number), {**state.deleted, number: state.live[number]}
            return lambda: client.delete(f"{path}/versions/{number}"), replace(state, live=left, deleted=deleted)
        if draw < 0.3 and state.deleted:
            number = self._random.choice(sorted(state.deleted))
            if (digest := state.deleted[number]) not in state.live.values():
                live, left = {**state.live, number: digest}, without(state.deleted, number)
                after = replace(state, live=live, deleted=left)
                return lambda: client.post(f"{path}/versions/{number}/undelete"), after
        if draw < 0.5 and state.live:
            number = self._random.choice(sorted(state.live))
            body = {"version": number}
            return lambda: client.put(f"{path}/aliases/{_ALIAS}", json=body), replace(state, alias=number)
        specimen = self._random.choice(list(self._specimens.values()))
        after = state
        if specimen.digest not in state.live.values():
            number = state.last_number + 1
            after = replace(state, last_number=number, live={**state.live, number: specimen.digest})
        files, data = {"file": specimen.data}, {"name": self.name}
        return lambda: client.post("/v1/adapters", files=files, data=data), after


def without(versions: Mapping[int, str], number: int) -> dict[int, str]:
    return {one: digest for one, digest in versions.items() if one != number}


@dataclass(frozen=True)
class Rights:
    """The quota of one tenant and its keys, each known by its note and true while it is valid."""

    max_adapters: int = 1
    keys: tuple[tuple[str, bool], ...] = ()


class Operator(Changer):
    """Changes the tenant `name`: its quotas and its keys."""

    def __init__(self, client: httpx2.Client, name: str, seed: int) -> None:
        super().__init__(name, seed, Rights())
        self._secrets: dict[str, str] = {}  # by note
        self._prefixes: dict[str, str] = {}  # by note
        client.post("/v1/tenants", json={"name": name, "quotas": {"max_adapters": 1}}).raise_for_status()

    def check(self, client: httpx2.Client) -> None:
        """And a valid key works, and a revoked one does not."""
        super().check(client)
        for note, valid in self._state.keys[-4:]:
            if note in self._secrets:
                headers = {"authorization": f"Bearer {self._secrets[note]}"}
                status = client.get("/v1/adapters", headers=headers).status_code
                assert status == (200 if valid else 401), (self.name, note, valid, status)

    def _learn(self, answer: httpx2.Response) -> None:
        if "/keys" in str(answer.request.url) and answer.request.method == "POST":
            made = answer.json()
            self._secrets[made["note"]], self._prefixes[made["note"]] = made["key"], made["prefix"]

    def _read(self, client: httpx2.Client) -> Rights:
        quotas = client.get(f"/v1/tenants/{self.name}").raise_for_status().json()["quotas"]
        asked = {"tenant": self.name, "limit": _MAX_KEYS}
        keys = client.get("/v1/keys", params=asked).raise_for_status().json()["keys"]
        self._prefixes = {key["note"]: key["prefix"] for key in keys}
        valid = {int(key["note"]): key["revoked_at"] is None for key in keys}
        return Rights(quotas["max_adapters"], tuple((str(note), valid[note]) for note in sorted(valid)))

    def _choose(self, client: httpx2.Client) -> tuple[Send, Rights]:
        rights, draw = self._state, self._random.random()
        valid = [note for note, is_valid in rights.keys if is_valid]
        if draw < 0.2 and len(rights.keys) < _MAX_KEYS:
            note = str(len(rights.keys))
            body = {"tenant": self.name, "scopes": ["predict"], "note": note}
            return lambda: client.post("/v1/keys", json=body), replace(rights, keys=(*rights.keys, (note, True)))
        if draw < 0.4 and valid:
            note = self._random.choice(valid)
            left = tuple((one, is_valid and one != note) for one, is_valid in rights.keys)
            return lambda: client.delete(f"/v1/keys/{self._prefixes[note]}"), replace(rights, keys=left)
        number = self._random.randint(2, 10**6)
        url, quotas = f"/v1/tenants/{self.name}", {"max_adapters": number}
        return lambda: client.put(url, json=quotas), replace(rights, max_adapters=number)
