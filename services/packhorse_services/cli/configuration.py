"""`packhorse config check`: what commands would use, and whether it works."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg

from packhorse.db.connect import connect
from packhorse.runtime.setting_names import unknown_settings
from packhorse.runtime.url_secrets import without_secrets
from packhorse_services.cli.client import output
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.failures import CommandFailed, Exit

_SECRET_SETTINGS = ("_TOKEN", "_KEY", "_SECRET", "_PASSWORD")
_SHOWN = 4
_DATABASES = ("PACKHORSE_DATABASE_URL", "PACKHORSE_JOURNAL_URL")
_OPEN = """
    SELECT EXISTS (
        SELECT FROM pg_database d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) a
        WHERE d.datname = current_database() AND a.grantee = 0 AND a.privilege_type = 'CONNECT')
"""


def check(connection: Connection) -> None:
    """Print the effective settings, secrets masked. Raises `CommandFailed` when they don't work."""
    misspelt = unknown_settings(os.environ)
    if misspelt:
        raise CommandFailed("; ".join(misspelt), Exit.USAGE)
    token = connection.token()
    output.line(f"data     {connection.directory.root}")
    output.line(f"server   {without_secrets(connection.publisher_url())}")
    output.line(f"token    {masked(token) if token else '(none)'}")
    settings = connection.directory.author_settings()
    for name, value in sorted(settings.items()):
        shown = masked(value) if name.endswith(_SECRET_SETTINGS) else without_secrets(value)
        output.line(f"{name}={shown}")
    for warning in warnings({**settings, **os.environ}):
        output.report(warning)
    with connection.publisher() as publisher:
        version = publisher.get("/")["version"]
        count = len(publisher.get("/subscribers")["subscribers"])
    output.report(f"packhorse {version} answers, and the token is good; {count} subscribers")


def warnings(settings: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each database of the settings that other logins of its server enter.

    Also for one that nobody can look at: its file can't be read, or it can't be reached.
    """
    for name in _DATABASES:
        file = settings.get(f"{name}_FILE")
        try:
            url = settings.get(name) or (Path(file).read_text().strip() if file else "")
        except (OSError, UnicodeDecodeError) as error:
            yield f"{name}_FILE: the file can't be read: {error}"
            continue
        if url.startswith(("postgresql://", "postgres://")) and (found := _found(url)):
            yield f"{name}: {found}"


def _found(url: str) -> str:
    try:
        with connect(url, "packhorse-cli", autocommit=True) as database:
            if not _is_open_to_all(database):
                return ""
            name = database.info.dbname
    except psycopg.Error as error:
        return f"the database can't be reached: {str(error).splitlines()[0]}"
    return (
        "every login of the server may enter the database, also with the roles that it has for "
        f'another one; run REVOKE CONNECT, TEMPORARY ON DATABASE "{name}" FROM PUBLIC as its owner'
    )


def _is_open_to_all(connection: psycopg.Connection) -> bool:
    """Return whether every login of the server may connect, as to a copy or a restored database.

    A migration takes that right away, but what PostgreSQL copies or restores has it again.
    """
    row = connection.execute(_OPEN).fetchone()
    return row is not None and bool(row[0])


def masked(secret: str) -> str:
    """Return enough of a secret to distinguish two."""
    return secret[:_SHOWN] + "…" if len(secret) > 2 * _SHOWN else "…"
