"""Hints of the database: heard by everybody in a process, and again after each cut."""

import threading
from collections.abc import Iterator

import psycopg
import pytest

from packhorse.runtime.listen import Listener
from tests.harness.borrowing import borrowed
from tests.harness.postgres import Databases, end_sessions
from tests.harness.waiting import eventually


class Heard:
    """Counts what one callback heard."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, payload: str) -> None:
        self.said.append(payload)


@pytest.fixture
def hints(database_url: str) -> Iterator[Listener]:
    made = Listener(database_url)
    made.start()
    yield made
    made.stop(60)
    assert made.failure() is None
    assert not made.listening


def _notify(url: str, channel: str, *payloads: str) -> None:
    with psycopg.connect(url) as connection:
        for payload in payloads:
            connection.execute("SELECT pg_notify(%s, %s)", (channel, payload))


def test_everybody_on_a_channel_hears_its_hints(hints: Listener, database_url: str) -> None:
    one, two, other = Heard(), Heard(), Heard()
    hints.on("packhorse_jobs", one)
    hints.on("packhorse_jobs", two)
    hints.on("odd; name", other)
    eventually(lambda: one.said and other.said)
    _notify(database_url, "packhorse_jobs", "a", "a", "b")
    eventually(lambda: one.said == ["", "a", "b"] and two.said[-2:] == ["a", "b"])
    _notify(database_url, "odd; name", "c")
    eventually(lambda: other.said == ["", "c"])
    assert one.said == ["", "a", "b"]


def test_a_channel_may_be_added_while_it_listens(hints: Listener, database_url: str) -> None:
    early, late = Heard(), Heard()
    hints.on("early", early)
    eventually(lambda: hints.listening and early.said == [""])
    hints.on("late", late)
    eventually(lambda: late.said == [""])
    _notify(database_url, "late", "x")
    eventually(lambda: late.said == ["", "x"])
    assert early.said == [""]


def test_after_a_cut_everybody_is_called(
    hints: Listener, database_url: str, databases: Databases
) -> None:
    heard = Heard()
    hints.on("packhorse_jobs", heard)
    eventually(lambda: heard.said == [""])
    with borrowed(database_url) as connection:
        end_sessions(connection, "packhorse-hints")
    eventually(lambda: heard.said == ["", ""])
    _notify(database_url, "packhorse_jobs", "a")
    eventually(lambda: heard.said == ["", "", "a"])


def test_a_callback_that_fails_costs_the_others_nothing(hints: Listener, database_url: str) -> None:
    def fail(_: str) -> None:
        raise ValueError("no")

    heard = Heard()
    hints.on("c", heard)
    hints.on("c", fail)
    eventually(lambda: heard.said)
    _notify(database_url, "c", "x")
    eventually(lambda: heard.said[-1] == "x")
    assert hints.failure() is None


def test_it_waits_for_a_database_that_is_away_and_ends_at_once() -> None:
    called = threading.Event()
    hints = Listener("postgresql://nobody@127.0.0.1:1/none")
    hints.on("c", lambda _: called.set())
    hints.start()
    hints.stop(60)
    assert not called.is_set()
    assert hints.failure() is None


def test_nobody_counts_on_hints_once_their_thread_has_died(database_url: str) -> None:
    def end(_hint: str) -> None:
        raise SystemExit

    hints = Listener(database_url)
    hints.on("deadly", end)
    hints.start()
    eventually(hints.failure)
    assert not hints.listening
    hints.stop(60)
