"""The invariants, checked over what a run has left."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packhorse.blobs.api import BlobStore
from packhorse.messaging.api import Journal, Record
from packhorse.packages.body import unpack
from packhorse.wire.codec import decode_status
from packhorse.wire.messages import Action, PackageMessage, Status
from packhorse.wire.package_codec import decode_package
from tests.chaos.ledger import Sample
from tests.harness.journals import everything


@dataclass
class Delivered:
    """One package of the journal, as the independent model sees it."""

    offset: int
    package: PackageMessage
    nodes: dict[str, Any]


@dataclass
class History:
    """The package topic of a run: what counts, in order, and what was appended a second time."""

    packages: list[Delivered] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        """The ids of the packages, in the journal's order."""
        return [delivered.package.entry.package_id for delivered in self.packages]


def history(journal: Journal, topic: str, blobs: BlobStore) -> History:
    """Read the journal as a subscriber should: a number that was there already says nothing."""
    found = History()
    applied: dict[str, tuple[int, int]] = {}
    for record in everything(journal, topic):
        package = decode_package(record.headers, record.value)
        entry = package.entry
        number = (entry.epoch, entry.sequence)
        if number <= applied.get(entry.producer, (0, 0)):
            found.repeated.append(entry.package_id)
            continue
        applied[entry.producer] = number
        nodes = {node.path: json.loads(node.properties) for node in unpack(package, blobs)}
        found.packages.append(Delivered(record.offset, package, nodes))
    return found


def check_journal(found: History, accepted: Mapping[str, int | None]) -> None:
    """R5: every accepted package is in the journal once, at the offset that was answered."""
    assert len(found.ids) == len(set(found.ids)), "a package is in the journal under two numbers"
    lost, foreign = set(accepted) - set(found.ids), set(found.ids) - set(accepted)
    assert not lost, f"accepted, and not in the journal: {sorted(lost)}"
    assert not foreign, f"in the journal, and accepted by nobody: {sorted(foreign)}"
    offsets = {d.package.entry.package_id: d.offset for d in found.packages}
    wrong = {
        package_id: (offset, offsets[package_id])
        for package_id, offset in accepted.items()
        if offset is not None and offset != offsets[package_id]
    }
    assert not wrong, f"answered and real offsets differ: {wrong}"


def check_order(found: History) -> None:
    """R6: of each path, no package has an older version than one before it."""
    newest: dict[str, int] = {}
    for delivered in found.packages:
        for path, properties in delivered.nodes.items():
            version = properties.get("version", 0)
            assert version >= newest.get(path, 0), f"{path} goes back at {delivered.offset}"
            newest[path] = version


def check_samples(found: History, samples: Iterable[Sample]) -> None:
    """R8: at every moment the content was the fold of the packages up to the offset."""
    model: dict[str, Any] = {}
    ahead = iter(found.packages)
    upcoming = next(ahead, None)
    for taken in sorted(samples, key=lambda sample: sample.offset):
        while upcoming is not None and upcoming.offset <= taken.offset:
            assert upcoming.package.entry.action is Action.ADD
            model.update({p: v for p, v in upcoming.nodes.items() if p.count("/") == 3})
            upcoming = next(ahead, None)
        assert taken.content == model, _difference(taken, model)


def _difference(taken: Sample, model: Mapping[str, Any]) -> str:
    missing = sorted(set(model) - set(taken.content))
    extra = sorted(set(taken.content) - set(model))
    other = sorted(p for p in set(model) & set(taken.content) if model[p] != taken.content[p])
    return f"at offset {taken.offset}: missing {missing[:5]}, extra {extra[:5]}, other {other[:5]}"


def check_once(counts: Mapping[str, int], expected: Sequence[str]) -> None:
    """Every once-only path was written exactly once."""
    twice = {path: count for path, count in counts.items() if count != 1}
    assert not twice, f"written more than once: {twice}"
    assert set(counts) == set(expected), "the ledger lacks packages, or has some nobody sent"


def check_statuses(found: History, records: Iterable[Record], subscriber: str) -> None:
    """R9: every package was reported as imported, at least once, and as nothing else."""
    reported: dict[int, set[Status]] = {}
    for record in records:
        status = decode_status(record.headers, record.value)
        if status.subscriber == subscriber:
            reported.setdefault(status.offset, set()).add(status.status)
    for delivered in found.packages:
        assert reported.get(delivered.offset) == {Status.IMPORTED}, (
            f"{subscriber} reported {reported.get(delivered.offset)} of {delivered.offset}"
        )
