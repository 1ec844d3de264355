"""The names of single topics by setting: the programs, `topics create` and `topics check` agree."""

import uuid
from contextlib import closing

import pytest

from packhorse.messaging.open import open_journal
from packhorse.wire.topics import Topics
from tests.harness.command_line import packhorse
from tests.harness.postgres import Databases
from tests.harness.processes import running_programs
from tests.harness.site import Site


def test_each_topic_may_have_a_name_of_its_own(
    databases: Databases, journal_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = uuid.uuid4().hex[:8]
    names = {part: f"{part}s-of-{mark}" for part in Topics().by_part() if part != "event"}
    requested = ("--journal", journal_url, "--topic-prefix", f"t{mark}")
    missing = packhorse("topics", "check", *requested, check=False)
    assert f"topic t{mark}_package does not exist" in missing.stderr
    with monkeypatch.context() as environment:
        for part, name in names.items():
            environment.setenv(f"PACKHORSE_TOPIC_{part.upper()}", name)
        created = packhorse("topics", "create", *requested)
        checked = packhorse("topics", "check", *requested)
    assert created.stdout.splitlines() == [*names.values(), f"t{mark}_event"]
    assert checked.stdout == created.stdout

    settings = {f"topic_{part}": name for part, name in names.items()}
    with (
        running_programs(journal_url, topic_prefix=f"t{mark}", **settings) as made,
        (running := Site(made, databases)).http,
    ):
        running.subscriber("sub1")
        running.start()
        running.put("/named", properties={"title": "by setting"})
        running.distribute_everywhere("/named")
    with closing(open_journal(journal_url, client_name="tests")) as journal:
        for part in ("package", "discovery"):
            ends = [
                journal.bounds(names[part], number).next
                for number in range(journal.partitions(names[part]))
            ]
            assert max(ends) > 0, part
