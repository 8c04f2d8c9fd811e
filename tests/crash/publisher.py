"""A caller who changes one adapter all the time, and records what the server acknowledged."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import httpx2
from peltier_adapters.golden.golden import Golden

from tests.crash.changes import ALIAS, Change, Delete, Point, State, Undelete, Upload

_UNAVAILABLE = 503
_TOLERANCE = 1e-4  # that of golden examples in float32


@dataclass(frozen=True)
class Specimen:
    """An artifact and its expected answer."""

    data: bytes
    digest: str
    golden: Golden


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


class Publisher:
    """The only caller who changes the adapter `name`, so at most one change is in doubt."""

    def __init__(self, name: str, specimens: Sequence[Specimen], seed: int) -> None:
        self.name = name
        self.tally = Tally()
        self._specimens = {specimen.digest: specimen for specimen in specimens}
        self._random = random.Random(seed)
        self._state = State()
        self._doubt: Change | None = None

    def work(self, client: httpx2.Client, num_changes: float = math.inf, *, outage: bool = False) -> None:
        """Makes so many changes, or changes until one is not acknowledged.

        That is when the connection breaks, or during an `outage` with 503. Every other refusal fails.
        """
        last = self.tally.acknowledged + num_changes
        while self._doubt is None and self.tally.acknowledged < last:
            change = self._doubt = self._choose()
            try:
                answer = change.send(client, self.name)
            except httpx2.TransportError:
                return
            if outage and answer.status_code == _UNAVAILABLE:
                return
            assert answer.is_success, (change, answer.status_code, answer.text)
            self._state, self._doubt = change.after(self._state), None
            self.tally.acknowledged += 1

    def digests(self) -> dict[int, str]:
        """The digest of every acknowledged version by number, also of deleted ones."""
        state = self._state
        return {**state.live, **state.deleted}

    def check(self, client: httpx2.Client) -> None:
        """Acknowledged changes are there, a change in doubt happened wholly or not at all, and no other."""
        self._settle(*self._read(client))
        for number, digest in self._state.live.items():
            specimen = self._specimens[digest]
            artifact = client.get(f"/v1/adapters/{self.name}/versions/{number}/artifact")
            assert artifact.content == specimen.data, (self.name, number)
            self.tally.versions_checked += 1
        self.check_answers(client)
        if self._state.alias is not None:
            self._check_answer(client, self.name, self._state.alias)

    def check_answers(self, client: httpx2.Client) -> None:
        """Every live version answers right."""
        for number in self._state.live:
            self._check_answer(client, f"{self.name}@{number}", number)

    def _settle(self, live: dict[int, str], alias: int | None) -> None:
        if self._doubt is not None:
            self.tally.in_doubt += 1
            applied = self._doubt.after(self._state)
            if applied.sees(live, alias) and not self._state.sees(live, alias):
                self.tally.in_doubt_applied += 1
                self._state = applied
            self._doubt = None
        assert self._state.sees(live, alias), (self.name, self._state, live, alias)

    def _read(self, client: httpx2.Client) -> tuple[dict[int, str], int | None]:
        versions = client.get(f"/v1/adapters/{self.name}/versions")
        if versions.status_code == 404:
            return {}, None
        live = {one["version"]: one["digest"] for one in versions.raise_for_status().json()["versions"]}
        aliases = client.get(f"/v1/adapters/{self.name}/aliases").raise_for_status().json()["aliases"]
        return live, next((int(next(iter(one["versions"]))) for one in aliases if one["alias"] == ALIAS), None)

    def _check_answer(self, client: httpx2.Client, reference: str, number: int) -> None:
        golden = self._specimens[self._state.live[number]].golden
        asked = {"inputs": golden.input, "parameters": {"raw_scores": True}}
        answer = client.post(f"/v1/tasks/{reference}/predict", json=asked).raise_for_status().json()
        assert answer["adapter"]["version"] == number
        scores = answer["predictions"][0]["scores"].values()
        assert all(abs(a - b) < _TOLERANCE for a, b in zip(scores, golden.output, strict=True)), reference

    def _choose(self) -> Change:
        """Uploads most of all; a version that the alias points to stays."""
        state, draw = self._state, self._random.random()
        idle = [number for number in state.live if number != state.alias]
        if len(state.live) > 6 or (draw < 0.2 and idle):
            return Delete(self._random.choice(idle))
        if draw < 0.3 and state.deleted:
            number = self._random.choice(sorted(state.deleted))
            if state.deleted[number] not in state.live.values():
                return Undelete(number)
        if draw < 0.5 and state.live:
            return Point(self._random.choice(sorted(state.live)))
        specimen = self._random.choice(list(self._specimens.values()))
        return Upload(specimen.data, specimen.digest)
