"""The page of the topology over HTTP."""

from packhorse_services.topology.connectors.states import ConnectorPhase, ConnectorState
from tests.harness.console import console_site, row, section
from tests.harness.topology.scripted import NUMBERS, cluster, scripted
from tests.harness.topology.served import served
from tests.harness.waiting import eventually

FAILED = ConnectorState(
    direction="out",
    state=ConnectorPhase.FAILED,
    url="http://peer.example/topology/connector",
    holder="me",
    instance_id="",
    cluster_id="",
    address="",
    last_exchange_ms=1_700_000_000_000,
    next_exchange_in_s=30.0,
    interval_s=30.0,
    reason="nobody answers",
)


def test_everything_is_there() -> None:
    made = scripted("other", own={"packhorse.agent": "main"}, cluster_view=NUMBERS)
    made.remotes.views = [cluster("x", name="remote-1", properties={"x": {"rack": "9"}})]
    made.connectors.append(FAILED)
    with served(made) as running, console_site(topology_urls={"author": running.url}) as site:
        made.membership.wake()
        shown = 'data-instance="x"'
        eventually(
            lambda: shown in site.get("topology/content", "viewer").text, what="the other cluster"
        )
        text = site.get("topology", "viewer").text
    own = row(text, 'data-instance="me"')
    assert '<span class="badge leader">leader</span>' in own
    assert ">main<" in own
    assert shown in text
    connector = row(text, 'data-connector="out"')
    assert "nobody answers" in connector
    assert ">failed<" in connector
    assert "<dt>seq</dt>" in section(text, "Cluster view")
    assert ">init<" in section(text, "Last changes")
