"""The changes that callers may make to an adapter, and the state that must follow: the model of a server."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import httpx2

ALIAS = "production"


@dataclass(frozen=True)
class State:
    """One adapter: its live and its deleted versions by number, each with its digest, and where its alias points."""

    last_number: int = 0
    live: Mapping[int, str] = field(default_factory=dict)
    deleted: Mapping[int, str] = field(default_factory=dict)
    alias: int | None = None

    def sees(self, live: Mapping[int, str], alias: int | None) -> bool:
        """Whether a reader finds this state."""
        return self.live == live and self.alias == alias


class Change(Protocol):
    """One call that changes an adapter."""

    def send(self, client: httpx2.Client, name: str) -> httpx2.Response:
        """Makes the call."""

    def after(self, state: State) -> State:
        """The state after the change."""


@dataclass(frozen=True)
class Upload:
    """New bytes, or bytes that already are a live version."""

    data: bytes
    digest: str

    def send(self, client: httpx2.Client, name: str) -> httpx2.Response:
        return client.post("/v1/adapters", files={"file": self.data}, data={"name": name})

    def after(self, state: State) -> State:
        if self.digest in state.live.values():
            return state
        number = state.last_number + 1
        return replace(state, last_number=number, live={**state.live, number: self.digest})


@dataclass(frozen=True)
class Delete:
    """Deletes a live version."""

    number: int

    def send(self, client: httpx2.Client, name: str) -> httpx2.Response:
        return client.delete(f"/v1/adapters/{name}/versions/{self.number}")

    def after(self, state: State) -> State:
        live = {number: digest for number, digest in state.live.items() if number != self.number}
        return replace(state, live=live, deleted={**state.deleted, self.number: state.live[self.number]})


@dataclass(frozen=True)
class Undelete:
    """Undeletes a version."""

    number: int

    def send(self, client: httpx2.Client, name: str) -> httpx2.Response:
        return client.post(f"/v1/adapters/{name}/versions/{self.number}/undelete")

    def after(self, state: State) -> State:
        deleted = {number: digest for number, digest in state.deleted.items() if number != self.number}
        return replace(state, deleted=deleted, live={**state.live, self.number: state.deleted[self.number]})


@dataclass(frozen=True)
class Point:
    """The alias points to a live version."""

    number: int

    def send(self, client: httpx2.Client, name: str) -> httpx2.Response:
        return client.put(f"/v1/adapters/{name}/aliases/{ALIAS}", json={"version": self.number})

    def after(self, state: State) -> State:
        return replace(state, alias=self.number)
