"""What a subscriber takes of the packages of its agents, and why it leaves out the others (R35)."""

from dataclasses import dataclass

from packhorse.wire.messages import PackageEntry
from packhorse_services.subscriber.journal.failures import printable

_NAMED, _CHARACTERS = 5, 80


@dataclass(frozen=True, slots=True)
class Selection:
    """Decides about packages by what they declare, without a look at their bodies."""

    subscriber: str

    def left_out(self, entry: PackageEntry) -> str:
        """Return why a package is passed over, or an empty text for one that is imported."""
        if not entry.is_for(self.subscriber):
            return f"it is for {_names(entry.targets)} alone"
        return ""


def _names(targets: tuple[str, ...]) -> str:
    more = len(targets) - _NAMED
    named = ", ".join(printable(target, _CHARACTERS) for target in targets[:_NAMED])
    return named + (f" and {more} more" if more > 0 else "")
