"""Which packages the log still names: read from end to end, headers only.

Offsets can be too low: a publisher that was paused may have appended a package twice. So nothing
is removed before a whole reading of the log has named it nowhere (R21).
"""

import time
from collections.abc import Callable, Collection

from packhorse.messaging.api import (
    Bounds,
    Journal,
    JournalUnavailable,
    LogEnd,
)
from packhorse.messaging.reading import read_to
from packhorse.wire.package_codec import PACKAGE_ID_HEADER

_PATIENCE_S = 30.0
_BEAT_S = 20.0


def last_offsets(
    journal: Journal,
    topic: str,
    bounds: Bounds,
    package_ids: Collection[str],
    beat: Callable[[], None],
) -> dict[str, int]:
    """Return the highest offset of each of the packages that the log names.

    `beat` is called every few seconds of a long reading. Raises `JournalUnavailable` unless the
    end was reached: then nothing is known.
    """
    if not package_ids or bounds.oldest >= bounds.next:
        return {}
    wanted = {package_id.encode(): package_id for package_id in package_ids}
    found: dict[str, int] = {}
    with journal.reader(topic, LogEnd.OLDEST, partition=0, values=False) as reader:
        meanwhile = _now_and_then(beat)
        for records in read_to(reader, bounds.next, patience_s=_PATIENCE_S, meanwhile=meanwhile):
            for record in records:
                if record.damage:  # it may be the one that refers to what is to be removed (R21)
                    raise JournalUnavailable(record.damage)
                name = wanted.get(record.headers.get(PACKAGE_ID_HEADER, b""))
                if name is not None:
                    found[name] = record.offset
    return found


def _now_and_then(beat: Callable[[], None]) -> Callable[[], None]:
    """Return what calls `beat` when the last call is long enough ago."""
    beaten = time.monotonic()

    def meanwhile() -> None:
        nonlocal beaten
        if time.monotonic() > beaten + _BEAT_S:
            beat()
            beaten = time.monotonic()

    return meanwhile
