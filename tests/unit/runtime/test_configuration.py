"""Configuration: frozen, contradictions refused, secrets from files and never shown."""

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from packhorse.runtime.configuration import ProcessConfiguration
from packhorse.wire.topics import Topics


class Sample(ProcessConfiguration):
    database_url: SecretStr
    database_url_file: Path | None = None


def test_a_secret_can_come_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("postgresql://u:p@h/d\n")
    sample = Sample.model_validate({"database_url_file": secret})
    assert sample.database_url.get_secret_value() == "postgresql://u:p@h/d"


def test_a_secret_from_two_places_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="leave one out"):
        Sample.model_validate({"database_url": "a", "database_url_file": tmp_path})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="no-such-file"):
        Sample.model_validate({"database_url_file": tmp_path / "no-such-file"})


def test_secrets_are_not_shown() -> None:
    sample = Sample(
        database_url=SecretStr("s1"),
        journal_url="kafka://h:1?sasl.password=s2",
        blobs_url="s3://b?secret=s3",
        port=0,
    )
    assert not any(secret in repr(sample) for secret in ("s1", "s2", "s3://"))


def test_a_refusal_does_not_quote_the_settings() -> None:
    with pytest.raises(ValidationError) as refusal:
        Sample.model_validate({"database_url": "postgresql://u:secret@h/d", "port": -1})
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "members",
    [
        {"port": -1},
        {"port": 65536},
        {"log_format": "xml"},
        {"log_level": "LOUD"},
        {"topic_prefix": "a b"},
        {"topic_status": "a b"},
        {"topic_prefix": "a", "topic_status": "a_package"},
        {"topic_event": "one", "topic_command": "one"},
        {"jwks_url": "https://issuer"},
        {"jwks_url": "https://issuer", "jwt_issuer": "x"},
    ],
)
def test_what_cannot_work_is_refused_at_start(members: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ProcessConfiguration.model_validate(members)


@pytest.mark.parametrize("given", ["inf", "nan"])
def test_a_duration_is_a_number_that_can_be_waited_for(given: str) -> None:
    class Waiting(ProcessConfiguration):
        wait_s: float = 1.0

    with pytest.raises(ValidationError, match="finite"):
        Waiting.model_validate({"wait_s": given})


def test_a_topic_has_the_name_of_the_prefix_or_its_own() -> None:
    given = {"topic_prefix": "site", "topic_status": "said"}
    assert ProcessConfiguration.model_validate(given).topics == Topics(
        "site_package", "said", "site_discovery", "site_command", "site_event"
    )
    assert ProcessConfiguration().topics == Topics()
