"""`AsyncClient`: the services for a program with asyncio."""

import asyncio
import functools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

import httpx
from httpx_sse import SSEError, aconnect_sse

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
from packhorse.client.sending import Configured, answered, aread, block_of, in_threads, lost

P = ParamSpec("P")
T = TypeVar("T")


def _awaiting(
    call: Callable[P, Operation[T]],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    """Return the method that makes a call and is awaited for its end."""

    @functools.wraps(call)
    async def method(client: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client.run(call(*args, **kwargs))

    return method


def _iterated(
    call: Callable[P, Following],
) -> Callable[Concatenate["AsyncClient", P], AsyncIterator[StreamEvent]]:
    """Return the method that follows a stream for ever."""

    @functools.wraps(call)
    def method(
        client: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[StreamEvent]:
        return client.follow(call(*args, **kwargs))

    return method


def _in_parts(
    call: Callable[P, Iterator[Operation[bytes]]],
) -> Callable[Concatenate["AsyncClient", P], AsyncIterator[bytes]]:
    """Return the method that yields the result of one operation after the other."""

    @functools.wraps(call)
    async def method(
        client: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[bytes]:
        for operation in call(*args, **kwargs):
            yield await client.run(operation)

    return method


def _numbered(
    call: Callable[Concatenate[Numbering, P], Operation[T]],
) -> Callable[Concatenate["AsyncProducer", P], Coroutine[Any, Any, T]]:
    """Return the method that makes a call of a producer's numbering."""

    @functools.wraps(call)
    async def method(producer: "AsyncProducer", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await producer.run(call(producer.numbering, *args, **kwargs))

    return method


class AsyncClient(Configured):
    """The publisher, the content, the jobs and the topology service, with one token.

    For one event loop. Each call raises `packhorse.ClientError`, one of
    `packhorse.client.errors`; what may be sent again is, for `patience_s` seconds.
    """

    def _connect(self, **options: Any) -> None:
        self._http = httpx.AsyncClient(**options)

    distribute = _awaiting(distributing.distribute)
    dry_run = _awaiting(distributing.dry_run)
    distribution = _awaiting(distributing.distribution)
    distributions = _awaiting(distributing.distributions)
    wait_for = _awaiting(distributing.wait_for)
    compare = _awaiting(comparing.compare)
    mend = _awaiting(comparing.mend)

    create_release = _awaiting(releasing.create_release)
    release = _awaiting(releasing.release)
    releases = _awaiting(releasing.releases)
    add_to_release = _awaiting(releasing.add_to_release)
    remove_from_release = _awaiting(releasing.remove_from_release)
    reschedule_release = _awaiting(releasing.reschedule_release)
    send_release = _awaiting(releasing.send_release)
    cancel_release = _awaiting(releasing.cancel_release)

    queues = _awaiting(queue_calls.queues)
    queue = _awaiting(queue_calls.queue)
    queue_tag = _awaiting(queue_calls.queue_tag)
    queue_history = _awaiting(queue_calls.queue_history)
    subscribers = _awaiting(queue_calls.subscribers)
    subscriber = _awaiting(queue_calls.subscriber)
    forget = _awaiting(queue_calls.forget)
    errors = _awaiting(queue_calls.errors)
    redistribute = _awaiting(queue_calls.redistribute)
    redistribute_all = _awaiting(queue_calls.redistribute_all)
    dismiss = _awaiting(queue_calls.dismiss)

    clear = _awaiting(commanding.clear)
    clear_bound = _awaiting(commanding.clear_bound)
    pause = _awaiting(commanding.pause)
    resume = _awaiting(commanding.resume)
    stop = _awaiting(commanding.stop)
    retry = _awaiting(commanding.retry)
    reset = _awaiting(commanding.reset)
    command = _awaiting(commanding.command)
    commands = _awaiting(commanding.commands)
    command_ended = _awaiting(commanding.command_ended)
    node = _awaiting(content.node)
    put_node = _awaiting(content.put_node)
    patch_node = _awaiting(content.patch_node)
    delete_node = _awaiting(content.delete_node)
    children = _awaiting(content.children)
    subtree = _awaiting(content.subtree)
    put_binary = _awaiting(binaries.put_binary)
    binary = _awaiting(binaries.binary)
    read_binary = _in_parts(binaries.read_binary)
    read_blob = _in_parts(binaries.read_blob)
    add_job = _awaiting(job_calls.add_job)
    job = _awaiting(job_calls.job)
    jobs = _awaiting(job_calls.jobs)
    job_ended = _awaiting(job_calls.job_ended)
    stop_job = _awaiting(job_calls.stop_job)
    retry_job = _awaiting(job_calls.retry_job)
    remove_job = _awaiting(job_calls.remove_job)
    job_queues = _awaiting(job_calls.job_queues)
    put_job_queue = _awaiting(job_calls.put_job_queue)
    job_topics = _awaiting(job_calls.job_topics)
    schedules = _awaiting(job_calls.schedules)
    put_schedule = _awaiting(job_calls.put_schedule)
    remove_schedule = _awaiting(job_calls.remove_schedule)
    suspend = _awaiting(job_calls.suspend)
    resume_suspended = _awaiting(job_calls.resume_suspended)
    send_event = _awaiting(job_calls.send_event)
    topology = _awaiting(topology_calls.topology)
    instance = _awaiting(topology_calls.instance)
    connectors = _awaiting(topology_calls.connectors)
    sign_in_link = _awaiting(signing_in.sign_in_link)
    events = _iterated(streams.events)
    job_events = _iterated(streams.job_events)
    topology_events = _iterated(streams.topology_events)

    def producer(
        self, name: str, *, patience: Patience | None = None, epoch: int = 0
    ) -> "AsyncProducer":
        """Return a source that numbers what it sends, for `async with`; it tries for ever.

        `patience` says otherwise; `epoch` is that of an earlier registration to go on with.
        """
        steady = patience or telling(FOREVER, f"the producer {name}")
        return AsyncProducer(self, Numbering(name, self.words, epoch), steady)

    async def get(self, path: str, service: ServiceName = "publisher") -> Any:
        """Return what a route answers that no method is for."""
        return await self.run(requested(Request("GET", path, service)))

    async def answer(self, path: str, service: ServiceName = "publisher") -> Answer:
        """Return what a route answers, as it came: its bytes, its ETag, where it goes on."""
        return await self.run(answered_by(Request("GET", path, service)))

    async def run(self, operation: Operation[T], patience: Patience | None = None) -> T:
        """Do an operation and return its result."""
        steps = (patience or self._patience).with_requests_of(operation)
        try:
            effect = next(steps)
            while True:
                try:
                    given = await self._done(effect)
                except ClientError as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(given)
        except StopIteration as end:
            effect = given = Pause()  # what was raised may keep this frame for a while, but no part
            return cast("T", end.value)
        except ClientError as error:  # not through which generators it came
            raise error.with_traceback(None) from error.__cause__

    async def follow(self, following: Following) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events of a stream for ever, once there was a connection: see `Following`."""
        while True:
            error: ClientError | None = None
            try:
                async with self._opened(following.request()) as blocks:
                    async for block in blocks:
                        if (event := following.took(block)) is not None:
                            yield event
            except ClientError as found:
                error = found
            await asyncio.sleep(following.ended(error, time.monotonic(), self._patience.seconds))

    async def _done(self, effect: Effect) -> Any:
        if isinstance(effect, Work):
            return await asyncio.to_thread(effect.do)
        if isinstance(effect, Pause):
            await asyncio.sleep(effect.seconds)
            return time.monotonic()
        target = self._targets.of(effect)
        try:
            sent, body = target.arguments(effect), effect.payload()
            content = in_threads(body) if isinstance(body, Iterator) else body
            async with self._http.stream(**sent, content=content) as response:
                answer = await aread(response)
        except httpx.HTTPError as error:
            raise lost(error, target.url, self.words) from error
        return answered(response, answer, effect, self.words)

    @asynccontextmanager
    async def _opened(self, request: Request) -> AsyncIterator[AsyncIterator[Block]]:
        target = self._targets.of(request)
        sent = target.arguments(request)
        try:
            async with aconnect_sse(self._http, **sent, timeout=self.stream_timeout) as source:
                if not source.response.is_success:
                    answered(source.response, await aread(source.response), request, self.words)
                yield (block_of(one) async for one in source.aiter_sse())
        except (httpx.HTTPError, SSEError) as error:
            raise lost(error, target.url, self.words, stream=True) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the client."""
        await self.close()


class AsyncProducer(NumberedSource):
    """A source with a name, whose requests have numbers: each goes out once, whatever happens.

    One after the other: a number is sent once the one before is answered. Not for threads.
    """

    def __init__(self, client: AsyncClient, numbering: Numbering, patience: Patience) -> None:
        super().__init__(numbering)
        self._client, self._patience = client, patience

    register = _numbered(Numbering.register)
    send = _numbered(Numbering.send)
    send_package = _numbered(Numbering.send_package)
    send_batch = _numbered(Numbering.send_batch)
    pass_over = _numbered(Numbering.pass_over)

    async def run(self, operation: Operation[T]) -> T:
        """Do an operation as patiently as the producer is."""
        return await self._client.run(operation, self._patience)

    async def __aenter__(self) -> Self:
        """Register, and return the producer itself."""
        await self.register()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave the name registered: the next one goes on behind the last number."""
