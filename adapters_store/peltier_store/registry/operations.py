"""Operations of a registry, made of functions that run in a transaction."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from peltier_store.registry.transactions import NO_ACTOR, Transactions, WriteTransaction

P = ParamSpec("P")
T = TypeVar("T")


class Operations:
    """Methods that are one transaction each. Each failure is a RegistryError of one sentence."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def _read(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._transactions.read(lambda connection: work(connection, *args, **kwargs))

    async def _write(
        self,
        actor: str,
        work: Callable[Concatenate[WriteTransaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return await self._transactions.write(actor, lambda writing: work(writing, *args, **kwargs))


def reads(
    work: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate[Operations, P], Coroutine[Any, Any, T]]:
    """The method that runs `work` on one consistent state of the database."""

    @wraps(work)
    async def read(owner: Operations, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await owner._transactions.read(lambda connection: work(connection, *args, **kwargs))

    return read


def writes(
    work: Callable[Concatenate[WriteTransaction, P], T],
) -> Callable[Concatenate[Operations, P], Coroutine[Any, Any, T]]:
    """The method that runs `work` as the only writer. The change has no actor, and no entry in the audit log."""

    @wraps(work)
    async def write(owner: Operations, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await owner._transactions.write(NO_ACTOR, lambda writing: work(writing, *args, **kwargs))

    return write
