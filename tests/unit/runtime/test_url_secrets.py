"""What is shown of a setting whose URLs hold secrets."""

import pytest

from packhorse.runtime.url_secrets import without_secrets


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("postgresql://u:secret@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:p:w@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:p@w@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:p?w#x@h:5432/db?a=b", "postgresql://u:***@h:5432/db?a=b"),
        ("postgresql://u:p%3Aw@h", "postgresql://u:***@h"),
        ("postgresql://u:p?a=b@h/db", "postgresql://u:***@h/db"),
        ("postgresql+psycopg://u:p/w@h/db", "postgresql+psycopg://u:***@h/db"),
        ("postgresql://us@srv:pw@h/db", "postgresql://us@srv:***@h/db"),
        (
            '{"a":"postgresql://u@h/a?password=x","b":"postgresql://u@h/b"}',
            '{"a":"postgresql://u@h/a?password=***","b":"postgresql://u@h/b"}',
        ),
        ("postgresql://u@h:5432/db?password=s&a=b", "postgresql://u@h:5432/db?password=***&a=b"),
        ("http://a:1,http://:secret@b:2", "http://a:1,http://:***@b:2"),
        (
            "kafka://h:9092?security.protocol=SASL_SSL&sasl.password=s@c:r=t",
            "kafka://h:9092?security.protocol=SASL_SSL&sasl.password=***",
        ),
        ("kafka://h:1?sasl%2E%70assword=secret", "kafka://h:1?sasl%2E%70assword=***"),
        ("kafka://h:1?ssl.key.pem=PEM&SSL.Token=t", "kafka://h:1?ssl.key.pem=***&SSL.Token=***"),
    ],
)
def test_secrets_of_urls_are_masked(value: str, shown: str) -> None:
    assert without_secrets(value) == shown


@pytest.mark.parametrize(
    "value",
    [
        "data/token.json",
        "postgresql://u@h:5432/db?sslmode=require&sslkey=/run/key",
        "kafka://h:9092,g:9092?sasl.username=a@b",
        "kafka://h:1?sasl.password.file=/run/password&ssl.key.location=/run/key&token_file=/t",
        "s3://bucket/prefix?endpoint=http://h:9000&allow_http=true",
    ],
)
def test_what_is_no_secret_is_shown(value: str) -> None:
    assert without_secrets(value) == value
