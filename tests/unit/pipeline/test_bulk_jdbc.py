"""The author's URL for the JDBC driver: everything is carried over, or refused by its name."""

import pytest

from packhorse_services.pipeline.bulk.jdbc import jdbc_database
from packhorse_services.pipeline.errors import TaskRefused

SECRET = "s3cret&/?#"
USER = "postgresql://editor:s3cret%26%2F%3F%23@"


@pytest.mark.parametrize(
    ("url", "jdbc"),
    [
        (f"{USER}db:5433/author", "jdbc:postgresql://db:5433/author"),
        (f"{USER}db/author", "jdbc:postgresql://db:5432/author"),
        (f"{USER}[::1]:5433/author", "jdbc:postgresql://[::1]:5433/author"),
        (f"{USER}db", "jdbc:postgresql://db:5432/editor"),
        (f"{USER}/author?host=a,b&port=1,2", "jdbc:postgresql://a:1,b:2/author"),
        (f"{USER}/author?host=a,b&port=1", "jdbc:postgresql://a:1,b:1/author"),
    ],
)
def test_the_url_names_server_and_database_and_no_secret(url: str, jdbc: str) -> None:
    database = jdbc_database(url)
    assert database.url == jdbc
    assert database.properties == {"user": "editor", "password": SECRET}
    assert "s3cret" not in repr(database)


def test_tls_and_the_rest_go_by_the_drivers_names() -> None:
    database = jdbc_database(
        "postgresql://editor@db/author?sslmode=verify-full&sslrootcert=/ca.pem&sslcert=/c.pem"
        "&sslkey=/k.pk8&connect_timeout=7&application_name=x&target_session_attrs=read-write"
    )
    assert database.properties == {
        "user": "editor",
        "sslmode": "verify-full",
        "sslrootcert": "/ca.pem",
        "sslcert": "/c.pem",
        "sslkey": "/k.pk8",
        "connectTimeout": "7",
        "ApplicationName": "x",
        "targetServerType": "primary",
    }


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://editor:s3cret@/author", "unix socket"),
        ("postgresql://editor:s3cret@/author?host=/run/postgresql", "unix socket"),
        ("postgresql://editor:s3cret@/author?host=@hidden", "unix socket"),
        ("postgresql://db/author", "names no user"),
        ("postgresql://editor:s3cret@db/a?passfile=/s3cret", "the parameter passfile"),
        ("postgresql://editor:s3cret@db/a?nonsense=s3cret", "no URL of a database"),
        ("postgresql://editor:s3cret@db/a?target_session_attrs=read-only", "target_session_attrs"),
        ("postgresql://editor:s3cret@a/a?host=a,b,c&port=1,2", "as many ports as hosts"),
        ("s3cret", "no URL of a database"),
        ("postgresql://editor:s3cret@db:54x/a", "no URL of a database"),
    ],
)
def test_what_jdbc_can_not_have_is_refused_in_one_line_without_values(url: str, said: str) -> None:
    with pytest.raises(TaskRefused, match=said) as refused:
        jdbc_database(url)
    assert "s3cret" not in str(refused.value)
    assert "\n" not in str(refused.value)
