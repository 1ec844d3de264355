"""What an embedded stack consists of: programs, and the databases, ports and settings of each."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packhorse.errors import Permanent
from packhorse_services.cli.child import Program
from packhorse_services.cli.data_directory import DataDirectory, RunningStack
from packhorse_services.cli.ports import free_ports, is_free

AUTHOR_DATABASE = "author"
_JOURNAL_DATABASE = "journal"
_BEFORE_SUBSCRIBERS = 3
_BEHIND_SUBSCRIBERS = 1


class PortTaken(Permanent):
    """Another program listens on a port that the stack was told to use."""


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What the user chose. `port` 0 takes any that are free."""

    data: Path
    port: int = 8080
    subscribers: int = 3
    journal: str = "postgresql"
    blobs: str | None = None
    topic_prefix: str = "aemdistribution"
    max_retries: int = -1
    editable: bool = True


def subscriber_names(count: int) -> list[str]:
    """Return the agents' names, each the name of its database as well."""
    return [f"sub{number}" for number in range(1, count + 1)]


def choose_ports(options: StackOptions) -> list[int]:
    """Return a port for each program, in the order of `plan`. Raises `PortTaken`."""
    count = _BEFORE_SUBSCRIBERS + options.subscribers + _BEHIND_SUBSCRIBERS
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


def journal_url(options: StackOptions, databases: Mapping[str, str]) -> str:
    """Return the journal's URL; that of the embedded server's own database by default."""
    return databases[_JOURNAL_DATABASE] if options.journal == "postgresql" else options.journal


def plan(options: StackOptions, databases: Mapping[str, str], ports: list[int]) -> list[Program]:
    """Return the programs in the order of their start; `databases` has a URL for each name."""
    directory = DataDirectory(options.data)
    common = {
        "PACKHORSE_HOST": "127.0.0.1",
        "PACKHORSE_JOURNAL_URL": journal_url(options, databases),
        "PACKHORSE_TOPIC_PREFIX": options.topic_prefix,
        "PACKHORSE_BLOBS_URL": options.blobs or str(directory.blobs),
        "PACKHORSE_TOKEN_FILE": str(directory.tokens),
    }
    at_author = {**common, "PACKHORSE_DATABASE_URL": databases[AUTHOR_DATABASE]}
    programs = [
        _program("publisher", "publisher", ports[0], at_author),
        _program("content", "content", ports[1], at_author),
        _program("cleanup", "cleanup", ports[2], at_author),
    ]
    names, behind = subscriber_names(options.subscribers), _BEFORE_SUBSCRIBERS
    for name, port in zip(names, ports[behind:-_BEHIND_SUBSCRIBERS], strict=True):
        settings = {
            **common,
            "PACKHORSE_DATABASE_URL": databases[name],
            "PACKHORSE_SUBSCRIBER": name,
            "PACKHORSE_EDITABLE": str(options.editable).lower(),
            "PACKHORSE_MAX_RETRIES": str(options.max_retries),
            "PACKHORSE_ENDPOINT": f"http://127.0.0.1:{port}",
        }
        programs.append(_program(name, "subscriber", port, settings))
    topology = {
        **at_author,
        "PACKHORSE_INSTANCE_ID": "topology",
        "PACKHORSE_ENDPOINT": f"http://127.0.0.1:{ports[-1]}",
    }
    programs.append(_program("topology", "topology", ports[-1], topology))
    return programs


def tools_settings(
    programs: Sequence[Program], directory: DataDirectory, token: str | None
) -> dict[str, str]:
    """Return what the author's tools are told: the publisher's settings, and the pipeline's."""
    publisher = programs[0]
    subscribers = {
        program.name: program.environment["PACKHORSE_DATABASE_URL"]
        for program in programs[_BEFORE_SUBSCRIBERS:-_BEHIND_SUBSCRIBERS]
    }
    settings = {
        **publisher.environment,
        "PACKHORSE_TABLES_URL": str(directory.tables),
        "PACKHORSE_SUBSCRIBER_DATABASES": json.dumps(subscribers),
        "PACKHORSE_PUBLISHER_URL": publisher.url,
    }
    if token is not None:
        settings["PACKHORSE_PUBLISHER_TOKEN"] = token
    del settings["PACKHORSE_PORT"]  # the publisher listens there
    return settings


def describe(directory: DataDirectory, programs: Sequence[Program]) -> RunningStack:
    """Return where everything is; process ids are not known yet."""
    urls = {program.name: program.url for program in programs}
    return RunningStack(
        publisher=urls.pop("publisher"),
        content=urls.pop("content"),
        cleanup=urls.pop("cleanup"),
        topology=urls.pop("topology"),
        subscribers=urls,
        token_file=str(directory.tokens),
        pids={},
        data=str(directory.root),
    )


def _program(name: str, room: str, port: int, settings: Mapping[str, str]) -> Program:
    return Program(
        name=name,
        command=(sys.executable, "-m", f"packhorse_services.{room}"),
        environment={**settings, "PACKHORSE_PORT": str(port)},
        url=f"http://127.0.0.1:{port}",
    )
