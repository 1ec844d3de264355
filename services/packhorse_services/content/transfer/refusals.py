"""Why a transfer is refused, with the exit code that says so."""

from packhorse.errors import Permanent


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
