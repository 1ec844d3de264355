"""What an app takes, what it refuses before it runs, and a consumer that is tried by itself."""

from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from psycopg import Connection

from packhorse import App, Cancel, Outcome, Result, Retry
from packhorse.app import application
from packhorse.app.application import AppNotRunning
from packhorse.app.configuration import configured
from packhorse.errors import Permanent
from packhorse.jobs import event_store
from packhorse.jobs.consumer import InvalidConsumer, JobContext
from packhorse.jobs.content_changes.watches import ContentWatch
from packhorse.jobs.event import Event
from packhorse.jobs.event_store import NewEvent
from packhorse.jobs.job import Job
from packhorse.jobs.names import InvalidName
from packhorse.jobs.scheduling.errors import InvalidSchedule
from packhorse.runtime.configuration import InvalidConfiguration
from packhorse.runtime.principal import TokenScope


def app() -> App:
    return App("thumbnails", database_url="postgresql://nowhere/x")


async def later(job: Job, context: JobContext) -> None:
    pass


async def heard(event: Event) -> None:
    pass


def test_async_functions_are_refused_when_they_are_registered() -> None:
    with pytest.raises(InvalidConsumer, match="async function"):
        app().consumer("a")(later)  # type: ignore[type-var]
    with pytest.raises(InvalidConsumer, match="async function"):
        app().on_event("a")(heard)  # type: ignore[type-var]
    with pytest.raises(InvalidConsumer, match="async function"):
        app().on_topology(heard)  # type: ignore[type-var]


def nothing(job: Job, context: JobContext) -> None:
    pass


def test_names_and_times_are_checked_when_they_are_registered() -> None:
    with pytest.raises(InvalidName):
        app().consumer("/a")(nothing)
    with pytest.raises(InvalidSchedule):
        app().consumer("a", cron="every day")
    with pytest.raises(Permanent, match="not by both"):
        app().consumer("a", cron="* * * * *", every=5)
    with pytest.raises(InvalidName):
        app().consumer("a/*", every=timedelta(seconds=5))


def test_what_needs_a_running_app_says_so() -> None:
    idle = app()
    for call in (
        lambda: idle.add("a"),
        lambda: idle.send("a"),
        lambda: idle.jobs,
        idle.connection,
        idle.leader("x").is_mine,
    ):
        with pytest.raises(AppNotRunning, match="does not run"):
            call()


def test_a_job_or_event_of_a_transaction_is_given_while_the_app_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, connection, given = app(), cast("Connection", object()), list[Any]()
    jobs = SimpleNamespace(add_job=lambda topic, *_, **__: given.append(topic))
    running = SimpleNamespace(
        host=SimpleNamespace(jobs=jobs), topology=SimpleNamespace(instance_id="one")
    )
    looks = iter([running, None, running, None])  # it ends after each first look
    monkeypatch.setattr(App, "_running", property(lambda _: next(looks)), raising=False)
    monkeypatch.setattr(application, "within", nullcontext)
    monkeypatch.setattr(event_store, "record", lambda _, events: given.extend(events))
    made.add("a", connection=connection)
    next(looks)
    made.send("b", connection=connection)
    assert given == ["a", NewEvent("b", "one", {}, echo=True)]


@pytest.fixture
def registered() -> App:
    made = app()

    @made.consumer("fine/*")
    def fine(job: Job, context: JobContext) -> Result:
        context.log(f"at {job.properties['size']}")
        context.progress(1, "half")
        return Result(Outcome.OK, "made")

    @made.consumer("never")
    def never(job: Job, context: JobContext) -> None:
        raise Cancel("no path")

    @made.consumer("later")
    def later(job: Job, context: JobContext) -> None:
        raise Retry("away", after=timedelta(seconds=5))

    @made.consumer("broken")
    def broken(job: Job, context: JobContext) -> None:
        with context.completion():
            pass

    return made


def test_a_consumer_is_tried_without_a_database(registered: App) -> None:
    done = registered.test("fine/one", {"size": 3})
    assert (done.outcome, done.message, done.log) == (Outcome.OK, "made", ("at 3",))
    assert done.progress is not None
    assert done.progress.message == "half"


@pytest.mark.parametrize(
    ("topic", "outcome", "says"),
    [
        ("never", Outcome.CANCEL, "no path"),
        ("later", Outcome.FAILED, "away"),
        ("broken", Outcome.FAILED, "no database"),
    ],
)
def test_exceptions_say_how_it_ended(
    registered: App, topic: str, outcome: Outcome, says: str
) -> None:
    done = registered.test(topic)
    assert done.outcome is outcome
    assert says in done.message


def test_a_topic_that_nobody_does_is_refused(registered: App) -> None:
    with pytest.raises(Permanent, match="no consumer"):
        registered.test("other")


def test_the_database_is_given_or_set_or_that_of_the_stack(tmp_path: Path) -> None:
    (tmp_path / "author.json").write_text('{"PACKHORSE_DATABASE_URL": "postgresql://stack/x"}')

    def url(given: dict[str, Any], **environment: str) -> str:
        variables = {f"PACKHORSE_{name}": value for name, value in environment.items()}
        return configured(given, environment=variables).database_url

    assert url({"database_url": "given"}, DATABASE_URL="set", DATA=str(tmp_path)) == "given"
    assert url({"database_url": None}, DATABASE_URL="set", DATA=str(tmp_path)) == "set"
    assert url({}, DATA=str(tmp_path)) == "postgresql://stack/x"
    (tmp_path / "secret").write_text("postgresql://file/x\n")
    assert url({}, DATABASE_URL_FILE=str(tmp_path / "secret")) == "postgresql://file/x"
    (tmp_path / "author.json").write_text(
        '{"PACKHORSE_DATABASE_URL": "postgresql://stack/x", "PACKHORSE_JOURNAL_URL": "of://stack"}'
    )
    by_file = {"PACKHORSE_DATABASE_URL_FILE": str(tmp_path / "secret")}
    assert url({"database_url": "given"}, DATABASE_URL_FILE=str(tmp_path / "secret")) == "given"
    both = configured({}, tmp_path, by_file, needs="journal_url")
    assert (both.journal_url, both.database_url) == ("of://stack", "postgresql://file/x")
    with pytest.raises(InvalidConfiguration, match="packhorse up --data"):
        url({}, DATA=str(tmp_path / "none"))
    with pytest.raises(InvalidConfiguration, match="instance_id"):
        url({"database_url": "x", "instance_id": "a b"})


def test_an_app_reads_the_scopes_of_groups_from_its_environment() -> None:
    variables = {
        "PACKHORSE_DATABASE_URL": "postgresql://x",
        "PACKHORSE_JWT_SCOPES": '{"editors": ["distribute"]}',
    }
    assert configured({}, environment=variables).jwt_scopes == {"editors": {TokenScope.DISTRIBUTE}}
    with pytest.raises(InvalidConfiguration, match="jwt_scopes"):
        configured({}, environment=variables | {"PACKHORSE_JWT_SCOPES": "editors"})


def test_functions_of_one_name_share_a_watch_of_all_their_roots() -> None:
    app = App("collector")
    for root in ("/site/two", "/site/one"):

        @app.on_content(root)
        def hear(event: Event) -> None: ...

    [watch] = app._registered.watches
    assert (watch.name, list(watch.roots)) == ("collector.hear", ["/site/one", "/site/two"])
    assert [one.handler.__name__ for one in app._registered.handlers] == ["hear", "hear"]
    with pytest.raises(Permanent, match="other types already"):
        app.on_content("/site", types=["image"])(hear)
    app.watch("images/seen", "/dam", types=["image"])
    app.consumer("images/seen")(lambda job: None)
    assert app._registered.watches[1] == ContentWatch(
        "collector.images.seen", ("/dam",), "images/seen", ["image"]
    )


def test_what_would_never_be_called_or_read_is_refused() -> None:
    app = App("strict", log_lvl="INFO")
    with pytest.raises(InvalidConfiguration, match="no setting 'log_lvl'"):
        app.configuration()
    with pytest.raises(InvalidName):
        App("a b/c")
    app.consumer("images/*")(lambda job, context: None)
    with pytest.raises(InvalidConsumer, match="already"):
        app.consumer("images/*")(lambda job, context: None)
