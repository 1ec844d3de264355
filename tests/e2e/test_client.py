"""The library's clients on a stack of `packhorse up`, found by its folder: each call for real."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from packhorse import AsyncClient, Client, Fenced
from packhorse.client.addresses import read_token
from packhorse.client.errors import Conflict, NotFound
from packhorse.client.stack_folder import StackFolder
from tests.harness.command_line import Up
from tests.harness.cutting_proxy import Fate, cutting_proxy

pytestmark = pytest.mark.timeout(600)
WAIT_S = 120.0

Story = Callable[["Calls"], Awaitable[None]]


class Calls:
    """Either client, so that a story is written once: each call is awaited."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **options: Any) -> Any:
            given = getattr(self._client, name)(*args, **options)
            return await given if asyncio.iscoroutine(given) else given

        return call

    async def first(self, stream: str, *args: Any, **options: Any) -> Any:
        """Return the first event of a stream."""
        events = getattr(self._client, stream)(*args, **options)
        if hasattr(events, "__anext__"):
            event = await events.__anext__()
            await events.aclose()
        else:
            event = next(events)
            events.close()
        return event


@pytest.fixture(params=[Client, AsyncClient], ids=["blocking", "awaiting"])
def reported(request: pytest.FixtureRequest, up: Up) -> Callable[..., None]:
    """Tells a story with one of the clients."""

    async def report(story: Story, **options: Any) -> None:
        client = request.param(data=up.data, **options)
        if isinstance(client, AsyncClient):
            async with client:
                await story(Calls(client))
        else:
            with client:
                await story(Calls(client))

    def run(story: Story, **options: Any) -> None:
        asyncio.run(report(story, **options))

    return run


@pytest.fixture
def root() -> str:
    return f"/client-{uuid.uuid4().hex[:8]}"


def test_content_is_written_distributed_and_found_again(
    reported: Callable[..., None], root: str
) -> None:
    async def story(client: Calls) -> None:
        picture = await client.put_binary(b"no picture", "image/png")
        await client.put_node(f"{root}/page", "page", {"title": "a", "old": 1})
        await client.put_node(f"{root}/pic", "asset", binaries={"data": picture})
        found = await client.node(f"{root}/page")
        await client.patch_node(f"{root}/page", {"title": "b", "old": None}, if_match=found.etag)
        with pytest.raises(Conflict):
            await client.patch_node(f"{root}/page", {"title": "c"}, if_match=found.etag)
        assert (await client.node(f"{root}/page")).properties == {"title": "b"}
        assert [one.path for one in await client.children(root)] == [f"{root}/page", f"{root}/pic"]
        assert len(await client.subtree(root)) == 3
        assert await client.binary(f"{root}/pic") == b"no picture"

        assert (await client.dry_run(deep=[root])).nodes == 3
        done = await client.distribute(deep=[root], key=root, wait=WAIT_S)
        assert (done.state, done.failed) == ("DISTRIBUTED", {})
        again = await client.distribute(deep=[root], key=root)
        assert (again.id, again.repeated) == (done.id, True)
        assert (await client.distribution(done.id)).id == done.id
        assert [one.id for one in await client.distributions(path_prefix=root)] == [done.id]

        await client.delete_node(f"{root}/page")
        with pytest.raises(NotFound):
            await client.node(f"{root}/page")

    reported(story)


def test_subscribers_are_looked_at_and_operated(reported: Callable[..., None], root: str) -> None:
    async def story(client: Calls) -> None:
        assert {one.subscriber for one in await client.queues()} >= {"sub1", "sub2", "sub3"}
        assert (await client.subscriber("sub3")).editable
        assert {one.subscriber for one in await client.subscribers()} >= {"sub3"}
        await client.put_node(root, "page")
        assert (await client.pause("sub3", wait=WAIT_S)).state == "APPLIED"
        try:
            sent = await client.distribute(root)
            until = time.monotonic() + WAIT_S  # the queue follows the journal
            while not (await client.queue("sub3", path_prefix=root)).entries:
                assert time.monotonic() < until, "what was sent is not in the queue"
            tag = await client.queue_tag("sub3")
            cleared = await client.clear("sub3", if_match=tag)
            assert (await client.command(cleared.command_id)).kind == "CLEAR"
        finally:
            await client.resume("sub3", wait=WAIT_S)
        assert (await client.command_ended(cleared.command_id, WAIT_S)).removed == 1
        assert (await client.wait_for(sent.id, WAIT_S)).failed == {"sub3": "REMOVED"}
        assert (await client.commands(subscriber="sub3", limit=1))[0].subscriber == "sub3"
        assert await client.errors("sub3") == []
        assert (await client.retry("sub3", wait=WAIT_S)).state == "APPLIED"
        with pytest.raises(Conflict, match="stop"):
            await client.reset("sub3", 0)
        with pytest.raises(Conflict):
            await client.forget("sub3")

    reported(story)


def test_jobs_topology_and_events(reported: Callable[..., None], root: str) -> None:
    async def story(client: Calls) -> None:
        topic = f"{root[1:]}/work"
        added = await client.add_job(topic, {"size": 3}, id="one", delay_s=3600)
        assert added.verdict == "ADDED"
        number = added.job.number
        assert (await client.job(number)).properties.size == 3
        assert [one.number for one in await client.jobs(topic=topic)] == [number]
        await client.stop_job(number)
        assert (await client.job_ended(number, WAIT_S)).state == "STOPPED"
        await client.retry_job(number)
        await client.put_job_queue(root[1:], patterns=[f"{root[1:]}/**"])
        await client.suspend("job-queues", root[1:])
        await client.resume_suspended("job-queues", root[1:])
        assert root[1:] in [one.name for one in await client.job_queues()]
        assert topic in [one.topic for one in await client.job_topics()]
        await client.put_schedule(root[1:], topic, cron="30 2 * * *")
        assert root[1:] in [one.name for one in await client.schedules()]
        await client.remove_schedule(root[1:])
        await client.remove_job(number)

        found = await client.topology()
        names = [one.id for cluster in found.clusters for one in cluster.instances]
        assert (await client.instance(names[0])).id == names[0]
        assert {one.state for one in await client.connectors()} <= {
            "CONNECTED",
            "FAILED",
            "STANDBY",
        }
        assert (await client.first("topology_events")).kind == "INIT"

        await client.put_node(root, "page")
        for _ in range(2):
            await client.distribute(root)
        event = await client.first("events", "package", after="p0-s0-e0")
        assert event.data.offset == 0
        later = await client.first("events", "package", after=event.id)
        assert later.data.offset == 1
        await client.send_event(f"{root[1:]}/changed", {"a": 1})

    reported(story)


def test_what_a_producer_sends_through_lost_connections_is_published_once(
    up: Up, reported: Callable[..., None], root: str
) -> None:
    numbers = range(1, 9)

    async def send_the_next(client: Calls) -> None:
        source = await client.producer(root[1:])
        calls = Calls(source)
        last = await calls.register()
        await calls.send(max(last, 0) + 1, root)

    async def look(client: Calls) -> None:
        first, second = await client.producer(root[1:]), await client.producer(root[1:])
        assert await Calls(first).register() == numbers[-1]
        assert await Calls(second).register() == numbers[-1]
        with pytest.raises(Fenced):
            await Calls(first).send(numbers[-1] + 1, root)
        assert len(await client.distributions(path_prefix=root)) == len(numbers)

    async def begin(client: Calls) -> None:
        await client.put_node(root, "page")

    reported(begin)
    publisher = urlsplit(StackFolder(up.data).running().publisher)
    assert publisher.hostname
    assert publisher.port
    with cutting_proxy(publisher.hostname, publisher.port, seed=7, faults=0.5) as proxy:
        token = read_token(up.data / "tokens.json")
        for _ in numbers:  # each with connections of its own, some of which are cut
            reported(send_the_next, url=f"http://127.0.0.1:{proxy.port}", token=token, timeout=3.0)
        assert proxy.fates[Fate.PASSED] < sum(proxy.fates.values())
    reported(look)
