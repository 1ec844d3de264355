"""By which names a service answers: web pages of others reach this machine's ports too."""

import pytest

from packhorse.runtime.auth import Authenticator
from packhorse.runtime.configuration import ProcessConfiguration
from packhorse.runtime.limits import ServiceLimits, limits_of
from packhorse.runtime.principal import ANYBODY, Principal
from tests.unit.runtime.apps import call, sample_app


class _Anybody:
    async def principal(self, token: str) -> Principal | None:
        return ANYBODY


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LocalHost:9500", 200),
        ("127.0.0.1:9500", 200),
        ("[::1]:9500", 200),
        ("[::1]", 200),
        ("rebound.example:9500", 421),
        ("localhost.rebound.example", 421),
        ("127.0.0.1.rebound.example", 421),
        ("10.0.0.1", 421),
        ("", 421),
    ],
)
@pytest.mark.parametrize("path", ["/", "/orders", "/livez", "/metrics"])
def test_without_authentication_only_this_machines_names_are_answered(
    path: str, host: str, status: int
) -> None:
    assert call(sample_app(), "GET", path, headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    ("site", "status"),
    [("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403), ("x", 403)],
)
def test_without_authentication_pages_of_other_sites_are_refused(site: str, status: int) -> None:
    answer = call(sample_app(), "GET", "/orders", headers={"sec-fetch-site": site})
    assert answer.status_code == status


def test_names_can_be_allowed_and_then_others_are_refused() -> None:
    allowed = ServiceLimits(allowed_hosts=("packhorse.example",))
    for authenticator in (Authenticator.off(), Authenticator(_Anybody())):
        app = sample_app(authenticator, limits=allowed)
        bearer = {"authorization": "Bearer x"}
        for host, status in (("packhorse.example:80", 200), ("rebound.example", 421)):
            answer = call(app, "GET", "/orders", headers={"host": host, **bearer})
            assert answer.status_code == status
        assert answer.json()["detail"].count("PACKHORSE_ALLOWED_HOSTS")
    probe = call(app, "GET", "/livez", headers={"host": "10.0.0.7"})
    assert probe.status_code == 200, "an orchestrator asks by address"


def test_what_an_operator_allows_is_a_list_of_names() -> None:
    settings = ProcessConfiguration(allowed_hosts=" Packhorse.example, ,b.example,")
    assert limits_of(settings).allowed_hosts == ("packhorse.example", "b.example")


def test_with_authentication_every_name_and_site_is_answered() -> None:
    headers = {"host": "any.example", "sec-fetch-site": "cross-site", "authorization": "Bearer x"}
    answer = call(sample_app(Authenticator(_Anybody())), "GET", "/orders", headers=headers)
    assert answer.status_code == 200
