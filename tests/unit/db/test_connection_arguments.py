"""What is said of a session to libpq: the URL's own settings win, but for its name."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from packhorse.db.engine import (
    BadDatabaseUrl,
    check_database_url,
    connection_arguments,
    conninfo,
)
from packhorse.topology.patience import PatientConnection, bookkeeper_connection


@pytest.mark.parametrize("host", ["user:pa%40ss@db.example:5433", "user@/"])
def test_what_the_url_says_of_a_server_that_is_gone_wins(host: str) -> None:
    ours = connection_arguments(f"postgresql://{host}/name", "packhorse publisher")
    assert ours["connect_timeout"] == "5"
    said = "connect_timeout=30&tcp_user_timeout=9000&sslmode=disable&application_name=x"
    left = connection_arguments(f"postgresql+psycopg://{host}/name?{said}", "packhorse publisher")
    assert left == {
        name: value
        for name, value in ours.items()
        if name not in ("connect_timeout", "tcp_user_timeout")
    }
    assert left["application_name"] == "packhorse publisher"


def test_heartbeats_wait_no_longer_whatever_the_url_says(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, str] = {}

    def connect(*_: object, **settings: str) -> None:
        given.update(settings)
        raise ConnectionRefusedError

    monkeypatch.setattr(PatientConnection, "connect", connect)
    with pytest.raises(ConnectionRefusedError):
        bookkeeper_connection("postgresql://db/name?connect_timeout=30&keepalives_idle=7", "tests")
    assert (given["connect_timeout"], given["tcp_user_timeout"]) == ("5", "5000")
    assert "keepalives_idle" not in given


@pytest.mark.parametrize("value", ["10s", "-1", "1.5", "x"])
def test_a_timeout_that_is_no_number_is_refused_before_a_connection(value: str) -> None:
    check_database_url("postgresql://db/name?connect_timeout=10")
    with pytest.raises(BadDatabaseUrl, match="whole numbers"):
        check_database_url(f"postgresql://db/name?connect_timeout={value}")


def test_spaces_and_pluses_in_a_setting_stay_what_they_are() -> None:
    url = conninfo("postgresql+psycopg://u:a+b%3F@db/name?sslrootcert=/my%20certs/a%2Bb.pem")
    said = conninfo_to_dict(url)
    assert said["sslrootcert"] == "/my certs/a+b.pem"
    assert said["password"] == "a+b?"
