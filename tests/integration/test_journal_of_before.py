"""A journal in PostgreSQL that nobody has migrated to this release: what is missing is reported."""

import psycopg
import pytest

from packhorse.messaging.api import NotAppended, Outgoing, TopicSpec
from packhorse.messaging.sql import group
from packhorse.messaging.sql.journal import SqlJournal
from packhorse.messaging.sql.segments import SegmentLimits
from tests.harness.postgres import Databases

_TOPIC = TopicSpec("t")
_HELP = "packhorse topics create"


def test_a_journal_of_the_release_before_is_reported_in_one_line(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "_PATIENCE_S", 0.1)
    url = databases.new("journal")
    journal = SqlJournal(url, "tests", SegmentLimits(bytes=10_000, records=1))
    try:
        journal.create_topics([_TOPIC])
        journal.append("t", Outgoing(b"1")).result(120)
        with psycopg.connect(url) as owner:
            owner.execute("DROP FUNCTION journal.begin_segment")
        journal.create_topics([_TOPIC])
        (fault,) = journal.check_topics([_TOPIC])
        assert _HELP in fault
        assert "\n" not in fault
        with pytest.raises(NotAppended, match=_HELP) as reported:
            journal.append("t", Outgoing(b"2")).result(120)
        assert "\n" not in str(reported.value)
    finally:
        journal.close()
