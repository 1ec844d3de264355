"""The author's database as Spark's executors reach it: by JDBC, which speaks TCP only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.exc import ArgumentError

from packhorse.db.engine import conninfo
from packhorse_services.pipeline.errors import TaskRefused

_NAMES = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslpassword": "sslpassword",
    "connect_timeout": "connectTimeout",
    "application_name": "ApplicationName",
}
_TARGETS = {
    "any": "any",
    "read-write": "primary",
    "primary": "primary",
    "standby": "secondary",
    "prefer-standby": "preferSecondary",
}
_OURS = frozenset({"host", "port", "dbname", "user", "password", "target_session_attrs"})


@dataclass(frozen=True, slots=True)
class JdbcDatabase:
    """A database for the JDBC driver. The URL holds no secret; `properties` may."""

    url: str
    properties: Mapping[str, str] = field(repr=False)
    """What the driver takes beside the URL: `user`, `password`, TLS."""


def jdbc_database(url: str) -> JdbcDatabase:
    """Return what `postgresql://user:password@host:port/database?…` is to the JDBC driver.

    Raises `TaskRefused` for a server that is reached by a unix socket, and for a parameter that
    the driver has none for; the text names no value.
    """
    known = _parameters(url)
    user = known.get("user")
    if not user:
        raise TaskRefused("PACKHORSE_DATABASE_URL names no user; use postgresql://user:password@…")
    properties = {"user": user}
    if "password" in known:
        properties["password"] = known["password"]
    for name in sorted(known.keys() - _OURS):
        if name not in _NAMES:
            raise TaskRefused(
                f"PACKHORSE_DATABASE_URL has the parameter {name}, which Spark's connections "
                "can't have; leave it out for bulk distribution"
            )
        properties[_NAMES[name]] = known[name]
    if target := known.get("target_session_attrs"):
        properties["targetServerType"] = _target(target)
    servers = _servers(known.get("host", ""), known.get("port", ""))
    return JdbcDatabase(
        f"jdbc:postgresql://{servers}/{quote(known.get('dbname', user), safe='')}", properties
    )


def _parameters(url: str) -> dict[str, str]:
    try:
        return {name: str(value) for name, value in conninfo_to_dict(conninfo(url)).items()}
    except (ArgumentError, ValueError, ProgrammingError):  # their words may quote the password
        raise TaskRefused(
            "PACKHORSE_DATABASE_URL is no URL of a database; use "
            "postgresql://user:password@host:port/database"
        ) from None


def _target(wanted: str) -> str:
    if wanted not in _TARGETS:
        raise TaskRefused(
            f"target_session_attrs={wanted[:40]} has no counterpart in JDBC; "
            f"use one of {', '.join(sorted(_TARGETS))}"
        )
    return _TARGETS[wanted]


def _servers(hosts: str, ports: str) -> str:
    """Return `host:port` for each server. Raises `TaskRefused` unless all are reached by TCP."""
    named = hosts.split(",")
    if not all(named) or any(host.startswith(("/", "@")) for host in named):
        raise TaskRefused(
            "PACKHORSE_DATABASE_URL leads to a unix socket, and Spark's connections need TCP; "
            "name the host: postgresql://user:password@host:5432/database"
        )
    numbers = ports.split(",") if ports else ["5432"]
    numbers = numbers * len(named) if len(numbers) == 1 else numbers
    if len(numbers) != len(named):
        raise TaskRefused("PACKHORSE_DATABASE_URL must name as many ports as hosts, or one")
    return ",".join(
        f"{f'[{host}]' if ':' in host else host}:{port or 5432}"
        for host, port in zip(named, numbers, strict=True)
    )
