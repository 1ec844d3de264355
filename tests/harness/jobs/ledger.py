"""What jobs have done, as rows that each attempt leaves, and what must hold of them all."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg.rows import class_row

ONCE, CHECKED, LEAST, ORDERED = "once", "checked", "least", "ordered"
"""Kinds of jobs: the effect in the completing transaction; in one of its own that holds the
attempt; in one that does not; and in the completing transaction, in an ordered queue."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect; `id` grows with every one, `epoch` is that of the attempt that had it."""

    id: int
    kind: str
    number: int
    epoch: int
    retry: bool
    instance: str


def install(url: str) -> None:
    """Make the ledger in a database."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE TABLE public.effect (id bigserial PRIMARY KEY, kind text NOT NULL, "
            "number bigint NOT NULL, epoch bigint NOT NULL, retry boolean NOT NULL, "
            "instance text NOT NULL)"
        )
        connection.execute("GRANT INSERT, SELECT ON public.effect TO packhorse_bookkeeper")
        connection.execute("GRANT USAGE ON SEQUENCE public.effect_id_seq TO packhorse_bookkeeper")


def effects(url: str) -> list[Effect]:
    """Return all effects, in the order in which they came."""
    with psycopg.connect(url) as connection, connection.cursor(row_factory=class_row(Effect)) as c:
        return c.execute("SELECT * FROM public.effect ORDER BY id").fetchall()


def outcomes(url: str) -> dict[int, tuple[str, str]]:
    """Return kind and state of every finished job by its number."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT number, topic, state FROM jobs.finished").fetchall()
    return {number: (topic.split("/")[0], state) for number, topic, state in rows}


def check_all(had: Sequence[Effect], ended: Mapping[int, tuple[str, str]], given: int) -> None:
    """Hold everything that is promised of `given` jobs."""
    other = {number: state for number, (_, state) in ended.items() if state != "SUCCEEDED"}
    assert not other, f"not done: {other}"
    assert len(ended) == given, f"{given} jobs were given, {len(ended)} have ended"
    check_done(had, {number: kind for number, (kind, _) in ended.items()})
    check_once(one for one in had if one.kind in (ONCE, ORDERED))
    check_retries(had)
    check_fenced(one for one in had if one.kind == CHECKED)
    check_order([one for one in had if one.kind == ORDERED])


def check_done(had: Iterable[Effect], jobs: Mapping[int, str]) -> None:
    """Every job has had its effect, and nothing else has."""
    seen = {one.number: one.kind for one in had}
    missing = sorted(set(jobs) - set(seen))
    assert seen == dict(jobs), f"{len(missing)} jobs without an effect, such as {missing[:5]}"


def check_once(had: Iterable[Effect]) -> None:
    """No job has had its effect twice."""
    counts = Counter(one.number for one in had)
    twice = {number: count for number, count in counts.items() if count > 1}
    assert not twice, f"effects more than once: {twice}"


def check_retries(had: Iterable[Effect]) -> None:
    """Whoever repeats an effect could know it: every attempt but the first is a retry."""
    by_number: dict[int, list[Effect]] = defaultdict(list)
    for one in had:
        by_number[one.number].append(one)
    for number, attempts in by_number.items():
        attempts.sort(key=lambda one: one.epoch)
        epochs = [one.epoch for one in attempts]
        assert len(set(epochs)) == len(epochs), f"an attempt of {number} had two effects"
        unflagged = [one for one in attempts[1:] if not one.retry]
        assert not unflagged, f"repeated without the flag: {unflagged}"


def check_fenced(had: Iterable[Effect]) -> None:
    """An attempt that was held had its effect before any later one began."""
    newest: dict[int, int] = {}
    for one in sorted(had, key=lambda one: one.id):
        assert one.epoch > newest.get(one.number, -1), f"an effect of an older attempt: {one}"
        newest[one.number] = one.epoch


def check_order(had: Sequence[Effect]) -> None:
    """The jobs of an ordered queue were done in the order in which they were given."""
    for before, after in itertools.pairwise(sorted(had, key=lambda one: one.id)):
        assert before.number < after.number, f"{after.number} was done after {before.number}"
