"""Intervals and settings of connectors."""

from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from packhorse_services.topology.connectors.backoff import (
    Stability,
    interval_of,
    is_fresh,
    pause_after,
    validity_of,
)
from packhorse_services.topology.connectors.options import (
    ConnectorConfiguration,
    base_url,
    shown,
)
from packhorse_services.topology.connectors.states import ConnectorPhase

USUAL = ConnectorConfiguration()
SECRET = "s" * 32


def configured(**settings: Any) -> ConnectorConfiguration:
    return ConnectorConfiguration(**{f"connector_{name}": settings[name] for name in settings})


@pytest.mark.parametrize(
    ("stable_s", "interval_s"),
    [(0, 15), (60, 15), (90, 22.5), (120, 30), (240, 60), (300, 75), (9_000, 75)],
)
def test_the_interval_grows_while_nothing_changes(stable_s: float, interval_s: float) -> None:
    assert interval_of(USUAL, stable_s) == interval_s
    assert interval_of(configured(backoff_factor=1), stable_s) == 15


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
        {"shared_key": "short"},
        {"other_key": SECRET},
        {"urls": "ftp://a.example"},
        {"urls": "http://"},
        {"urls": "http://a.example/?b=c"},
        {"public_url": "nowhere"},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        configured(**wrong)


def test_who_is_allowed_by_default() -> None:
    assert configured().allowed_connectors == ()
    assert configured(shared_key=SECRET).allowed_connectors == ("*",)


def test_lists_are_written_with_commas_and_keys_are_not_shown() -> None:
    chosen = configured(
        urls=" http://a.example , http://b.example,",
        shared_key=SECRET,
        other_key="o" * 32,
        allow="10.0.0.0/8, *.example",
    )
    assert [base.host for base in chosen.connector_bases] == ["a.example", "b.example"]
    assert len(chosen.connector_keys or ()) == 2
    assert chosen.allowed_connectors == ("10.0.0.0/8", "*.example")
    assert SECRET not in repr(chosen)


def test_urls_have_the_usual_path_and_are_shown_without_passwords() -> None:
    assert str(base_url("http://a.example:8087")) == "http://a.example:8087/topology/connectors"
    assert str(base_url("https://a.example/ph/")) == "https://a.example/ph"
    assert shown(httpx.URL("https://user:secret@a.example/ph")) == "https://a.example/ph"
