"""Intervals and settings of connectors."""

from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from packhorse.runtime.configuration import InvalidConfiguration
from packhorse_services.topology.connectors.backoff import (
    Stability,
    interval_of,
    is_fresh,
    pause_after,
    validity_of,
)
from packhorse_services.topology.connectors.options import (
    LOCAL_ONLY,
    ConnectorSettings,
    base_url,
    shown,
)
from packhorse_services.topology.connectors.states import ConnectorPhase
from packhorse_services.topology.settings import ConnectorConfiguration

USUAL = ConnectorSettings(interval_s=15, timeout_s=60)
SECRET = "s" * 32


@pytest.mark.parametrize(
    ("stable_s", "interval_s"),
    [(0, 15), (60, 15), (90, 22.5), (120, 30), (240, 60), (300, 75), (9_000, 75)],
)
def test_the_interval_grows_while_nothing_changes(stable_s: float, interval_s: float) -> None:
    assert interval_of(USUAL, stable_s) == interval_s
    assert interval_of(ConnectorSettings(backoff_factor=1), stable_s) == 15


def test_a_change_takes_the_back_off_back() -> None:
    stability = Stability(now=0)
    assert stability.observe("a", 10) == 0
    assert stability.observe("a", 310) == 300
    assert stability.observe("b", 311) == 0
    assert is_fresh(USUAL, 59)
    assert not is_fresh(USUAL, 60)


def test_an_announcement_holds_longer_when_its_sender_comes_later() -> None:
    assert validity_of(USUAL, 15) == 60
    assert validity_of(USUAL, 75) == 120
    assert validity_of(USUAL, 0) == 60


@pytest.mark.parametrize(
    ("state", "own_s", "peer_s", "failures", "pause_s"),
    [
        (ConnectorPhase.CONNECTED, 75, 75, 0, 75),
        (ConnectorPhase.CONNECTED, 75, 15, 0, 15),
        (ConnectorPhase.CONNECTED, 30, 75, 0, 30),
        (ConnectorPhase.CONNECTED, 30, 0.001, 0, 15),
        (ConnectorPhase.STANDBY, 15, 15, 0, 75),
        (ConnectorPhase.LOOP, 15, 15, 0, 75),
        (ConnectorPhase.FAILED, 75, 0, 1, 1),
        (ConnectorPhase.FAILED, 75, 0, 3, 4),
        (ConnectorPhase.FAILED, 75, 0, 100_000, 15),
    ],
)
def test_the_next_exchange(
    state: ConnectorPhase, own_s: float, peer_s: float, failures: int, pause_s: float
) -> None:
    assert pause_after(USUAL, state, own_s, peer_s, failures) == pause_s


@pytest.mark.parametrize(
    "wrong",
    [
        {"interval_s": 60},
        {"interval_s": 0},
        {"backoff_factor": 0.5},
        {"backoff_factor": float("nan")},
        {"interval_s": 200, "timeout_s": 900, "backoff_factor": 5},
        {"encryption": True},
        {"shared_keys": ("short",)},
        {"urls": ("ftp://a.example",)},
        {"urls": ("http://",)},
        {"urls": ("http://a.example/?b=c",)},
        {"public_url": "nowhere"},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfiguration):
        ConnectorSettings(**wrong)


def test_who_is_allowed_by_default() -> None:
    assert ConnectorSettings().allowed == LOCAL_ONLY
    assert ConnectorSettings(shared_keys=(SECRET,)).allowed == ("*",)
    assert ConnectorSettings(shared_keys=(SECRET,), allow=("10.0.0.1",)).allowed == ("10.0.0.1",)


def test_urls_have_the_usual_path_and_are_shown_without_passwords() -> None:
    assert str(base_url("http://a.example:8087")) == "http://a.example:8087/topology/connectors"
    assert str(base_url("https://a.example/ph/")) == "https://a.example/ph"
    assert shown(httpx.URL("https://user:secret@a.example/ph")) == "https://a.example/ph"


def test_the_configuration_comes_to_settings() -> None:
    configured = ConnectorConfiguration.model_validate(
        {
            "connector_urls": " http://a.example , http://b.example,",
            "connector_shared_key": SECRET,
            "connector_other_key": "o" * 32,
            "connector_allow": "10.0.0.0/8,*.example",
        }
    )
    chosen = configured.connectors
    assert chosen.urls == ("http://a.example", "http://b.example")
    assert chosen.shared_keys == (SECRET, "o" * 32)
    assert chosen.allow == ("10.0.0.0/8", "*.example")
    assert SECRET not in repr(configured) + repr(chosen)


@pytest.mark.parametrize(
    "wrong",
    [{"connector_other_key": SECRET}, {"connector_shared_key": "short"}, {"connector_urls": "x"}],
)
def test_a_configuration_that_cannot_work_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        ConnectorConfiguration.model_validate(wrong)
