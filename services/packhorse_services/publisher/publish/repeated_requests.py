"""What is known of a request before it is exported: an earlier try, or an earlier request.

It runs in the lock's transaction, as the bookkeeper: what it finds can't change until the commit.
"""

from collections.abc import Mapping, Sequence

from psycopg import Connection

from packhorse.errors import PackhorseError
from packhorse.messaging.deduplicated import DuplicateUnknown
from packhorse.messaging.deduplication import DeduplicationVerdict
from packhorse.messaging.numbered import Number
from packhorse_services.publisher.outbox import (
    idempotency,
    outbox_rows,
    producers,
    release_rows,
)
from packhorse_services.publisher.outbox.idempotency import (
    CallerKey,
    KeyReused,
    KnownKey,
    key_of,
    keys_of,
)
from packhorse_services.publisher.outbox.producers import (
    EarlierRefused,
    Judge,
    SequencePassed,
)
from packhorse_services.publisher.outbox.release_rows import ReleaseChanged
from packhorse_services.publisher.outbox.request import Draft, Pending

_EARLIER_REFUSED = (
    "an earlier request of this producer was refused, so sequence {} was not published; send them "
    "again in order, or go on without the refused one"
)


Known = Mapping[CallerKey, KnownKey] | None
"""What a snapshot has of the keys of requests, or None where it was not read."""


def answer(
    connection: Connection, agent: str, group: Sequence[Pending], known: Known, *, verified: bool
) -> list[Pending]:
    """Answer what was committed by an earlier try or request; returns the others, in order.

    `known` is what the transaction's snapshot has of the group's keys, if that was read.

    `verified` says that the database is not older than the journal; before that is certain, a
    producer's request is neither new nor a duplicate.
    """
    _answer_releases(connection, agent, group)
    group = [pending for pending in group if not pending.future.done()]
    tried = [pending.package_id for pending in group if pending.package_id]
    committed = outbox_rows.offsets_of(connection, tried) if tried else {}
    known = idempotency.find(connection, agent, keys_of(group)) if known is None else known
    numbers = [pending.request.producer for pending in group if pending.request.producer]
    judge = producers.judge(connection, agent, numbers, verified=verified)
    fresh = []
    for pending in group:
        found = known.get(key_of(pending.request) or ("", ""))
        if pending.package_id in committed:
            pending.answer(committed[pending.package_id])
        elif found is not None:
            _repeat(pending, found)
        elif not _is_out_of_order(pending) and _is_new(pending, judge):
            pending.committed = False  # or a failover has lost it
            fresh.append(pending)
    return fresh


def remember(connection: Connection, made: Sequence[Pending]) -> None:
    """Note, with the packages' commit, what requests of producers and releases have led to."""
    numbers = [pending.request.producer for pending in made if pending.request.producer]
    if numbers:
        producers.advance(connection, numbers)
    sent = {p.request.release: p.package_id for p in made if p.request.release}
    if sent:
        release_rows.sent(connection, sent)


def in_order(fresh: Sequence[Pending], drafts: Mapping[Pending, Draft]) -> dict[Pending, Draft]:
    """Return those drafts that leave no earlier request of the same producer behind.

    What is behind a refused request is refused too: once a later sequence is published, the
    refused one can't be sent again. What is behind one that waits, waits.
    """
    kept: dict[Pending, Draft] = {}
    refused: set[str] = set()
    waiting: set[str] = set()
    for pending in fresh:
        number = pending.request.producer
        if number is None or number.producer not in refused | waiting:
            if pending in drafts:
                kept[pending] = drafts[pending]
            elif number is not None:
                (refused if pending.future.done() else waiting).add(number.producer)
        elif number.producer in refused:
            pending.fail(EarlierRefused(_EARLIER_REFUSED.format(number.sequence)))
    return kept


def _answer_releases(connection: Connection, agent: str, group: Sequence[Pending]) -> None:
    """Answer what sends a release that is sent, and refuse what sends another than it is now."""
    sending = {p: p.request.release for p in group if p.request.release and not p.future.done()}
    if not sending:
        return
    found = release_rows.read(connection, agent, [one.release_id for one in sending.values()])
    offsets = outbox_rows.offsets_of(connection, [one.package_id for one in found.values()])
    for pending, wanted in sending.items():
        release = found.get(wanted.release_id)
        if release is not None and release.package_id:
            package_id = release.package_id
            pending.answer(offsets.get(package_id), package_id=package_id, repeated=True)
        elif release is None or not release.is_due(wanted.version):
            pending.fail(ReleaseChanged(f"release {wanted.release_id} is another one by now"))


def _is_out_of_order(pending: Pending) -> bool:
    """Refuse a request behind one of its batch that was refused; return whether it is one."""
    before, number = pending.behind, pending.request.producer
    if before is None or number is None or not before.refused:
        return False
    passed = not before.future.cancelled() and isinstance(before.future.exception(), SequencePassed)
    if not passed:
        pending.fail(EarlierRefused(_EARLIER_REFUSED.format(number.sequence)))
    return not passed


def _is_new(pending: Pending, judge: Judge) -> bool:
    """Return whether a request is to be published; one that is not has its answer."""
    number = pending.request.producer
    if number is None:
        return True
    try:
        verdict = judge.verdict(number)
    except PackhorseError as error:
        pending.fail(error)
        return False
    if verdict is DeduplicationVerdict.UNKNOWN:
        pending.fail(
            DuplicateUnknown(
                f"whether sequence {number.sequence} is in the journal is not known yet; "
                "send the same request again"
            )
        )
    elif verdict is DeduplicationVerdict.DUP:
        _repeat_of_producer(pending, number, judge)
    return verdict is DeduplicationVerdict.NOT_DUP


def _repeat_of_producer(pending: Pending, number: Number, judge: Judge) -> None:
    package = judge.package_of(number)
    if package is None:
        pending.fail(
            SequencePassed(
                f"sequence {number.sequence} is not above the last one that was published: it was "
                "published too and is forgotten, or it was skipped; nothing was published now"
            )
        )
        return
    package_id, offset = package
    pending.answer(offset, package_id=package_id, repeated=True)


def _repeat(pending: Pending, known: KnownKey) -> None:
    if known.fingerprint != pending.request.fingerprint():
        pending.fail(KeyReused("this Idempotency-Key was used for another request; use a new one"))
        return
    pending.answer(known.offset, package_id=known.package_id, repeated=True)
