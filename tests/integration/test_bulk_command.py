"""`packhorse-pipeline bulk` without a JVM: what it refuses, how it ends, and what it prints."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import write_deltalake

from packhorse_services.pipeline.__main__ import main
from packhorse_services.pipeline.bulk.command import default_id
from packhorse_services.pipeline.bulk.state import BulkState
from packhorse_services.pipeline.engine import session
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.location import Location
from tests.harness.bulk import TOP, odd_nodes, state_table, written
from tests.harness.fake_publisher import FakePublisher, fake_publisher

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return Location.parse(str(tmp_path / "tables"))


@pytest.fixture
def run(
    database_url: str,
    tmp_path: Path,
    location: Location,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run the program in this process; return exit code, output and what it said."""
    given = {
        "DATABASE_URL": database_url,
        "BLOBS_URL": str(tmp_path / "blobs"),
        "TABLES_URL": location.base,
        "PUBLISHER_URL": "http://127.0.0.1:9",
        "PUBLISHER_TOKEN": "t0ken",
    }
    for name, value in given.items():
        monkeypatch.setenv(f"PACKHORSE_{name}", value)

    def play(*arguments: str, **settings: str) -> tuple[int, str, str]:
        for name, value in settings.items():
            monkeypatch.setenv(f"PACKHORSE_{name}", value)
        monkeypatch.setattr(sys, "argv", ["packhorse-pipeline", "bulk", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        reported = capsys.readouterr()
        code = ended.value.code or 0
        assert isinstance(code, int)
        return code, reported.out, reported.err

    return play


def prepared(location: Location, bulk_id: str, parts: int = 3, days: int = 0) -> None:
    made_ms = time.time_ns() // 10**6 - days * 24 * 3600 * 1000
    table = state_table("/top", parts, made_ms)
    write_deltalake(location.delta_uri(tables.bulk_parts(bulk_id)), table)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "--deep"),
        (("--deep", "top"), 2, "not absolute"),
        (("--deep", "/top", "--id", "../x"), 2, "--id is up to"),
        (("--deep", "/top", "--part-bytes", "many"), 2, "no size"),
        (("--cancel",), 2, "--id"),
        (("--cancel", "--id", "unknown"), 3, "there is no bulk distribution unknown"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(
    run: Run, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended, out, err = run(*arguments)
    assert (ended, out) == (code, "")
    assert said in err


def test_nothing_is_started_for_what_can_not_be_done(
    run: Run, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_build", None)  # any start of Spark fails
    code, _, err = run("--deep", TOP)
    assert (code, "no publisher has worked" in err) == (2, True)
    written(database_url, odd_nodes(flat=1))
    code, out, err = run("--deep", "/content/none")
    assert (code, out, "does not exist" in err) == (3, "", True), "an id of nothing is not printed"
    for nowhere in ("127.0.0.1:1/db", "/db?host=/nowhere"):
        code, _, err = run("--deep", TOP, DATABASE_URL=f"postgresql://me:s3cret@{nowhere}")
        assert (code, "PACKHORSE_DATABASE_URL" in err, "s3cret" in err) == (1, True, False)
        assert len(err.splitlines()) == 1, "nothing began"
    for no_url in ("h/db?nonsense=s3cret", "h:54x/db"):
        code, _, err = run("--deep", TOP, DATABASE_URL=f"postgresql://me:s3cret@{no_url}")
        assert (code, "PACKHORSE_DATABASE_URL" in err, "s3cret" in err) == (2, True, False)
    other = database_url.rpartition("/")[0]
    for name, said in (("typo", "does not exist"), ("postgres", "bookkeeping.slot")):
        code, out, err = run("--deep", TOP, DATABASE_URL=f"{other}/{name}")
        assert (code, out, said in err, "PACKHORSE_DATABASE_URL" in err) == (2, "", True, True), err


def test_an_id_stands_for_one_path_and_for_a_week(run: Run, location: Location) -> None:
    prepared(location, "young")
    code, _, err = run("--deep", "/other", "--id", "young")
    assert (code, "is of /top, not of /other" in err) == (4, True)
    assert run("--cancel", "--id", "young", "--deep", "/other")[0] == 4
    assert not BulkState(location, "young").cancelled()
    prepared(location, "old", days=8)
    code, _, err = run("--deep", "/top", "--id", "old")
    assert (code, "8 days ago" in err) == (4, True)


def test_what_is_cancelled_stays_so_even_before_it_has_exported(
    run: Run, location: Location
) -> None:
    assert run("--cancel", "--id", "soon", "--deep", "/top")[0] == 0
    code, _, err = run("--deep", "/top", "--id", "soon")
    assert (code, "was cancelled" in err) == (4, True)


def test_cancel_says_what_is_out_and_what_stays(
    run: Run, location: Location, fake: FakePublisher
) -> None:
    prepared(location, "some")
    code, _, err = run("--cancel", "--id", "some", PUBLISHER_URL=fake.url)
    assert (code, "knows of none that this token sent" in err) == (0, True)
    fake.register("bulk-some")
    fake.last["bulk-some"] = 1
    code, _, err = run("--cancel", "--id", "some")
    assert (code, "is cancelled: 2 of 3 parts are out, and stay" in err) == (0, True)
    assert fake.epochs == {"bulk-some": 1}, "looking fences nobody"
    assert BulkState(location, "some").cancelled()
    code, _, err = run("--cancel", "--id", "some", PUBLISHER_URL="http://127.0.0.1:9")
    assert (code, "is not known: nobody answers at http://127.0.0.1:9" in err) == (0, True)


@pytest.mark.parametrize("url", ["", "nowhere", "http://h:abc", "http://h..x", "http://[::1"])
def test_a_publisher_that_is_none_does_not_keep_from_cancelling(
    run: Run, location: Location, url: str
) -> None:
    prepared(location, "some")
    code, _, err = run("--cancel", "--id", "some", PUBLISHER_URL=url)
    assert (code, "how many are out is not known" in err) == (0, True)
    assert len(err.splitlines()) == 1
    assert run("--deep", "/top", "--id", "some", PUBLISHER_URL=url)[0] == 4


def test_it_is_cancelled_before_the_publisher_is_asked(
    run: Run, location: Location, fake: FakePublisher
) -> None:
    prepared(location, "some")
    found: list[bool] = []
    fake.requested = lambda: found.append(BulkState(location, "some").cancelled())
    run("--cancel", "--id", "some", PUBLISHER_URL=fake.url)
    assert found == [True]


def test_what_is_out_can_not_be_cancelled(
    run: Run, location: Location, fake: FakePublisher
) -> None:
    prepared(location, "whole")
    assert run("--deep", "/top", "--id", "whole", PUBLISHER_URL=fake.url)[0] == 0
    code, _, err = run("--cancel", "--id", "whole")
    assert (code, "all 3 parts of whole are out already, and stay" in err) == (4, True)
    assert run("--deep", "/top", "--id", "whole")[0] == 0
    assert run("--deep", "/top", "--id", "whole", PUBLISHER_URL="http://127.0.0.1:9")[0] == 4


@pytest.fixture
def fake() -> Iterator[FakePublisher]:
    with fake_publisher() as server:
        yield server


def test_what_was_prepared_is_sent_and_reported(
    run: Run, location: Location, fake: FakePublisher
) -> None:
    prepared(location, "a")
    code, out, err = run("--deep", "/top", "--id", "a", PUBLISHER_URL=fake.url)
    assert (code, out) == (0, "a\n"), err
    assert "3 parts sent; 30 nodes" in err
    assert fake.tokens == {"Bearer t0ken"}
    code, out, _ = run("--deep", "/top", "--id", "a", "--json")
    reported = json.loads(out)
    assert (code, reported["id"], reported["sent"], reported["earlier"]) == (0, "a", 0, 3)


@pytest.mark.parametrize("token", ["", "mine"])
def test_the_publisher_gets_the_token_of_the_settings(
    run: Run, location: Location, fake: FakePublisher, token: str
) -> None:
    prepared(location, "a")
    settings = {"PUBLISHER_URL": fake.url, "PUBLISHER_TOKEN": token}
    assert run("--deep", "/top", "--id", "a", **settings)[0] == 0
    assert fake.tokens == {f"Bearer {token}" if token else ""}


def test_a_stale_part_is_exported_again_from_the_author(
    run: Run, database_url: str, location: Location, fake: FakePublisher
) -> None:
    written(database_url, odd_nodes(flat=1))
    table = state_table(TOP, 1, time.time_ns() // 10**6)
    write_deltalake(location.delta_uri(tables.bulk_parts("s")), table)
    fake.faults = ["stale"]
    assert run("--deep", TOP, "--id", "s", PUBLISHER_URL=fake.url)[0] == 0
    (package,) = fake.packages
    assert package["package_id"].startswith("dstrpck-")
    assert package["seen"] == {"epoch": 1, "sequence": 0}
    assert package["node_count"] > 50


def test_ids_that_are_made_say_what_they_are_of() -> None:
    assert default_id("/content/Großes Bild").startswith("Gro-es-Bild-2")
    assert default_id("/").startswith("all-2")
    assert default_id("/a") != default_id("/a")
