"""What of a connector's request is refused before anything is computed or asked with it."""

import pytest

from packhorse.topology.rejection import Rejected, RejectionReason
from packhorse_services.topology.connectors.options import ConnectorConfiguration
from packhorse_services.topology.connectors.reading import incoming

BEHIND_A_PROXY = ConnectorConfiguration(connector_public_url="https://topology.example/here")


def scope(*hosts: str, target: str = "/topology/connectors/a") -> dict[str, object]:
    headers = [(b"host", host.encode()) for host in hosts]
    return {"method": "DELETE", "raw_path": target.encode(), "headers": headers}


def test_a_request_is_read_as_it_was_signed() -> None:
    plain = incoming(scope("One.example:8087"), "a", ConnectorConfiguration()).request
    assert (plain.authority, plain.target) == ("one.example:8087", "/topology/connectors/a")
    proxied = incoming(scope("inside"), "a", BEHIND_A_PROXY).request
    assert (proxied.authority, proxied.target) == ("topology.example", "/here/a")


@pytest.mark.parametrize("settings", [ConnectorConfiguration(), BEHIND_A_PROXY])
@pytest.mark.parametrize("instance", ["", "\0", "\n", "a b", "a?b", "-a", "ä", "a" * 101])
def test_what_is_no_id_is_refused(instance: str, settings: ConnectorConfiguration) -> None:
    """It would reach the database, or a URL that can't be made of it."""
    with pytest.raises(Rejected) as refusal:
        incoming(scope("one.example"), instance, settings)
    assert refusal.value.reason is RejectionReason.MALFORMED


@pytest.mark.parametrize("hosts", [(), ("a", "b"), ("a b",), ("a@b",), ("",)])
def test_one_clear_host_is_needed(hosts: tuple[str, ...]) -> None:
    with pytest.raises(Rejected):
        incoming(scope(*hosts), "a", ConnectorConfiguration())
