"""What consumers say while they work: progress, lines of a log, properties for whoever looks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from psycopg import Connection

from packhorse.jobs.job import JobProgress
from packhorse.jobs.store.claims import Claim
from packhorse.jobs.store.rows import stored_progress

MOST_LINES = 200
"""Lines of a job's log that are kept, the newest."""
LONGEST_TEXT = 2_000
"""Characters of a line or a message; what is longer is cut."""


@dataclass(frozen=True, slots=True)
class Notes:
    """What a consumer has said since it was stored last."""

    progress: JobProgress | None = None
    log: Sequence[str] = ()
    """Lines to add; the newest `MOST_LINES` are kept."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Properties to set."""

    @property
    def is_something(self) -> bool:
        """Whether there is anything to store."""
        return self.progress is not None or bool(self.log) or bool(self.extra)


NOTHING_SAID = Notes()


def note(connection: Connection, noted: Sequence[tuple[Claim, Notes]]) -> set[Claim]:
    """Store what consumers have said, as the bookkeeper; return the claims that are lost."""
    rows = connection.execute(_NOTE, _columns(sorted(noted, key=lambda one: one[0].number)))
    stored = {Claim(*row) for row in rows}
    return {claim for claim, _ in noted} - stored


def stored_text(text: str) -> str:
    """Return a text of any consumer as the database can have it."""
    cut = text[:LONGEST_TEXT].replace("\0", "\ufffd")
    return cut.encode(errors="replace").decode()


def _columns(noted: Sequence[tuple[Claim, Notes]]) -> list[list[Any]]:
    notes = [one for _, one in noted]
    return [
        [claim.number for claim, _ in noted],
        [claim.runtime_id for claim, _ in noted],
        [claim.epoch for claim, _ in noted],
        [one.progress and _progress(one.progress) for one in notes],
        [_json([stored_text(line) for line in one.log[-MOST_LINES:]]) for one in notes],
        [_json(dict(one.extra)) for one in notes],
    ]


def _progress(progress: JobProgress) -> str:
    return _json(stored_progress(progress) | {"message": stored_text(progress.message)})


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


_NOTE = f"""
UPDATE jobs.job j SET
    progress = coalesce(n.progress::jsonb, j.progress),
    log = CASE WHEN n.log = '[]' THEN j.log ELSE (
        SELECT a.lines[greatest(1, cardinality(a.lines) - {MOST_LINES - 1}):]
        FROM (SELECT j.log || ARRAY(SELECT jsonb_array_elements_text(n.log::jsonb)) AS lines) a)
        END,
    extra = j.extra || n.extra::jsonb
FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::text[],
    %s::text[]) AS n (number, runtime_id, epoch, progress, log, extra)
WHERE j.number = n.number AND j.runtime_id = n.runtime_id COLLATE "C" AND j.epoch = n.epoch
    AND j.state = 'ACTIVE'
RETURNING j.number, j.runtime_id, j.epoch
"""  # noqa: S608
