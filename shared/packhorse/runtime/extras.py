"""How a part of packhorse that is installed by itself is added."""

import sys


def how_to_install(extra: str) -> str:
    """Return the command for an extra, with the Python that runs now: another has other packages.

    It names the sources, not packhorse: that name on a package index is nobody's, or somebody's.
    """
    return f"{sys.executable} -m pip install -e '.[{extra}]' in the folder of packhorse's sources"
