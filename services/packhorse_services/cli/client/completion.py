"""Names that a shell completes: they are asked from the service, and nothing is said of errors."""

from collections.abc import Callable

import typer

from packhorse.client.exchange import ServiceName
from packhorse.errors import PackhorseError
from packhorse_services.cli.client.connection_options import connection_of

_PATIENCE_S = 2.0
_MOST = 100


def _names(
    path: str, rows: str, name: str, service: ServiceName = "publisher"
) -> Callable[[typer.Context, str], list[str]]:
    def complete(context: typer.Context, incomplete: str) -> list[str]:
        try:
            connection = connection_of(context)
            opened = connection.jobs if service == "jobs" else connection.publisher
            with opened(timeout=_PATIENCE_S) as client:
                found = client.get(path, service)[rows]
            names = [str(one[name]) for one in found if one[name]]
            return [one for one in names if one.startswith(incomplete)]
        except (PackhorseError, OSError, ValueError, KeyError, TypeError):
            return []

    return complete


subscribers = _names("/subscribers", "subscribers", "subscriber")
distributions = _names(f"/distributions?limit={_MOST}", "distributions", "id")
releases = _names(f"/releases?limit={_MOST}", "releases", "name")
job_queues = _names("/job-queues", "queues", "name", "jobs")
job_topics = _names("/job-topics", "topics", "topic", "jobs")
schedules = _names("/schedules", "schedules", "name", "jobs")
commands = _names(f"/commands?limit={_MOST}", "commands", "command_id")
