"""Schedulers as processes: the leader is paused and killed around moments, none fires twice."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from packhorse.jobs.scheduling.definition import RunOn
from packhorse.jobs.scheduling.timing import Every
from tests.harness.borrowing import borrowed
from tests.harness.jobs.schedules import Schedules
from tests.harness.processes import Process
from tests.harness.waiting import eventually

pytestmark = pytest.mark.chaos

WAIT_S = 180.0

PERIOD = timedelta(seconds=1)
NAMES = ("a", "b", "c")

_WATCH = """
CREATE TABLE misfires (tick timestamptz, instance text, holder text);
CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE leads text := (SELECT holder FROM topology.duty WHERE name = 'scheduler');
BEGIN
    IF NEW.schedule = 'leader' AND NEW.instance IS DISTINCT FROM leads THEN
        INSERT INTO misfires VALUES (NEW.tick, NEW.instance, leads);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER watch BEFORE INSERT ON jobs.tick FOR EACH ROW EXECUTE FUNCTION watch()
"""


class Site(Schedules):
    """A schedule for the leader, one for anybody, and three instances."""

    def __init__(self, url: str, folder: Path, *flags: str) -> None:
        super().__init__(url)
        with psycopg.connect(url) as connection:
            connection.execute(_WATCH)
        self.create("leader", Every(PERIOD), run_on=RunOn.LEADER)
        self.create("single", Every(PERIOD))
        module = "tests.chaos.jobs_scheduler"
        self.processes = {
            name: Process(name, (sys.executable, "-m", module, url, name, *flags), {}, folder)
            for name in NAMES
        }

    def fired_by(self, schedule: str) -> str:
        """Return who decided about the newest moment."""
        fire_times = self.fire_times(schedule)
        return fire_times[-1].instance if fire_times else ""

    def another_fires(self, but: str) -> str:
        """Wait until another instance fires for the leader; return which."""

        def look() -> str:
            name = self.fired_by("leader")
            return "" if name == but else name

        return eventually(look, timeout=WAIT_S, what="another instance leads")

    def more(self, schedule: str, number: int) -> None:
        """Wait for more moments."""
        before = len(self.fire_times(schedule))
        eventually(lambda: len(self.fire_times(schedule)) >= before + number, timeout=WAIT_S)

    def alone(self) -> bool:
        """Return whether nobody else is connected to the database."""
        with borrowed(self.url) as connection:
            rows = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                "AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
            ).fetchall()
        return not rows

    def misfires(self) -> int:
        """Return how often an instance fired for the leader that was not the leader."""
        with psycopg.connect(self.url) as connection:
            [(number,)] = connection.execute("SELECT count(*) FROM misfires").fetchall()
        return int(number)

    def check(self, schedule: str) -> None:
        """Every moment has a row or is counted, and every one that fired has its one job."""
        fire_times = self.fire_times(schedule)
        span = (fire_times[-1].fire_time - fire_times[0].fire_time) / PERIOD
        assert sum(1 + one.missed for one in fire_times) - fire_times[0].missed == span + 1
        given = [number for one in fire_times for number in one.jobs]
        assert [len(one.jobs) for one in fire_times] == [1] * len(fire_times)
        with self.transaction() as connection:
            rows = connection.execute(
                "SELECT number FROM jobs.job WHERE schedule = %s ORDER BY number", (schedule,)
            ).fetchall()
        assert [number for (number,) in rows] == sorted(given)


@contextmanager
def running(site: Site) -> Iterator[Site]:
    try:
        for process in site.processes.values():
            process.start()
        yield site
    finally:
        for process in site.processes.values():
            process.kill() if process.running else None
        # What they had asked the server to commit may still be committed.
        eventually(site.alone, timeout=WAIT_S, what="the server has noticed that they are dead")


@pytest.fixture
def make(database_url: str, tmp_path: Path) -> Callable[..., Site]:
    return lambda *flags: Site(database_url, tmp_path, *flags)


def test_leaders_that_are_paused_and_killed_at_a_moment(make: Callable[..., Site]) -> None:
    with running(make()) as site:
        first = site.another_fires("")
        site.processes[first].pause()
        second = site.another_fires(first)
        site.processes[first].resume()
        site.more("leader", 2)
        site.processes[second].kill()
        site.another_fires(second)
        site.processes[second].start()
        site.more("leader", 1)
        site.more("single", 1)
    assert site.misfires() == 0
    site.check("leader")
    site.check("single")


@pytest.mark.proof
def test_the_broken_build_without_a_fence_is_caught(make: Callable[..., Site]) -> None:
    with running(make("--unfenced")) as site:
        eventually(lambda: site.misfires() > 0, timeout=WAIT_S)
    site.check("leader")
