"""The publisher as a program under measurement: what it and its server spend, and what it did."""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from packhorse.messaging.open import open_journal
from packhorse.wire.package_codec import PACKAGE_ID_HEADER
from packhorse.wire.topics import Topics
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.harness.journals import everything

_STATEMENT = re.compile(rb"LOG:  (statement|execute [^:]*):")


@contextmanager
def program(author: str, journal: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Run `packhorse-publisher`; gives its URL and its process id."""
    environment = {
        **os.environ,
        "PACKHORSE_DATABASE_URL": author,
        "PACKHORSE_JOURNAL_URL": journal,
        "PACKHORSE_BLOBS_URL": str(folder / "blobs"),
        "PACKHORSE_AUTHENTICATION": "false",
        "PACKHORSE_PORT": "0",
        "PACKHORSE_LOG_LEVEL": "WARNING",
    }
    command = [sys.executable, "-m", "packhorse_services.publisher"]
    with (folder / "publisher.log").open("wb") as log:  # it has a line for each request
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"], process.pid
    finally:
        process.terminate()
        process.wait(120)


@contextmanager
def counted_statements(server: EmbeddedPostgres) -> Iterator[Counter[str]]:
    """Count the statements that the server carries out meanwhile, whoever sends them.

    The counter is filled at the end: `statements`, and `seconds` of the time that it took.
    """
    log, counted = server.log, Counter[str]()
    _log_statements(server, "all")
    start, began = log.stat().st_size, time.monotonic()
    yield counted
    counted["seconds"] = round(time.monotonic() - began)
    _log_statements(server, "none")
    with log.open("rb") as lines:
        lines.seek(start)
        counted["statements"] = sum(1 for line in lines if _STATEMENT.search(line))


def _log_statements(server: EmbeddedPostgres, which: str) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET log_statement = '{which}'".encode())
        connection.execute("SELECT pg_reload_conf()")
    time.sleep(1)  # sessions take it before their next statement


def packages_in(journal_url: str) -> Counter[str]:
    """Return how often each package is in the journal."""
    with closing(open_journal(journal_url, client_name="bench")) as journal:
        records = everything(journal, Topics().package)
    return Counter(record.headers[PACKAGE_ID_HEADER].decode() for record in records)
