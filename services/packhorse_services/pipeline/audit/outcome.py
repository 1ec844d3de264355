"""What an audit has found, for people and for `--json`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

UNDECIDED = "undecided"


class ExitCode(IntEnum):
    """What a monitor goes by."""

    EQUAL = 0
    DIFFERENT = 1
    UNKNOWN = 3
    """Nothing is certain to differ, but not everything could be compared, or decided."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A path that is not as it must be; the package put it there, or should have removed it.

    One of kind `undecided` is as one subscription alone has left it, while another one has written
    or removed it, too: then it may be right, for no offset says which of them came last.

    `offset` None: nothing in the history that was read has put it there or removed it. Without a
    `package_id` it came with the snapshot of that offset, and the package is at or before it.
    """

    path: str
    kind: str
    offset: int | None
    package_id: str

    @property
    def origin(self) -> str:
        """What put it there or removed it, as text."""
        if self.offset is None:
            return "no package"
        if not self.package_id:
            return f"a package up to offset {self.offset}, by its snapshot"
        return f"offset {self.offset} {self.package_id}"


@dataclass(frozen=True, slots=True)
class Audited:
    """One subscriber. `problem`: why it could not be compared."""

    subscriber: str
    offsets: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    notes: Sequence[str] = ()
    problem: str = ""

    @property
    def differs(self) -> bool:
        """Return whether any path is certain not to be as it must be."""
        return any(count for _, count in _certain(self))

    @property
    def is_equal(self) -> bool:
        """Return whether every path was compared and is as it must be."""
        return not self.problem and not any(self.counts.values())

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        at = ", ".join(f"{agent} at {offset}" for agent, offset in self.offsets.items())
        if self.problem:
            yield f"{self.subscriber}: not compared: {self.problem}"
        elif self.is_equal:
            yield f"{self.subscriber}: equal ({at})"
        else:
            counts = ", ".join(f"{count} {kind}" for kind, count in self.counts.items() if count)
            yield f"{self.subscriber}: {counts} ({at})"
        for finding in self.findings:
            yield f"  {finding.kind} {finding.path} ({finding.origin})"
        hidden = sum(self.counts.values()) - len(self.findings)
        if hidden:
            yield f"  and {hidden} more, in the table"
        for note in self.notes:
            yield f"  note: {note}"

    def as_json(self) -> dict[str, Any]:
        """Return it as `--json` shows it."""
        return {**asdict(self), "equal": self.is_equal}


def shortfall(run: str, audited: Sequence[Audited]) -> str:
    """Return in one line why an audit ends with another code than 0: what, how many, and where."""
    every = len(audited)
    if differing := [one for one in audited if one.differs]:
        paths = sum(count for one in differing for kind, count in _certain(one))
        return (
            f"{len(differing)} of {every} subscribers differ ({_names(differing)}), in {paths} "
            f"paths, which the table audit/{run} has; distribute these paths again"
        )
    missed = [one for one in audited if one.problem]
    unclear = [one for one in audited if not one.problem and not one.is_equal]
    parts = []
    if missed:
        first = f"{missed[0].subscriber}: {missed[0].problem}"
        parts.append(f"{len(missed)} of {every} subscribers could not be compared ({first})")
    if unclear:
        parts.append(f"{len(unclear)} of {every} have undecided paths ({_names(unclear)})")
    return f"nothing differs for certain, but {' and '.join(parts)}; see the report"


def _certain(one: Audited) -> Iterator[tuple[str, int]]:
    return ((kind, count) for kind, count in one.counts.items() if kind != UNDECIDED)


def _names(some: Sequence[Audited]) -> str:
    return listed([one.subscriber for one in some])


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return up to `most` of the names, and how many there are besides."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def exit_code(audited: Sequence[Audited]) -> ExitCode:
    """Return what all of it together comes to."""
    if any(one.differs for one in audited):
        return ExitCode.DIFFERENT
    return ExitCode.EQUAL if all(one.is_equal for one in audited) else ExitCode.UNKNOWN
