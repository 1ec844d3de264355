"""How a program says that it can't start: one sentence on standard error, and an exit code."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packhorse.errors import PackhorseError, Transient
from packhorse.runtime.reasons import reason_of

CANT_START_NOW = 1
"""Exit code when a later start may succeed: a supervisor should try again."""

WRONG_CONFIGURATION = 2
"""Exit code when somebody has to change something first."""

TYPED = "PACKHORSE_TYPED"
"""The variable by which `packhorse` gives a program that it starts what the user has typed."""


def typed(program: str, module: str) -> str:
    """Return what the user has typed to start this program, for its usage; to be asked once.

    Programs that this one starts do not get it.
    """
    by_module = Path(sys.argv[0]).name == "__main__.py"
    return os.environ.pop(TYPED, "") or (f"python -m {module}" if by_module else program)


@contextmanager
def plain_refusals() -> Iterator[None]:
    """Turn packhorse's own errors and wrong settings into a sentence and `SystemExit`."""
    from pydantic import ValidationError  # what the command line takes from here needs none of it

    try:
        yield
    except ValidationError as error:
        for found in error.errors(include_url=False, include_input=False, include_context=False):
            where = ".".join(str(step) for step in found["loc"])
            sys.stderr.write(f"setting {where or 'combination'}: {reason_of(found['msg'])}\n")
        raise SystemExit(WRONG_CONFIGURATION) from None
    except PackhorseError as error:
        sys.stderr.write(f"can't start: {error}\n")
        code = CANT_START_NOW if isinstance(error, Transient) else WRONG_CONFIGURATION
        raise SystemExit(code) from None
