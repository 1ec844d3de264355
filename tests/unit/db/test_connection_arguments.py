"""What is said of a session to libpq: the URL's own settings win, but for its name."""

import pytest

from packhorse.db.engine import connection_arguments


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
