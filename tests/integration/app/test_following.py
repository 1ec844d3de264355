"""The guide's follower on both journals: killed in the middle, it has done each record once."""

import os
import re
import signal
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from packhorse.messaging.api import Journal, Outgoing
from packhorse.messaging.open import open_journal
from tests.harness.imported import begin_script
from tests.harness.journals import DEADLINE_S, create
from tests.harness.waiting import eventually

ROOT = Path(__file__).parents[3]
MANY = 900
PARTITIONS = 3


@pytest.fixture(params=["sql", pytest.param("kafka", marks=pytest.mark.kafka)])
def journal_url(request: pytest.FixtureRequest) -> str:
    if request.param == "kafka":
        return str(request.getfixturevalue("kafka").url)
    return str(request.getfixturevalue("database_url"))


@pytest.fixture
def journal(journal_url: str) -> Iterator[Journal]:
    with closing(open_journal(journal_url, client_name="test")) as journal:
        yield journal


def example(topic: str) -> str:
    """Return the guide's program, on a topic of the test's own."""
    page = (ROOT / "docs/guide/journal.md").read_text()
    found = re.search(r"^```python follow.py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found
    return found[1].replace("aemdistribution_event", topic)


def appended(journal: Journal, topic: str) -> None:
    """Append while it is read, in parts, so that it also waits for what comes."""
    for first in range(0, MANY, 100):
        futures = [
            journal.append(topic, Outgoing(b'{"package_id": %d}' % number, key=f"key {number % 7}"))
            for number in range(first, first + 100)
        ]
        for future in futures:
            future.result(DEADLINE_S)


def seen(folder: Path) -> list[int]:
    with closing(sqlite3.connect(folder / "seen.db", timeout=60)) as own:
        try:
            return [number for (number,) in own.execute("SELECT id FROM seen ORDER BY rowid")]
        except sqlite3.OperationalError:  # there is no table yet
            return []


def test_each_record_is_done_once_whatever_is_killed(
    journal: Journal, journal_url: str, tmp_path: Path
) -> None:
    topic = create(journal, partitions=PARTITIONS)
    (tmp_path / "follow.py").write_text(example(topic))
    source = threading.Thread(target=appended, args=(journal, topic))
    source.start()
    for wanted in (1, MANY // 3, 2 * MANY // 3, MANY):
        program = begin_script(tmp_path / "follow.py", {"PACKHORSE_JOURNAL_URL": journal_url})
        try:
            eventually(
                lambda wanted=wanted: len(seen(tmp_path)) >= wanted,  # type: ignore[misc]
                timeout=DEADLINE_S,
                what=f"{wanted} records are done",
            )
        finally:
            os.kill(program.pid, signal.SIGKILL)
            program.wait(DEADLINE_S)
    source.join()
    done = seen(tmp_path)
    assert Counter(done) == Counter(range(MANY))
    for key in range(7):
        of_key = [number for number in done if number % 7 == key]
        assert of_key == sorted(of_key)  # the order of a partition
