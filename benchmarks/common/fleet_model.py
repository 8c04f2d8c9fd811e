"""A discrete-event simulation of a fleet: a balancer with bounded consistent hashing, and replicas that compute.

The rule of the balancer is HAProxy's (`hash-balance-factor`): a task's replicas are tried in the order of its hash, and
one is passed over if it has more requests than the factor times its share of all. A replica computes one batch at a
time, of the requests whose adapter is on its device. A missing adapter is fetched meanwhile and loaded before the next
batch; the least recently used one makes room for it.
"""

import heapq
import itertools
import math
import random
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32


@dataclass(frozen=True)
class FleetModel:
    """A fleet and its tasks.

    A batch of at most `max_rows` takes `batch_seconds`, and `row_seconds` for each row, both times one of the
    `factors`, drawn for each request: inputs differ in length. A load takes `load_seconds` of the replica, and
    `fetch_seconds` before. Requests for the task of rank r are r^-alpha times those for the first. Without a `factor`
    the balancer chooses the replica with the fewest requests, whatever the task.
    """

    replicas: int
    tasks: int
    alpha: float = 1.0
    factor: float | None = 1.5
    capacity: int = 1_000_000
    batch_seconds: float = 0.004
    row_seconds: float = 0.006
    load_seconds: float = 0.002
    fetch_seconds: float = 0.02
    max_rows: int = 64
    factors: tuple[float, ...] = (1.0,)


@dataclass
class SimulatedFleet:
    """What a simulation found: the latencies in order, the share of requests that waited for a load, the mean copies of
    a task that was asked for, the largest replica's share of the time, and the share of the time in which replicas
    computed."""

    latencies: list[float]
    loads: float
    copies: float
    largest_share: float
    utilisation: float

    def quantile(self, part: float) -> float:
        """The latency that so many of the requests do not exceed."""
        return self.latencies[min(len(self.latencies) - 1, int(part * len(self.latencies)))]


@dataclass(frozen=True, slots=True)
class _Request:
    """When it arrived, its task, and whether its caller sends another one after it."""

    moment: float
    task: int
    is_repeated: bool


@dataclass
class _Replica:
    """One replica: its requests in every state, the adapters on its device in the order of their use, and what it has
    computed. `running` is its batch; `fetching` has the requests that wait for each adapter."""

    waiting: list[_Request] = field(default_factory=list)
    running: list[_Request] = field(default_factory=list)
    fetching: dict[int, list[_Request]] = field(default_factory=dict)
    resident: "OrderedDict[int, None]" = field(default_factory=OrderedDict)
    num_requests: int = 0
    busy_seconds: float = 0.0
    due_load_seconds: float = 0.0


class TaskDraw:
    """Draws tasks by a power law."""

    def __init__(self, tasks: int, alpha: float, seed: int) -> None:
        self._random = random.Random(seed)
        self._sums = list(itertools.accumulate(rank**-alpha for rank in range(1, tasks + 1)))

    def draw(self) -> int:
        """A task; the lowest number is the most popular one."""
        return bisect_left(self._sums, self._random.random() * self._sums[-1])


class FleetSimulation:
    """One run of a model. Requests arrive at a rate, or callers send the next one as soon as they are answered."""

    def __init__(self, model: FleetModel, seed: int = 0) -> None:
        self._model = model
        self._replicas = [_Replica() for _ in range(model.replicas)]
        self._tasks = TaskDraw(model.tasks, model.alpha, seed)
        self._gaps, self._factors = random.Random(seed + 1), random.Random(seed + 2)
        # The moment, a number that orders events of one moment, the replica, and the task that is fetched or None.
        self._events: list[tuple[float, int, int, int | None]] = []
        self._order = itertools.count()
        self._now = 0.0
        self._num_left = 0
        self._choices: dict[int, Sequence[int]] = {}
        self._forget()

    def fill(self) -> None:
        """Fills the devices as they are after a long time: each with the most popular tasks that are sent to it."""
        room = self._model.capacity * self._model.replicas
        for task in range(self._model.tasks):
            replica = self._replicas[self._choose(task)]
            if len(replica.resident) < self._model.capacity:
                replica.resident[task] = None
                replica.resident.move_to_end(task, last=False)
                room -= 1
            if room == 0:
                return

    def run_open(self, rate: float, count: int, warm_up: float = 0.3) -> SimulatedFleet:
        """`count` requests by a Poisson process, of which the first part warms up."""
        moments = list(itertools.accumulate(self._gaps.expovariate(rate) for _ in range(count)))
        first = int(warm_up * count)
        for number, moment in enumerate(moments):
            self._advance(moment)
            if number == first:
                self._forget()
            self._arrive(_Request(moment, self._tasks.draw(), is_repeated=False))
        self._advance(float("inf"))
        return self._result(moments[-1] - moments[first])

    def run_closed(self, callers: int, count: int) -> SimulatedFleet:
        """Each task once, one after another, then `count` requests of so many callers."""
        for task in range(self._model.tasks):
            self._arrive(_Request(self._now, task, is_repeated=False))
            self._advance(float("inf"))
        self._forget()
        begun, self._num_left = self._now, count
        for _ in range(callers):
            self._repeat(begun)
        self._advance(float("inf"))
        return self._result(self._now - begun)

    def _forget(self) -> None:
        """Begins the measurement: what was recorded until now is not counted, but the state stays."""
        self._latencies: list[float] = []
        self._num_loads = 0
        self._asked: set[int] = {task for replica in self._replicas for task in replica.resident}
        for replica in self._replicas:
            replica.busy_seconds = 0.0

    def _result(self, seconds: float) -> SimulatedFleet:
        times = [replica.busy_seconds for replica in self._replicas]
        return SimulatedFleet(
            latencies=sorted(self._latencies),
            loads=self._num_loads / len(self._latencies),
            copies=sum(len(replica.resident) for replica in self._replicas) / len(self._asked),
            largest_share=max(times) / sum(times),
            utilisation=sum(times) / len(times) / seconds,
        )

    def _repeat(self, now: float) -> None:
        if self._num_left > 0:
            self._num_left -= 1
            self._arrive(_Request(now, self._tasks.draw(), is_repeated=True))

    def _arrive(self, request: _Request) -> None:
        """Sends a request to a replica, which may have to fetch its adapter first."""
        task, place = request.task, self._choose(request.task)
        replica = self._replicas[place]
        replica.num_requests += 1
        self._asked.add(task)
        if task in replica.resident:
            replica.resident.move_to_end(task)
            replica.waiting.append(request)
            self._start(request.moment, place)
        elif task in replica.fetching:
            replica.fetching[task].append(request)
        else:
            self._num_loads += 1
            replica.fetching[task] = [request]
            self._push(request.moment + self._model.fetch_seconds, place, task)

    def _choose(self, task: int) -> int:
        model, count = self._model, self._model.replicas
        loads = [replica.num_requests for replica in self._replicas]
        if model.factor is None:
            return min(range(count), key=lambda place: (loads[place], self._gaps.random()))
        if task not in self._choices:
            self._choices[task] = sorted(range(count), key=lambda place: crc32(b"%d/%d" % (task, place)))
        slots, rest = divmod(math.ceil((sum(loads) + 1) * model.factor), count)
        for place in self._choices[task]:
            # HAProxy gives the rest of the slots to some of the servers, and each at least one slot.
            if loads[place] < max(1, slots + (place < rest)):
                return place
        return self._choices[task][0]

    def _push(self, moment: float, place: int, task: int | None) -> None:
        heapq.heappush(self._events, (moment, next(self._order), place, task))

    def _advance(self, until: float) -> None:
        """Everything that happens until then."""
        while self._events and self._events[0][0] <= until:
            self._now, _, place, task = heapq.heappop(self._events)
            if task is None:
                self._finish(place)
            else:
                self._load(place, task)

    def _load(self, place: int, task: int) -> None:
        """A fetched adapter is on the device; the replica spends the time of its load before the next batch."""
        replica = self._replicas[place]
        replica.resident[task] = None
        if len(replica.resident) > self._model.capacity:
            replica.resident.popitem(last=False)
        replica.due_load_seconds += self._model.load_seconds
        replica.waiting += replica.fetching.pop(task)
        self._start(self._now, place)

    def _start(self, now: float, place: int) -> None:
        """Computes the requests that wait, unless the replica is busy."""
        replica, model = self._replicas[place], self._model
        if replica.running or not replica.waiting:
            return
        rows = model.max_rows
        replica.running, replica.waiting = replica.waiting[:rows], replica.waiting[rows:]
        factors = self._factors.choices(model.factors, k=len(replica.running))
        seconds = factors[0] * model.batch_seconds + sum(factors) * model.row_seconds + replica.due_load_seconds
        replica.due_load_seconds = 0.0
        replica.busy_seconds += seconds
        self._push(now + seconds, place, None)

    def _finish(self, place: int) -> None:
        replica = self._replicas[place]
        done, replica.running = replica.running, []
        replica.num_requests -= len(done)
        self._latencies += [self._now - request.moment for request in done]
        self._start(self._now, place)
        for request in done:
            if request.is_repeated:
                self._repeat(self._now)
