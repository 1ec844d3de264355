"""A network to the own database that is cut without a word: nothing waits for ever."""

from collections.abc import Iterator

import pytest
from sqlalchemy.engine import make_url

from packhorse.topology.membership import StoreUnavailable
from packhorse.topology.open import SqlRemoteClusters
from packhorse_services.topology.connectors.states import ConnectorPhase
from tests.harness.cutting_proxy import CuttingProxy, cutting_proxy
from tests.harness.postgres import Databases
from tests.harness.topology.clusters import Cluster, running, until_known
from tests.harness.waiting import eventually


@pytest.fixture
def proxied(databases: Databases) -> Iterator[tuple[CuttingProxy, str]]:
    """A proxy and the URL of a database behind it."""
    url = make_url(databases.new())
    with cutting_proxy(url.host or "127.0.0.1", url.port or 5432, seed=1, faults=0.0) as proxy:
        behind = url.set(host="127.0.0.1", port=proxy.port)
        yield proxy, behind.render_as_string(hide_password=False)


def test_remote_clusters_are_not_waited_for(proxied: tuple[CuttingProxy, str]) -> None:
    proxy, url = proxied
    remotes = SqlRemoteClusters(url)

    def read() -> bool:
        try:
            return remotes.clusters() == ()
        except StoreUnavailable:
            return False

    eventually(read, what="they are read")
    proxy.cut()
    with pytest.raises(StoreUnavailable):
        remotes.clusters()
    proxy.heal()
    eventually(read, what="they are read again")


def test_a_connector_goes_on_when_the_network_is_back(
    databases: Databases, proxied: tuple[CuttingProxy, str]
) -> None:
    proxy, url = proxied
    one = Cluster("one", databases.new())
    two = Cluster("two", url, urls=(one.url,))
    [connector] = two.assembled.connectors._connectors
    with running(one, two):
        until_known(one, ["two"])
        proxy.cut()
        eventually(lambda: connector.outcome().state is ConnectorPhase.FAILED)
        assert connector.outcome().reason == "the own database is away"
        until_known(one, [])
        proxy.heal()
        until_known(one, ["two"], timeout=180)
