"""A subscriber's own record of what was done to it, kept by the database in the same transactions.

Every package of the runs carries one path that no other package has. A trigger notes each write of
such a path, so that a package imported twice is seen even when its content is the same.
"""

import json
from dataclasses import dataclass
from typing import Any

import psycopg

from packhorse_services.publisher.outbox.append_state import unconfirmed
from tests.harness.waiting import eventually

ONCE = "/content/once/"
SHARED = "/content/shared/"

_INSTALL = """
    CREATE TABLE IF NOT EXISTS public.ledger (
        number bigint GENERATED ALWAYS AS IDENTITY, path text, operation text);
    GRANT INSERT, SELECT ON public.ledger TO packhorse_importer;
    CREATE OR REPLACE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.ledger (path, operation) VALUES (coalesce(NEW.path, OLD.path), TG_OP);
        RETURN NULL;
    END $$;
    CREATE OR REPLACE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON content.node
        FOR EACH ROW EXECUTE FUNCTION public.note();
"""


@dataclass(frozen=True)
class Sample:
    """What a subscriber held at one moment: its offset, and its content at exactly that offset."""

    offset: int
    content: dict[str, Any]


def install(url: str) -> None:
    """Make the database keep the ledger."""
    with psycopg.connect(url) as connection:
        connection.execute(_INSTALL)


def writes(url: str) -> dict[str, int]:
    """Return how often each once-only path was written."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT path, count(*) FROM public.ledger WHERE starts_with(path, %s) GROUP BY path",
            (ONCE,),
        ).fetchall()
    return dict(rows)


def wait_until_sent(author_url: str) -> None:
    """Wait for the packages that were accepted while the journal was away, or a publisher died."""
    with psycopg.connect(author_url, autocommit=True) as connection:
        eventually(
            lambda: not unconfirmed(connection).unconfirmed,
            timeout=180.0,
            what="the outbox is empty",
        )


def sample(url: str, agent: str = "main") -> Sample:
    """Return offset and content as one snapshot shows them."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        position = connection.execute(
            "SELECT log_offset FROM bookkeeping.position WHERE publisher_agent = %s", (agent,)
        ).fetchone()
        return Sample(position[0] if position else -1, content(connection))


def content(connection: psycopg.Connection) -> dict[str, Any]:
    """Return the properties of every node of the runs, by path."""
    rows = connection.execute(
        "SELECT path, properties::text FROM content.node "
        "WHERE starts_with(path, %s) OR starts_with(path, %s)",
        (ONCE, SHARED),
    ).fetchall()
    return {path: json.loads(properties) for path, properties in rows}
