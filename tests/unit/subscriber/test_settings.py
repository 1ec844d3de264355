"""What the subscriber takes from its environment."""

import pytest

from packhorse.runtime.configuration import InvalidConfiguration, loaded
from packhorse_services.subscriber.journal.journal_check import StartPolicy
from packhorse_services.subscriber.settings import Settings


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACKHORSE_DATABASE_URL", "postgresql://u:secret@h/d")
    monkeypatch.setenv("PACKHORSE_JOURNAL_URL", "kafka://h")
    monkeypatch.setenv("PACKHORSE_BLOBS_URL", "/blobs")
    monkeypatch.setenv("PACKHORSE_SUBSCRIBER", "pub1")


@pytest.mark.parametrize(
    ("given", "agents"),
    [("main", ("main",)), ("a, b,c", ("a", "b", "c")), ('["a", "b"]', ("a", "b"))],
)
def test_agents_are_a_list_of_names(
    monkeypatch: pytest.MonkeyPatch, given: str, agents: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PACKHORSE_PUBLISHER_AGENTS", given)
    assert loaded(Settings).publisher_agents == agents


def test_defaults_are_those_of_the_seed() -> None:
    settings = loaded(Settings)
    assert settings.publisher_agents == ("main",)
    assert (settings.max_retries, settings.editable) == (-1, False)
    assert (settings.backoff_first_s, settings.backoff_longest_s) == (5, 900)
    assert settings.start is StartPolicy.EARLIEST
    assert settings.import_roots == ("/",)
    assert settings.path_filter.holds_all
    assert (settings.wait_for, settings.remember_packages_h) == (None, 0)


@pytest.mark.parametrize("given", ["/b=/c, /a=/d", '{"/a": "/d", "/b": "/c"}'])
def test_paths_are_mapped_by_pairs_or_json(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("PACKHORSE_MAP_PATHS", given)
    monkeypatch.setenv("PACKHORSE_EXCLUDE", "/d,/c")
    monkeypatch.setenv("PACKHORSE_EXCLUDE_PROPERTIES", "own, cq:*")
    path_filter = loaded(Settings).path_filter
    assert path_filter.map_paths == (("/a", "/d"), ("/b", "/c"))
    assert path_filter.exclude_properties == ("cq:*", "own")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PUBLISHER_AGENTS", ""),
        ("PUBLISHER_AGENTS", "a,a"),
        ("WAIT_FOR", "pub1"),
        ("WAIT_FOR", "no name"),
        ("REMEMBER_PACKAGES_H", "-1"),
        ("PUBLISHER_AGENTS", "a b"),
        ("MAX_RETRIES", "-2"),
        ("START", "yesterday"),
        ("IMPORT_ROOTS", "content"),
        ("IMPORT_ROOTS", "/a,/b/../c"),
        ("INCLUDE", "content"),
        ("EXCLUDE", "/a,/b//c"),
        ("MAP_PATHS", "/a"),
        ("MAP_PATHS", "/a=/b"),  # the author's own /b would come there
        ("MAP_PATHS", "/a=/a,/a=/a"),
        ("MAP_PATHS", '{"/a": "/a", "/a": "/b"}'),
        ("MAP_PATHS", '{"/a": 1}'),
        ("MAP_PATHS", "{"),
        ("EXCLUDE_PROPERTIES", "a*b"),
        ("SUBSCRIBER", ""),
        ("LEASE_S", "0"),
    ],
)
def test_what_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"PACKHORSE_{name}", value)
    with pytest.raises(InvalidConfiguration, match=f"PACKHORSE_{name}") as caught:
        loaded(Settings)
    assert "secret" not in str(caught.value)
