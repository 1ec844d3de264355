"""`Client`: the services for a program without asyncio."""

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

import httpx
from httpx_sse import SSEError, connect_sse

from packhorse.client.calls import (
    binaries,
    commanding,
    comparing,
    content,
    distributing,
    releasing,
    signing_in,
    streams,
)
from packhorse.client.calls import jobs as job_calls
from packhorse.client.calls import queues as queue_calls
from packhorse.client.calls import topology as topology_calls
from packhorse.client.calls.producing import NumberedSource, Numbering
from packhorse.client.errors import ClientError
from packhorse.client.exchange import (
    Answer,
    Effect,
    Operation,
    Pause,
    Request,
    ServiceName,
    Work,
    answered_by,
    requested,
)
from packhorse.client.following import Block, Following, StreamEvent
from packhorse.client.patience import FOREVER, Patience, telling
from packhorse.client.sending import Configured, answered, block_of, lost, read

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(call: Callable[P, Operation[T]]) -> Callable[Concatenate["Client", P], T]:
    """Return the method that makes a call and returns when it has ended."""

    @functools.wraps(call)
    def method(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client.run(call(*args, **kwargs))

    return method


def _iterated(
    call: Callable[P, Following],
) -> Callable[Concatenate["Client", P], Iterator[StreamEvent]]:
    """Return the method that follows a stream for ever."""

    @functools.wraps(call)
    def method(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[StreamEvent]:
        return client.follow(call(*args, **kwargs))

    return method


def _in_parts(
    call: Callable[P, Iterator[Operation[bytes]]],
) -> Callable[Concatenate["Client", P], Iterator[bytes]]:
    """Return the method that yields the result of one operation after the other."""

    @functools.wraps(call)
    def method(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[bytes]:
        return map(client.run, call(*args, **kwargs))

    return method


def _numbered(
    call: Callable[Concatenate[Numbering, P], Operation[T]],
) -> Callable[Concatenate["Producer", P], T]:
    """Return the method that makes a call of a producer's numbering."""

    @functools.wraps(call)
    def method(producer: "Producer", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return producer.run(call(producer.numbering, *args, **kwargs))

    return method


class Client(Configured):
    """The publisher, the content, the jobs and the topology service, with one token.

    Safe to use from threads. Each call raises `packhorse.ClientError`, one of
    `packhorse.client.errors`; what may be sent again is, for `patience_s` seconds.
    """

    def _connect(self, **options: Any) -> None:
        self._http = httpx.Client(**options)

    distribute = _blocking(distributing.distribute)
    dry_run = _blocking(distributing.dry_run)
    distribution = _blocking(distributing.distribution)
    distributions = _blocking(distributing.distributions)
    wait_for = _blocking(distributing.wait_for)
    compare = _blocking(comparing.compare)
    mend = _blocking(comparing.mend)

    create_release = _blocking(releasing.create_release)
    release = _blocking(releasing.release)
    releases = _blocking(releasing.releases)
    add_to_release = _blocking(releasing.add_to_release)
    remove_from_release = _blocking(releasing.remove_from_release)
    reschedule_release = _blocking(releasing.reschedule_release)
    send_release = _blocking(releasing.send_release)
    cancel_release = _blocking(releasing.cancel_release)

    queues = _blocking(queue_calls.queues)
    queue = _blocking(queue_calls.queue)
    queue_tag = _blocking(queue_calls.queue_tag)
    queue_history = _blocking(queue_calls.queue_history)
    subscribers = _blocking(queue_calls.subscribers)
    subscriber = _blocking(queue_calls.subscriber)
    forget = _blocking(queue_calls.forget)
    errors = _blocking(queue_calls.errors)
    redistribute = _blocking(queue_calls.redistribute)
    redistribute_all = _blocking(queue_calls.redistribute_all)
    dismiss = _blocking(queue_calls.dismiss)

    clear = _blocking(commanding.clear)
    clear_bound = _blocking(commanding.clear_bound)
    pause = _blocking(commanding.pause)
    resume = _blocking(commanding.resume)
    stop = _blocking(commanding.stop)
    retry = _blocking(commanding.retry)
    reset = _blocking(commanding.reset)
    command = _blocking(commanding.command)
    commands = _blocking(commanding.commands)
    command_ended = _blocking(commanding.command_ended)

    node = _blocking(content.node)
    put_node = _blocking(content.put_node)
    patch_node = _blocking(content.patch_node)
    delete_node = _blocking(content.delete_node)
    children = _blocking(content.children)
    subtree = _blocking(content.subtree)
    put_binary = _blocking(binaries.put_binary)
    binary = _blocking(binaries.binary)
    read_binary = _in_parts(binaries.read_binary)
    read_blob = _in_parts(binaries.read_blob)

    add_job = _blocking(job_calls.add_job)
    job = _blocking(job_calls.job)
    jobs = _blocking(job_calls.jobs)
    job_ended = _blocking(job_calls.job_ended)
    stop_job = _blocking(job_calls.stop_job)
    retry_job = _blocking(job_calls.retry_job)
    remove_job = _blocking(job_calls.remove_job)
    job_queues = _blocking(job_calls.job_queues)
    put_job_queue = _blocking(job_calls.put_job_queue)
    job_topics = _blocking(job_calls.job_topics)
    schedules = _blocking(job_calls.schedules)
    put_schedule = _blocking(job_calls.put_schedule)
    remove_schedule = _blocking(job_calls.remove_schedule)
    suspend = _blocking(job_calls.suspend)
    resume_suspended = _blocking(job_calls.resume_suspended)
    send_event = _blocking(job_calls.send_event)

    topology = _blocking(topology_calls.topology)
    instance = _blocking(topology_calls.instance)
    connectors = _blocking(topology_calls.connectors)

    sign_in_link = _blocking(signing_in.sign_in_link)

    events = _iterated(streams.events)
    job_events = _iterated(streams.job_events)
    topology_events = _iterated(streams.topology_events)

    def producer(
        self, name: str, *, patience: Patience | None = None, epoch: int = 0
    ) -> "Producer":
        """Return a source that numbers what it sends, for `with`; it tries for ever.

        `patience` says otherwise; `epoch` is that of an earlier registration to go on with.
        """
        steady = patience or telling(FOREVER, f"the producer {name}")
        return Producer(self, Numbering(name, self.words, epoch), steady)

    def get(self, path: str, service: ServiceName = "publisher") -> Any:
        """Return what a route answers that no method is for."""
        return self.run(requested(Request("GET", path, service)))

    def answer(self, path: str, service: ServiceName = "publisher") -> Answer:
        """Return what a route answers, as it came: its bytes, its ETag, where it goes on."""
        return self.run(answered_by(Request("GET", path, service)))

    def run(self, operation: Operation[T], patience: Patience | None = None) -> T:
        """Do an operation and return its result."""
        steps = (patience or self._patience).with_requests_of(operation)
        try:
            effect = next(steps)
            while True:
                try:
                    given = self._done(effect)
                except ClientError as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(given)
        except StopIteration as end:
            effect = given = Pause()  # what was raised may keep this frame for a while, but no part
            return cast("T", end.value)
        except ClientError as error:  # not through which generators it came
            raise error.with_traceback(None) from error.__cause__

    def follow(self, following: Following) -> Iterator[StreamEvent]:
        """Yield the events of a stream for ever, once there was a connection: see `Following`."""
        while True:
            error: ClientError | None = None
            try:
                with self._opened(following.request()) as blocks:
                    for block in blocks:
                        if (event := following.took(block)) is not None:
                            yield event
            except ClientError as found:
                error = found
            time.sleep(following.ended(error, time.monotonic(), self._patience.seconds))

    def _done(self, effect: Effect) -> Any:
        if isinstance(effect, Work):
            return effect.do()
        if isinstance(effect, Pause):
            time.sleep(effect.seconds)
            return time.monotonic()
        target = self._targets.of(effect)
        try:
            sent = target.arguments(effect)
            with self._http.stream(**sent, content=effect.payload()) as response:
                content = read(response)
        except httpx.HTTPError as error:
            raise lost(error, target.url, self.words) from error
        return answered(response, content, effect, self.words)

    @contextmanager
    def _opened(self, request: Request) -> Iterator[Iterator[Block]]:
        target = self._targets.of(request)
        sent = target.arguments(request)
        try:
            with connect_sse(self._http, **sent, timeout=self.stream_timeout) as source:
                if not source.response.is_success:
                    answered(source.response, read(source.response), request, self.words)
                yield (block_of(one) for one in source.iter_sse())
        except (httpx.HTTPError, SSEError) as error:
            raise lost(error, target.url, self.words, stream=True) from error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client."""
        self.close()


class Producer(NumberedSource):
    """A source with a name, whose requests have numbers: each goes out once, whatever happens.

    One after the other: a number is sent once the one before is answered. Not for threads.
    """

    def __init__(self, client: Client, numbering: Numbering, patience: Patience) -> None:
        super().__init__(numbering)
        self._client, self._patience = client, patience

    register = _numbered(Numbering.register)
    send = _numbered(Numbering.send)
    send_package = _numbered(Numbering.send_package)
    send_batch = _numbered(Numbering.send_batch)
    pass_over = _numbered(Numbering.pass_over)

    def run(self, operation: Operation[T]) -> T:
        """Do an operation as patiently as the producer is."""
        return self._client.run(operation, self._patience)

    def __enter__(self) -> Self:
        """Register, and return the producer itself."""
        self.register()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the name registered: the next one goes on behind the last number."""
