"""The described tables against a database: what they differ in, and the migration that ends it.

`make migration NAME="what it does"` migrates a new database, lets Alembic compare it with every
`tables.py`, and writes the next migration as SQL. Rights, functions and data are added by hand.
"""

import io
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from alembic.autogenerate import produce_migrations
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.operations.ops import MigrateOperation, OpContainer
from sqlalchemy import Connection, MetaData

from packhorse.db.metadata import BOOKKEEPING, CONTENT, JOBS, JOURNAL, METADATA, TOPOLOGY
from packhorse.db.migrate import open_engine, upgrade
from packhorse.db.version import HEAD
from tests.harness.postgres import running_postgres

ROOT = Path(__file__).parents[2]
VERSIONS = ROOT / "shared/packhorse/db/migrations/versions"
_OURS = (BOOKKEEPING, CONTENT, JOBS, JOURNAL, TOPOLOGY)


def described() -> MetaData:
    """Load every `tables.py` of the product, and return all tables."""
    for source in ("shared", "services"):
        for path in (ROOT / source).rglob("tables.py"):
            import_module(".".join(path.relative_to(ROOT / source).with_suffix("").parts))
    return METADATA


def compared(connection: Connection) -> MigrationContext:
    """Return what Alembic compares a database by: our schemas, with the types of columns."""
    return MigrationContext.configure(
        connection,
        opts={
            "include_schemas": True,
            "compare_type": True,
            "include_name": lambda name, kind, _: kind != "schema" or name in _OURS,
        },
    )


def missing_statements(connection: Connection, tables: MetaData) -> list[str]:
    """Return the SQL that makes a database have what is described."""
    changes = produce_migrations(compared(connection), tables).upgrade_ops
    written = io.StringIO()
    options: Any = {"as_sql": True, "output_buffer": written}
    operations = Operations(MigrationContext.configure(dialect_name="postgresql", opts=options))
    for one in _flat(changes):
        operations.invoke(one)
    return [text.strip() for text in re.split(r";\n\n?", written.getvalue()) if text.strip()]


def _flat(change: MigrateOperation | None) -> list[MigrateOperation]:
    if isinstance(change, OpContainer):
        return [one for inner in change.ops for one in _flat(inner)]
    return [] if change is None else [change]


def migration(name: str, statements: list[str], before: str = HEAD) -> str:
    """Return the text of the migration after `before`."""
    executed = "".join(
        f'    op.execute(\n        """\n{_indented(statement)}\n        """\n    )\n'
        for statement in statements
    )
    return (
        f'"""{name[:1].upper()}{name[1:]}."""\n\nfrom alembic import op\n\n'
        f'revision = "{int(before) + 1:04}"\ndown_revision = "{before}"\n\n\n'
        f"def upgrade() -> None:\n{executed or '    pass'}"
    )


def _indented(statement: str) -> str:
    return "\n".join(f"        {line}".rstrip() for line in statement.split("\n"))


def main(name: str) -> None:
    """Write the next migration, and say where it is; none where nothing is to change."""
    slug = re.sub(r"\W+", "_", name.lower()).strip("_")
    if not slug:
        sys.exit('say what it does: make migration NAME="what it does"')
    with running_postgres() as server:
        url = server.ensure_database("next_migration")
        upgrade(url, "migration")
        with open_engine(url, "migration").connect() as connection:
            statements = missing_statements(connection, described())
    if not statements:
        sys.exit("the migrations make what is described already; change a tables.py first")
    path = VERSIONS / f"{int(HEAD) + 1:04}_{slug}.py"
    path.write_text(migration(name, statements))
    print(f"{path.relative_to(ROOT)}: {len(statements)} statements; read them before you commit")


if __name__ == "__main__":
    main(sys.argv[1])
