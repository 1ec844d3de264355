"""`packhorse get instances`, `packhorse topology watch`: who is alive and who leads, and news."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import typer

from packhorse.client.blocking import Client
from packhorse.client.calls.streams import topology_events
from packhorse.client.following import StreamEvent
from packhorse_services.cli.client import output
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.options import After, Output, Seconds, Watch
from packhorse_services.cli.client.views import Format, View
from packhorse_services.cli.events import TimeIsUp, ending_after, event_id, follow, forms

topology = typer.Typer(help="Instances and their clusters.", no_args_is_help=True)

_OWN = {
    "role": "packhorse.role",
    "agent": "packhorse.agent",
    "endpoint": "packhorse.endpoint",
    "version": "packhorse.version",
    "leader_tasks": "packhorse.duties",
    "host": "packhorse.host",
    "pid": "packhorse.pid",
    "home": "packhorse.home",
}


def _note(document: Mapping[str, Any]) -> str:
    return "" if document["current"] else "the topology is changing; this was true before"


INSTANCES = View(
    rows="instances",
    name="id",
    columns={
        "INSTANCE": "id",
        "CLUSTER": "cluster_id",
        "LEADER": "leader",
        "ROLE": "role",
        "AGENT": "agent",
        "ENDPOINT": "endpoint",
    },
    wide={
        "VERSION": "version",
        "LEADER_TASKS": "leader_tasks",
        "HOST": "host",
        "PID": "pid",
        "HOME": "home",
        "LOCAL": "local",
        "OTHERS": "others",
    },
    note=_note,
)


def get_instances(
    context: typer.Context, form: Output = Format.TABLE, watch: Watch = False
) -> None:
    """Show the instances of all clusters in their order, the own cluster first."""
    with context.ensure_object(Connection).topology() as service:
        output.again(lambda: _show(service, form), watch=watch)


def _show(service: Client, form: Format) -> None:
    document = service.topology()
    INSTANCES.show(document if form is Format.JSON else _flat(document), form)


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    instances = [one for cluster in document["clusters"] for one in cluster["instances"]]
    return {"current": document["current"], "instances": [_row(one) for one in instances]}


def _row(instance: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of an instance."""
    given = instance["properties"]
    others = [f"{name}={text}" for name, text in given.items() if name not in _OWN.values()]
    known = {column: given.get(name) for column, name in _OWN.items()}
    return {**instance, **known, "others": others}


@topology.command("watch")
def watch_topology(
    context: typer.Context,
    *,
    after: After = None,
    seconds: Seconds = None,
    form: Annotated[Format, typer.Option("-o", "--output", help="How to show it.")] = Format.TABLE,
) -> None:
    """Follow the topology, over lost connections too."""
    behind = event_id(after)
    with (
        context.ensure_object(Connection).topology() as service,
        suppress(TimeIsUp),
        ending_after(seconds),
    ):
        for event in follow(service, topology_events(after=behind)):
            output.line(_SHOWN[form](event))


def _as_text(event: StreamEvent) -> str:
    data = event.data
    return f"{data.get('time') or '-':<27}  {event.kind:<18}  {_said(event.kind, data)}"


def _said(name: str, data: Mapping[str, Any]) -> str:
    if name == "gap":
        return f"events are lost ({data['reason']}); INIT follows"
    shown = data["topology"]
    if shown is None:
        return "the last view holds no more"
    parts = [f"+{one}" for one in data["added"]] + [f"-{one}" for one in data["removed"]]
    parts += [f"{one['new'] or 'nobody'} leads {one['cluster_id']}" for one in data["leaders"]]
    parts += [f"{one} has other properties" for one in data["changed"]]
    if name == "INIT":
        parts = [f"{one['id']}: {_members(one)}" for one in shown["clusters"]]
    return ", ".join(parts) or "the same instances"


def _members(cluster: Mapping[str, Any]) -> str:
    return " ".join(
        f"{one['id']}{' (leader)' if one['leader'] else ''}" for one in cluster["instances"]
    )


_SHOWN = forms(_as_text, lambda event: event.kind)
