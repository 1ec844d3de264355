"""What an embedded stack consists of: programs, and the databases, ports and settings of each."""

import json
import sys
from collections.abc import Mapping, Sequence

from packhorse.client.stack_folder import RunningStack
from packhorse.errors import Permanent
from packhorse_services.cli.client.data_directory import DataDirectory
from packhorse_services.cli.client.stack_options import StackOptions
from packhorse_services.cli.stack.child import ChildProgram
from packhorse_services.cli.stack.ports import free_ports, is_free

AUTHOR_DATABASE = "author"
_JOURNAL_DATABASE = "journal"
_FIXED_PROGRAMS = 6
_CONNECTIONS, _CONNECTIONS_OF_SUBSCRIBER = 120, 26
"""The most that programs were seen to hold (docs/operations/databases.md)."""
_TOPOLOGY, _JOBS, _CONSOLE = "topology", "jobs", "console"
_SUBSCRIBER = "PACKHORSE_SUBSCRIBER"
"""Settings that only a subscriber has."""

_OWN = ("PACKHORSE_PORT", "PACKHORSE_INSTANCE_ID", "PACKHORSE_ENDPOINT")
"""Where a program listens, its name in the topology, and how others reach it."""


class PortTaken(Permanent):
    """Another program listens on a port that the stack was asked to use."""


def subscriber_names(count: int) -> list[str]:
    """Return the agents' names, each the name of its database as well."""
    return [f"sub{number}" for number in range(1, count + 1)]


def choose_ports(options: StackOptions) -> list[int]:
    """Return a port for each program, in the order of `plan`. Raises `PortTaken`."""
    count = _FIXED_PROGRAMS + 2 * options.subscribers
    if options.port == 0:
        return free_ports(count)
    ports = list(range(options.port, options.port + count))
    taken = [port for port in ports if not is_free(port)]
    if taken:
        raise PortTaken(
            f"port {taken[0]} is in use; choose another first of {count} with --port, or 0 for "
            "any that are free"
        )
    return ports


def database_names(options: StackOptions) -> list[str]:
    """Return the databases that the stack needs on the embedded server."""
    return [AUTHOR_DATABASE, _JOURNAL_DATABASE, *subscriber_names(options.subscribers)]


def connections(options: StackOptions) -> int:
    """Return how many connections the embedded server has to take: what all may hold at once."""
    return max(400, _CONNECTIONS + _CONNECTIONS_OF_SUBSCRIBER * options.subscribers)


def has_own_journal(options: StackOptions) -> bool:
    """Return whether the journal is a database of the embedded server."""
    return options.journal == "postgresql"


def journal_url(options: StackOptions, databases: Mapping[str, str]) -> str:
    """Return the journal's URL; that of the embedded server's own database by default."""
    return databases[_JOURNAL_DATABASE] if has_own_journal(options) else options.journal


def plan(
    options: StackOptions, databases: Mapping[str, str], ports: list[int]
) -> list[ChildProgram]:
    """Return the programs in the order of their start; `databases` has a URL for each name."""
    names, free = subscriber_names(options.subscribers), iter(ports)
    common = _common(options, databases)

    def environment(database: str, more: Mapping[str, str] = {}) -> dict[str, str]:
        return {**common, "PACKHORSE_DATABASE_URL": databases[database], **more}

    programs = [
        _program(service, service, next(free), environment(AUTHOR_DATABASE))
        for service in ("publisher", "content", "cleanup")
    ]
    for name in names:
        own = environment(name, _subscriber(options, name))
        programs.append(_program(name, "subscriber", next(free), own))
    # Each database is a cluster; those of subscribers connect to the author's, which knows all.
    signed = {"PACKHORSE_CONNECTOR_SHARED_KEY_FILE": str(options.directory.connector_key)}
    centre, jobs = (
        _program(service, service, next(free), environment(AUTHOR_DATABASE, more))
        for service, more in ((_TOPOLOGY, signed), (_JOBS, {}))
    )
    connected = {**signed, "PACKHORSE_CONNECTOR_URLS": centre.url}
    around = [
        _program(f"{_TOPOLOGY}-{name}", _TOPOLOGY, next(free), environment(name, connected))
        for name in names
    ]
    console = _console(options, next(free), [*programs, centre, jobs])
    return [*programs, centre, jobs, *around, console]


def _subscriber(options: StackOptions, name: str) -> dict[str, str]:
    return {
        _SUBSCRIBER: name,
        "PACKHORSE_EDITABLE": str(options.editable).lower(),
        "PACKHORSE_MAX_RETRIES": str(options.max_retries),
    }


def _console(options: StackOptions, port: int, shown: Sequence[ChildProgram]) -> ChildProgram:
    """Return the console, which is told where the others are, and no database and no journal."""
    urls = {program.name: program.url for program in shown}
    subscribers = {name: urls[name] for name in subscriber_names(options.subscribers)}
    settings = {
        "PACKHORSE_HOST": "127.0.0.1",
        "PACKHORSE_TOKEN_FILE": str(options.directory.tokens),
        "PACKHORSE_PUBLISHER_URLS": json.dumps({"main": urls["publisher"]}),
        "PACKHORSE_CONTENT_URL": urls["content"],
        "PACKHORSE_SUBSCRIBER_URLS": json.dumps(subscribers),
        "PACKHORSE_CLEANUP_URL": urls["cleanup"],
        "PACKHORSE_TOPOLOGY_URLS": json.dumps({AUTHOR_DATABASE: urls[_TOPOLOGY]}),
        "PACKHORSE_JOBS_URLS": json.dumps({AUTHOR_DATABASE: urls[_JOBS]}),
    }
    return _program(_CONSOLE, _CONSOLE, port, settings)


def _common(options: StackOptions, databases: Mapping[str, str]) -> dict[str, str]:
    directory, names = options.directory, options.topics().by_part()
    return {
        "PACKHORSE_HOST": "127.0.0.1",
        "PACKHORSE_JOURNAL_URL": journal_url(options, databases),
        **{f"PACKHORSE_TOPIC_{part.upper()}": name for part, name in names.items()},
        "PACKHORSE_BLOBS_URL": options.blobs or str(directory.blobs),
        "PACKHORSE_TOKEN_FILE": str(directory.tokens),
    }


def tools_settings(
    programs: Sequence[ChildProgram], directory: DataDirectory, token: str | None
) -> dict[str, str]:
    """Return what the author's tools are given: the publisher's settings, and the pipeline's."""
    publisher = programs[0]
    subscribers = {
        program.name: program.environment["PACKHORSE_DATABASE_URL"]
        for program in programs
        if _SUBSCRIBER in program.environment
    }
    settings = {
        **publisher.environment,
        "PACKHORSE_TABLES_URL": str(directory.tables),
        "PACKHORSE_SUBSCRIBER_DATABASES": json.dumps(subscribers),
        "PACKHORSE_PUBLISHER_URL": publisher.url,
    }
    if token is not None:
        settings["PACKHORSE_PUBLISHER_TOKEN"] = token
    for name in _OWN:
        del settings[name]
    return settings


def describe(directory: DataDirectory, programs: Sequence[ChildProgram]) -> RunningStack:
    """Return where everything is; process ids are not known yet."""
    urls = {program.name: program.url for program in programs}
    return RunningStack(
        publisher=urls["publisher"],
        content=urls["content"],
        cleanup=urls["cleanup"],
        topology=urls[_TOPOLOGY],
        jobs=urls[_JOBS],
        console=urls[_CONSOLE],
        subscribers={one.name: one.url for one in programs if _SUBSCRIBER in one.environment},
        token_file=str(directory.tokens),
        pids={},
        data=str(directory.root),
    )


def _program(name: str, service: str, port: int, settings: Mapping[str, str]) -> ChildProgram:
    url = f"http://127.0.0.1:{port}"
    own = dict(zip(_OWN, (str(port), name, url), strict=True))
    return ChildProgram(
        name=name,
        command=(sys.executable, "-m", f"packhorse_services.{service}"),
        environment={**settings, **own},
        url=url,
    )
