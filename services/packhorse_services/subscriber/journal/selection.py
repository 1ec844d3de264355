"""What a subscriber takes of the packages of its agents, and why it leaves out the others (R35)."""

from dataclasses import dataclass

from packhorse.wire.messages import PackageEntry

_NAMED = 5


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
    return ", ".join(targets[:_NAMED]) + (f" and {more} more" if more > 0 else "")
