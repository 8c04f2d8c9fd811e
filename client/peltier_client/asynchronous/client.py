"""The client for asynchronous code."""

from peltier_client.asynchronous.core import AsyncCoreClient
from peltier_client.asynchronous.files import AsyncFileCalls
from peltier_client.asynchronous.rollouts import AsyncRollouts
from peltier_client.asynchronous.trainings import AsyncTrainingCalls


class AsyncClient(AsyncFileCalls, AsyncTrainingCalls, AsyncRollouts, AsyncCoreClient):
    """A connection pool to one Peltier server; use it as an asynchronous context manager, from one event loop.

    Methods raise a `PeltierError`. They retry, `max_attempts` in all, after failed connections, 429 and 503, with the
    pause that the server asks for, and then have fewer requests in flight, so any number of calls may begin at once.
    A process that is forked later has connections of its own. An answer to another request is a `ConnectionFailed`.
    `timeout` is in seconds, for each of connecting, sending and waiting for the answer. `transport` replaces the
    network, for tests: its answers are not compared with the requests, and no process that is forked later may use it.

        async with AsyncClient("http://127.0.0.1:8000", api_key="plt_…") as client:
            predictions = await client.predict("sst2", ["a gem of a film"])
            predictions[0].label
    """
