"""The ACLs of docs/security.md, on a real broker: enough for each program, and no more."""

import re
import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import pairwise, product
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from packhorse.errors import PackhorseError
from packhorse.messaging.api import Bounds, Journal, LogEnd, NotAppended, Outgoing
from packhorse.messaging.open import open_journal
from packhorse.messaging.topics import standard_topics
from packhorse.wire.topics import Topics
from tests.harness.deployment import ROOT
from tests.harness.journals import fresh_name, polled
from tests.harness.kafka.broker import RunningKafka
from tests.harness.waiting import eventually

pytestmark = pytest.mark.kafka

PROGRAMS = ("publisher", "subscriber", "cleanup", "pipeline")
PREFIX = fresh_name()
TOPICS = Topics.named(PREFIX, {})
DEFAULT = Topics().package.removesuffix("package")
EVENT = TOPICS.event
HEADERS = {"message-type": b"Test", "message-version": b"1"}
EVERYTHING = {TOPICS.package, TOPICS.status, TOPICS.discovery, TOPICS.command, TOPICS.event}


@pytest.fixture(scope="module")
def secured(kafka: RunningKafka) -> int:
    """The port where one says who one is, with the topics and the documented ACLs."""
    with closing(open_journal(kafka.url, client_name="tests")) as with_all_rights:
        with_all_rights.create_topics(standard_topics(TOPICS))
    grant(kafka.bootstrap)
    return kafka.secured_port


def grant(bootstrap: str) -> None:
    """Do what the commands of the documentation do, to the topics of this test."""
    text = (ROOT / "docs" / "security.md").read_text().replace(DEFAULT, f"{PREFIX}_")
    bindings = [b for line in re.findall(r"^kafka-acls .*$", text, re.M) for b in bound(line)]
    client = AdminClient({"bootstrap.servers": bootstrap})
    for future in client.create_acls(bindings).values():
        future.result(120)


def bound(line: str) -> Iterator[AclBinding]:
    words = shlex.split(line)
    values = dict(pairwise(words))
    operations = [words[n + 1] for n, word in enumerate(words) if word == "--operation"]
    pattern = values.get("--resource-pattern-type", "literal").upper()
    for operation in operations:
        yield AclBinding(
            ResourceType.TOPIC,
            values["--topic"],
            ResourcePatternType[pattern],
            values["--allow-principal"],
            "*",
            AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()],
            AclPermissionType.ALLOW,
        )


@contextmanager
def opened(secured: int, name: str, folder: Path) -> Iterator[Journal]:
    """The journal as a program opens it. One for each try: a refused append ends the producer."""
    password = folder / name
    password.write_text(name)
    journal = open_journal(
        f"kafka://127.0.0.1:{secured}?security.protocol=SASL_PLAINTEXT&sasl.mechanism=PLAIN"
        f"&sasl.username={name}&sasl.password.file={password}",
        client_name=name,
    )
    try:
        yield journal
    finally:
        journal.close()


def append(journal: Journal, topic: str, program: str) -> None:
    with suppress(PackhorseError):  # what is in the log afterwards is what counts
        journal.append(topic, Outgoing(program.encode(), HEADERS)).result(120)


def appended(journal: Journal, topic: str) -> set[str]:
    """Return by whom the topic's records are; fails for who may not read it."""
    journal.identity(topic)
    bounds = [journal.bounds(topic, number) for number in range(journal.partitions(topic))]
    found: list[str] = []
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        while len(found) < sum(each.next - each.oldest for each in bounds):
            found += [record.value.decode() for record in polled(reader)]
    return set(found)


def test_each_program_appends_and_reads_what_it_needs_and_no_more(
    secured: int, tmp_path: Path
) -> None:
    for program, topic in product(PROGRAMS, EVERYTHING):
        with opened(secured, program, tmp_path) as journal:
            append(journal, topic, program)
    for program in ("publisher", "cleanup", "pipeline"):
        with opened(secured, program, tmp_path) as journal:
            assert {topic: appended(journal, topic) for topic in EVERYTHING} == {
                TOPICS.package: {"publisher"},
                TOPICS.command: {"publisher"},
                TOPICS.event: {"publisher"},
                TOPICS.status: {"subscriber"},
                TOPICS.discovery: {"subscriber"},
            }
    with opened(secured, "subscriber", tmp_path) as journal:
        assert appended(journal, TOPICS.package) == appended(journal, TOPICS.command)
        with pytest.raises(PackhorseError):
            appended(journal, TOPICS.event)


def test_publisher_and_cleanup_make_sure_of_their_topics(secured: int, tmp_path: Path) -> None:
    for program in ("publisher", "cleanup"):
        with opened(secured, program, tmp_path) as journal:
            journal.create_topics(standard_topics(TOPICS))
            journal.check_topics(standard_topics(TOPICS))
            journal.enforce_retention()


def test_r4_the_cleanup_alone_changes_what_is_kept(secured: int, tmp_path: Path) -> None:
    with opened(secured, "publisher", tmp_path) as journal:
        with pytest.raises(PackhorseError, match=f"--operation AlterConfigs --topic {EVENT}"):
            journal.retain(EVENT, 1000)
        append(journal, TOPICS.package, "publisher")
        with pytest.raises(PackhorseError, match=f"--operation Delete --topic {TOPICS.package}"):
            journal.truncate(TOPICS.package, 1)
    with opened(secured, "cleanup", tmp_path) as journal:
        before = journal.bounds(TOPICS.package)
        journal.truncate(TOPICS.package, before.next)
        assert journal.bounds(TOPICS.package) == Bounds(before.next, before.next)
        journal.retain(EVENT, 8 * 24 * 3600 * 1000)
        eventually(lambda: journal.retention_ms(EVENT) == 8 * 24 * 3600 * 1000)
        assert journal.check_topics(standard_topics(TOPICS)) == []


def test_r3_a_refused_append_says_what_to_grant(secured: int, tmp_path: Path) -> None:
    with opened(secured, "subscriber", tmp_path) as journal:
        appends = [journal.append(TOPICS.package, Outgoing(b"forged", HEADERS)) for _ in range(3)]
        with pytest.raises(NotAppended, match=f"--operation Write --topic {TOPICS.package}"):
            appends[0].result(120)
        for behind in appends[1:]:  # dropped with the first one, or refused like it
            with pytest.raises(PackhorseError, match=f"--operation Write --topic {TOPICS.package}"):
                behind.result(120)
    with (
        opened(secured, "subscriber", tmp_path) as journal,
        pytest.raises(PackhorseError, match=f"--operation Read --topic {TOPICS.event}"),
    ):
        journal.identity(TOPICS.event)
