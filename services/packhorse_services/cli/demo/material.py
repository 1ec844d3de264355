"""Content for the demo that every machine with packhorse has anyway, and its licences."""

import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from packhorse_services.cli.stack.postgres_binaries import binaries

_NO_CONTENT = shutil.ignore_patterns(
    "__pycache__", "site-packages", "dist-packages", "test", "config-*", "*.pyc", "*.a"
)


@dataclass(frozen=True, slots=True)
class DemoContent:
    """A folder of real files, and where it comes from."""

    name: str
    folder: Path
    origin: str


def sources() -> list[DemoContent]:
    """Return the default content: about 2,500 files, many of them binary, several levels deep."""
    installed = binaries().parent
    return [
        DemoContent(
            "python", Path(sysconfig.get_path("stdlib")), "Python's standard library, PSF-2.0"
        ),
        DemoContent(
            "postgresql", installed / "share", "PostgreSQL's shared files, PostgreSQL Licence"
        ),
        DemoContent("headers", installed / "include", "PostgreSQL's headers, PostgreSQL Licence"),
    ]


def gather(folder: Path) -> list[DemoContent]:
    """Copy the default content below `folder`, one folder a source, and return the sources."""
    found = sources()
    for source in found:
        shutil.copytree(source.folder, folder / source.name, ignore=_NO_CONTENT, symlinks=False)
    return found
