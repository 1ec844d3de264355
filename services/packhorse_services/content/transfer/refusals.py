"""Why a transfer is refused, with the exit code that says so."""

from packhorse.client.errors import Conflict, Invalid, Misused, NotFound
from packhorse.errors import Permanent

_CODES = {NotFound: 3, Conflict: 4, Invalid: 2, Misused: 2}


class Refusal(Permanent):
    """The transfer can't be made; the text says why."""

    code = 1


class NothingThere(Refusal):
    """There is no such path."""

    code = 3


class TargetTaken(Refusal):
    """What is to be made is there already."""

    code = 4


class Unwritable(Refusal):
    """The target can't be written."""


def exit_code(error: Exception) -> int:
    """Return the code for an error of the transfer, or of the service's client."""
    found = (code for kind, code in _CODES.items() if isinstance(error, kind))
    return int(getattr(error, "code", next(found, 1)))
