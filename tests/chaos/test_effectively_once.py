"""Requests through a proxy that cuts, delays and drops answers, to replicas that are killed (R5).

Each idempotency key and each (producer, sequence) is in the journal exactly once. `make test`
sends a bounded number to a journal in Postgres, `make chaos` 10,000, on Kafka as well;
TEST_CHAOS_REQUESTS chooses another.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from urllib.parse import urlsplit

import pytest

from packhorse.content.node import Node
from packhorse.content.tree import upsert
from packhorse.db.connect import connect
from packhorse.db.metadata import IMPORTER
from packhorse.db.roles import act_as
from packhorse.messaging.api import Record
from packhorse.messaging.open import open_journal
from packhorse.wire.messages import Action, PackageEntry, PackageMessage
from packhorse.wire.package_codec import decode_entry, encode_package
from packhorse.wire.topics import Topics
from tests.chaos.ledger import wait_until_sent
from tests.chaos.sources import ONCE, Producer, Source
from tests.harness.cutting_proxy import CuttingProxy, Fate, cutting_proxy
from tests.harness.journals import everything
from tests.harness.postgres import Databases
from tests.harness.processes import Program, running_programs

REQUESTS = int(os.environ.get("TEST_CHAOS_REQUESTS", "120"))
SEED = int(os.environ.get("TEST_CHAOS_SEED", "1"))
SOURCES = 8
KILL_EVERY_S = 3.0 if REQUESTS >= 1000 else 1.5

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]


@pytest.fixture(params=["sql", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.depth])])
def journal_url(request: pytest.FixtureRequest, databases: Databases) -> str:
    if request.param == "sql":
        return databases.new("journal")
    url: str = request.getfixturevalue("kafka").url
    return url


def test_r5_every_key_and_every_sequence_is_in_the_journal_exactly_once(
    journal_url: str, databases: Databases
) -> None:
    author = databases.new("author")
    prefix = f"once{random.randrange(10**9)}"
    paths = [f"{ONCE}{number:06d}" for number in range(REQUESTS)]
    _write(author, paths)
    with ExitStack() as stack:
        made = stack.enter_context(running_programs(journal_url, topic_prefix=prefix))
        publishers = [made.publisher(author), made.publisher(author)]
        made.start()
        proxies = [stack.enter_context(_before(program, n)) for n, program in enumerate(publishers)]
        sources = _sources([f"http://127.0.0.1:{one.port}" for one in proxies], made.token, paths)
        stack.callback(lambda: [source.stop() for source in sources])
        kills = _kill_until_done(publishers, sources)
        wait_until_sent(author)
        records = _records(journal_url, prefix)
        _check(records, sources, paths)
        producers = [source for source in sources if isinstance(source, Producer)]
        last = [source.last_sequence() for source in producers]
        assert last == [len(source.paths) for source in producers]
        while not _every_fault(proxies):  # chance owes one
            producers[0].last_sequence()
    assert kills > 0, "nothing was killed"


def _every_fault(proxies: Sequence[CuttingProxy]) -> bool:
    fates = sum((proxy.fates for proxy in proxies), Counter[Fate]())
    return all(fates[fate] > 0 for fate in Fate)


def _write(author: str, paths: Sequence[str]) -> None:
    with connect(author, "tests") as connection:
        act_as(connection, IMPORTER)
        upsert(connection, [Node(path, "page", '{"text": "once"}') for path in paths])


def _before(program: Program, number: int) -> AbstractContextManager[CuttingProxy]:
    parts = urlsplit(program.url)
    return cutting_proxy(parts.hostname or "", parts.port or 0, seed=SEED + number)


def _sources(servers: list[str], token: str, paths: Sequence[str]) -> list[Source]:
    sources: list[Source] = []
    for number in range(SOURCES):
        mine, seed = list(paths[number::SOURCES]), SEED * 1000 + number
        if number % 2:
            sources.append(Source(servers, token, mine, seed))
        else:
            sources.append(Producer(servers, token, mine, seed, name=f"source-{number}"))
    for source in sources:
        source.start()
    return sources


def _kill_until_done(publishers: Sequence[Program], sources: Sequence[Source]) -> int:
    """End publishers in whatever they do, again and again; return how often."""
    chance, kills, served = random.Random(SEED), 0, 0
    next_kill = time.monotonic()
    while any(source.running for source in sources):
        time.sleep(0.05)
        accepted = sum(len(source.offsets) for source in sources)
        # Where programs start slowly, nobody would ever answer if time alone decided.
        if time.monotonic() >= next_kill and (kills == 0 or accepted > served):
            victim = chance.choice(publishers)
            victim.kill()
            victim.start()
            kills, served = kills + 1, accepted
            next_kill = time.monotonic() + KILL_EVERY_S
    for program in publishers:
        program.ready()
    for source in sources:
        if source.error is not None:
            raise source.error
    return kills


def _records(journal_url: str, prefix: str) -> list[Record]:
    journal = open_journal(journal_url, client_name="tests")
    try:
        return everything(journal, Topics.named(prefix, {}).package)
    finally:
        journal.close()


def _check(records: Sequence[Record], sources: Sequence[Source], paths: Sequence[str]) -> None:
    where: dict[str, list[int]] = {}
    for record in records:
        (path,) = decode_entry(record.headers).paths
        where.setdefault(path, []).append(record.offset)
    repeated = {path: offsets for path, offsets in where.items() if len(offsets) > 1}
    assert not repeated, f"in the journal more than once: {repeated}"
    assert set(where) == set(paths), "something that was accepted is not in the journal"
    for source in sources:
        named = {path: offset for path, offset in source.offsets.items() if offset is not None}
        assert {path: where[path][0] for path in named} == named
        if isinstance(source, Producer):
            offsets = [where[path][0] for path in source.paths]
            assert offsets == sorted(offsets), f"{source.name} is out of its order"


def test_the_check_notices_a_package_that_is_there_twice() -> None:
    """A checker that can't fail is none."""
    record = _record("/once/1", 1)
    source = Source([], "", ["/once/1"], 1, offsets={"/once/1": 1})
    _check([record], [source], ["/once/1"])
    with pytest.raises(AssertionError, match="more than once"):
        _check([record, _record("/once/1", 2)], [source], ["/once/1"])
    with pytest.raises(AssertionError, match="not in the journal"):
        _check([], [source], ["/once/1"])


def _record(path: str, offset: int) -> Record:
    entry = PackageEntry(f"p-{offset}", "main", Action.ADD, (path,))
    encoded = encode_package(PackageMessage(entry))
    return Record("topic", 0, offset, 0, None, encoded.headers, encoded.value)
