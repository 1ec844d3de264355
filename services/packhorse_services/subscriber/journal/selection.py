"""What a subscriber takes of the packages of its agents, and why it leaves out the others (R35)."""

from dataclasses import dataclass

from packhorse.content.node import InvalidPath
from packhorse.packages.limits import PackageRefused
from packhorse.packages.path_filter import EVERYTHING, PathFilter
from packhorse.packages.scope import type_of
from packhorse.wire.messages import PackageMessage
from packhorse_services.subscriber.journal.failures import printable

_NAMED, _CHARACTERS = 5, 80
_REASON_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Selection:
    """Decides about packages by what they declare, without a look at their bodies."""

    subscriber: str
    path_filter: PathFilter = EVERYTHING

    def left_out(self, package: PackageMessage) -> str:
        """Return why a package is passed over, or an empty text for one that is imported."""
        entry = package.entry
        if not entry.is_for(self.subscriber):
            return f"it is for {_names(entry.targets)} alone"
        if self.path_filter.holds_all or package.package_type != type_of(entry):
            return ""
        try:
            why = self.path_filter.left_out(entry)
        except (InvalidPath, PackageRefused):
            return ""  # its import fails, and says why (R14)
        return why[:_REASON_CHARACTERS]


def _names(targets: tuple[str, ...]) -> str:
    more = len(targets) - _NAMED
    named = ", ".join(printable(target, _CHARACTERS) for target in targets[:_NAMED])
    return named + (f" and {more} more" if more > 0 else "")
