"""R27 without Spark: which packages repeat a producer's number, and which number is the highest."""

import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from packhorse.blobs.open import open_blobs
from packhorse.snapshots.snapshot import AppliedSequence
from packhorse.wire.messages import Action, PackageEntry, PackageMessage
from packhorse_services.pipeline.history.numbers import Numbers, numbers_of
from packhorse_services.pipeline.history.read import bronze_version
from packhorse_services.pipeline.storage.location import Location
from tests.harness.depth import examples
from tests.harness.feed import TOPICS
from tests.harness.history import JOURNAL, History, archive

AGENT = "main"
PRODUCERS = [str(uuid.UUID(int=number)) for number in range(2)]
ALL = {AGENT: (-1, 1_000)}
Sent = tuple[int, int, int]
"""Which producer, epoch, sequence; a negative producer: none."""


def sent(history: History, what: Sequence[Sent]) -> None:
    for producer, epoch, sequence in what:
        name = PRODUCERS[producer] if producer >= 0 else ""
        package_id = f"dstrpck-1-{history.next_offset:016x}"
        numbered = (name, epoch, sequence) if name else ("", 0, 0)
        entry = PackageEntry(
            *(package_id, AGENT, Action.DELETE, ("/a",), (), "tester", *numbered), 0, 0, 0
        )
        history.message(PackageMessage(entry, None, ""))


def archived(folder: Path, what: Sequence[Sent], begin: int, cuts: Sequence[slice]) -> Location:
    """Archive what was sent from an offset on, latest first, in a file for each cut."""
    with closing(open_blobs(str(folder / "blobs"))) as blobs:
        history = History(blobs, next_offset=begin)
        sent(history, what)
    location = Location.parse(str(folder))
    for cut in cuts:
        if records := history.records[cut][::-1]:
            archive(location, records)
    return location


def counted(
    what: Sequence[Sent], begin: int = 0, applied: Sequence[AppliedSequence] = ()
) -> Numbers:
    """Count one by one: the model."""
    highest = {one.producer: (one.epoch, one.sequence, one.log_offset) for one in applied}
    repeats = set()
    for offset, (producer, *number) in enumerate(what, begin):
        if producer < 0:
            continue
        name = PRODUCERS[producer]
        if name in highest and tuple(number) <= highest[name][:2]:
            repeats.add(offset)
        else:
            highest[name] = (number[0], number[1], offset)
    found = (AppliedSequence(AGENT, name, *highest[name]) for name in sorted(highest))
    return Numbers(frozenset(repeats), tuple(found))


CUTS = {
    "one file": [slice(None)],
    "one behind the other": [slice(4, None), slice(4)],
    "that overlap": [slice(1, None, 2), slice(None, None, 2)],
    "some that overlap": [slice(6, None), slice(None, 6, 3), slice(1, 6, 3), slice(2, 6, 3)],
}


@pytest.mark.parametrize("cuts", CUTS)
@given(
    what=st.lists(
        st.tuples(st.integers(-1, 1), st.integers(1, 2), st.integers(1, 3)), min_size=1, max_size=9
    ),
    known=st.dictionaries(st.integers(0, 1), st.tuples(st.integers(1, 2), st.integers(1, 3))),
)
@example(what=[(0, 1, 1), (0, 1, 2), (0, 1, 3), (0, 1, 2)], known={})
@settings(max_examples=examples(12), deadline=None)
def test_r27_what_repeats_is_found_in_whatever_files_it_is(
    cuts: str,
    what: list[Sent],
    known: dict[int, tuple[int, int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    begin = 5
    applied = [
        AppliedSequence(AGENT, PRODUCERS[producer], *number, producer)
        for producer, number in known.items()
    ]
    location = archived(tmp_path_factory.mktemp("numbers"), what, begin, CUTS[cuts])
    found = numbers_of(location, bronze_version(location, TOPICS.package), JOURNAL, ALL, applied)
    assert found == counted(what, begin, applied)


def test_r27_only_packages_of_the_spans_are_counted(tmp_path: Path) -> None:
    location = archived(tmp_path, [(0, 1, 3), (0, 1, 2), (0, 1, 1), (1, 1, 1)], 0, [slice(None)])
    version = bronze_version(location, TOPICS.package)

    def found(span: tuple[int, int], agent: str = AGENT) -> tuple[set[int], list[int]]:
        numbers = numbers_of(location, version, JOURNAL, {agent: span})
        return set(numbers.repeats), [one.log_offset for one in numbers.highest]

    assert found((-1, 3)) == ({1, 2}, [0, 3])
    assert found((0, 2)) == ({2}, [1])
    assert found((-1, 3), "another") == (set(), [])
    assert numbers_of(location, version, "older", {AGENT: (-1, 3)}).highest == ()


def test_r27_what_was_applied_counts_from_its_offset_on(tmp_path: Path) -> None:
    location = archived(tmp_path, [(0, 1, 1), (0, 1, 2), (0, 1, 5)], 0, [slice(None)])
    applied = [AppliedSequence(AGENT, PRODUCERS[0], 1, 4, 1)]
    numbers = numbers_of(location, bronze_version(location, TOPICS.package), JOURNAL, ALL, applied)
    assert numbers.repeats == set(), "the second one was there when it was applied"
    assert [one.sequence for one in numbers.highest] == [5]
