"""Names that a shell completes: they are asked from the service, and nothing is said of errors."""

from collections.abc import Callable

import typer

from packhorse.errors import PackhorseError
from packhorse_services.cli.client.api import Api
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.connection_options import connection_of

_PATIENCE_S = 2.0
_MOST = 100


def _publisher(connection: Connection) -> Api:
    return connection.publisher(timeout=_PATIENCE_S)


def _jobs(connection: Connection) -> Api:
    return connection.jobs(timeout=_PATIENCE_S)


def _names(
    path: str, rows: str, name: str, service: Callable[[Connection], Api] = _publisher
) -> Callable[[typer.Context, str], list[str]]:
    def complete(context: typer.Context, incomplete: str) -> list[str]:
        try:
            with service(connection_of(context)) as asked:
                found = asked.get(path)[rows]
            return [str(one[name]) for one in found if str(one[name]).startswith(incomplete)]
        except (PackhorseError, OSError, ValueError, KeyError, TypeError):
            return []

    return complete


subscribers = _names("/subscribers", "subscribers", "subscriber")
distributions = _names(f"/distributions?limit={_MOST}", "distributions", "id")
job_queues = _names("/job-queues", "queues", "name", _jobs)
job_topics = _names("/job-topics", "topics", "topic", _jobs)
schedules = _names("/schedules", "schedules", "name", _jobs)
commands = _names(f"/commands?limit={_MOST}", "commands", "command_id")
