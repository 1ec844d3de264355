"""What an audit has found, for people and for `--json`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """What a monitor goes by."""

    EQUAL = 0
    DIFFERENT = 1
    UNKNOWN = 3
    """Nothing differs that could be compared, but not everything could be."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A path that is not as it must be; the package put it there, or should have removed it.

    `offset` None: nothing in the history that was read has put it there or removed it.
    """

    path: str
    kind: str
    offset: int | None
    package_id: str


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
        """Tell whether any path is not as it must be."""
        return any(self.counts.values())

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        at = ", ".join(f"{agent} at {offset}" for agent, offset in self.offsets.items())
        if self.problem:
            yield f"{self.subscriber}: not compared: {self.problem}"
        elif not self.differs:
            yield f"{self.subscriber}: equal ({at})"
        else:
            counts = ", ".join(f"{count} {kind}" for kind, count in self.counts.items() if count)
            yield f"{self.subscriber}: {counts} ({at})"
        for finding in self.findings:
            by = "no package" if finding.offset is None else f"offset {finding.offset}"
            yield f"  {finding.kind} {finding.path} ({by} {finding.package_id})".replace(" )", ")")
        hidden = sum(self.counts.values()) - len(self.findings)
        if hidden:
            yield f"  and {hidden} more, in the table"
        for note in self.notes:
            yield f"  note: {note}"

    def as_json(self) -> dict[str, Any]:
        """Return it as `--json` shows it."""
        return {**asdict(self), "equal": not self.problem and not self.differs}


def exit_code(audited: Sequence[Audited]) -> ExitCode:
    """Return what all of it together comes to."""
    if any(one.differs for one in audited):
        return ExitCode.DIFFERENT
    return ExitCode.UNKNOWN if any(one.problem for one in audited) else ExitCode.EQUAL
