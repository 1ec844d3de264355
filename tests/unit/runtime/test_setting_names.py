"""Settings that no program has are refused, with the one that was meant."""

from importlib import import_module

import pytest

from packhorse.runtime.configuration import InvalidConfiguration, loaded
from packhorse.runtime.setting_names import SETTING_NAMES, unknown_settings
from packhorse_services.content.settings import Settings

_PROGRAMS = (
    "publisher",
    "content",
    "subscriber",
    "cleanup",
    "topology",
    "jobs",
    "console",
    "pipeline",
)
_SERVERS = {
    *("SERVER", "CONTENT_SERVER", "JOBS_SERVER", "TOPOLOGY_SERVER", "CONSOLE_SERVER"),
    *("CLEANUP_SERVER", "SUBSCRIBER_SERVER"),
}
_OTHERS = {"DATA", "TOKEN", "PIPELINE_URL", "PORTS", "TYPED", *_SERVERS}
"""Those of the command line and of clients, and what programs exchange."""


def test_the_names_are_those_of_all_programs() -> None:
    fields: set[str] = set()
    for program in _PROGRAMS:
        module = import_module(f"packhorse_services.{program}.settings")
        for kind in ("Settings", "PipelineWorkerSettings"):
            if hasattr(module, kind):
                fields |= {name.upper() for name in getattr(module, kind).model_fields}
    assert fields | _OTHERS == SETTING_NAMES


def test_a_misspelt_setting_is_refused_with_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PACKHORSE_DATABASE_URL", "postgresql://u:p@h/d")
    monkeypatch.setenv("PACKHORSE_BLOBS_URL", "/blobs")
    monkeypatch.setenv("PACKHORSE_QUEUE_PACKAGES", "5")  # the publisher's, in a shared file
    loaded(Settings)
    monkeypatch.setenv("PACKHORSE_QUEUE_PACKAGE", "5")
    with pytest.raises(InvalidConfiguration, match=r"did you mean PACKHORSE_QUEUE_PACKAGES\?"):
        loaded(Settings)


def test_what_a_program_can_t_start_without_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACKHORSE_DATABASE_URL", "postgresql://u:p@h/d")
    monkeypatch.setenv("PACKHORSE_JOURNAL_URL", "")
    for program in ("publisher", "cleanup"):
        settings = import_module(f"packhorse_services.{program}.settings").Settings
        with pytest.raises(InvalidConfiguration) as refused:
            loaded(settings)
        assert str(refused.value) == (
            "PACKHORSE_JOURNAL_URL: this is missing; PACKHORSE_BLOBS_URL: this is missing"
        )


def test_a_setting_that_has_to_be_json_and_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PACKHORSE_DATABASE_URL", "postgresql://u:p@h/d")
    monkeypatch.setenv("PACKHORSE_JWT_SCOPES", "editors")
    with pytest.raises(InvalidConfiguration, match=r"jwt_scopes.*must be JSON"):
        loaded(Settings)


def test_variables_that_kubernetes_makes_for_services_are_none_of_ours() -> None:
    for name in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_8080_TCP_ADDR"):
        assert unknown_settings([f"PACKHORSE_PUBLISHER_{name}"]) == []
