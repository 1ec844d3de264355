"""Which schema this program knows, and whether it can work with another one.

A program works with a database that a newer release has migrated, as long as nothing was taken
away that it needs: migrations expand the schema first, and contract it a release later. Each
contracting migration names in `needs_program` the oldest schema that programs have to know.
"""

from pathlib import Path

from packhorse.errors import Permanent

HEAD = max(
    path.name[:4] for path in (Path(__file__).parent / "migrations/versions").glob("[0-9]*.py")
)
"""The schema that this program knows, by the number of its last migration."""

VERSION_TABLE = "packhorse_schema"


class SchemaTooNew(Permanent):
    """A newer release has removed what this program needs of the database."""


def check_newer(revision: str, needs_program: str) -> None:
    """Raise `SchemaTooNew` when this program can't work with a database of that schema."""
    if needs_program > HEAD:
        raise SchemaTooNew(
            f"a newer release of packhorse has migrated the database to schema {revision}, which "
            f"programs before schema {needs_program} can't use; this one knows {HEAD}. Start the "
            "newer release again, or restore the backup that was taken before the upgrade"
        )
