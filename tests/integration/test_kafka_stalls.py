"""A broker that stalls, and goes on, ends no program (R33; ADR 0050)."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from packhorse.messaging.open import open_journal
from tests.harness.journals import create
from tests.harness.kafka.broker import RunningKafka
from tests.harness.kafka.fenced_broker import fenced_broker

pytestmark = pytest.mark.kafka

_ASK = """
import sys
from packhorse.errors import PackhorseError
from packhorse.messaging.open import open_journal
journal = open_journal(sys.argv[1], client_name="stalls")
print(journal.identity("topic").partition("/")[0], flush=True)
for _ in sys.stdin:
    for ask in (journal.identity, journal.partitions):
        try:
            ask("topic")
        except PackhorseError as error:
            print("error:", error, file=sys.stderr)
    print("alive", flush=True)
"""
_STALLS_S = (1.0, 5.5, 6.0)
"""Shorter than the limit of a question, and around it: answers come late, or just in time."""


def test_r33_metadata_without_a_broker_end_no_program() -> None:
    """librdkafka's describe_cluster aborts the process there."""
    with fenced_broker() as broker, running([sys.executable, "-c", _ASK, broker.url]) as program:
        assert said(program) == "cluster"
        broker.fence()
        for _ in range(2):
            assert said(program, "ask") == "alive"


def test_r33_a_broker_that_is_paused_and_goes_on_ends_no_program(kafka: RunningKafka) -> None:
    journal = open_journal(kafka.url, client_name="stalls")
    topic = create(journal)
    journal.close()
    command = [sys.executable, "-m", "tests.harness.kafka.asking", kafka.url, topic]
    with running(command) as program:
        assert said(program) == "ready"
        for seconds in _STALLS_S:
            kafka.pause()
            try:
                time.sleep(seconds)  # the fault itself
            finally:
                kafka.resume()
            assert said(program, "go on") == "again", "it has ended"


@contextmanager
def running(command: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


def said(program: "subprocess.Popen[str]", line: str = "") -> str:
    """Return the program's next line, after one of ours; empty when it has ended."""
    assert program.stdin is not None
    assert program.stdout is not None
    if line:
        program.stdin.write(f"{line}\n")
        program.stdin.flush()
    return program.stdout.readline().strip()
