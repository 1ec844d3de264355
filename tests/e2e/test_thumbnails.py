"""Seed 003: content is imported, an event says so, one instance makes the thumbnail, once (R34)."""

import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.harness.jobs.stored import end_leases
from tests.harness.postgres import Databases
from tests.harness.processes import Process
from tests.harness.site import Site, site
from tests.harness.subscriber import rows_of
from tests.harness.waiting import eventually

PICTURES = 6

APP = """
import itertools, os, signal
from packhorse import App

app = App("thumbnails", topology_interval_s=0.2, topology_timeout_s=3.0)
done = itertools.count(1)  # jobs run in several threads


@app.consumer("images/thumbnail", content="/pictures")
def thumbnail(job, context):
    number = next(done)
    paths = [*job.properties["paths"], *job.properties["deep_paths"]]
    with context.completion() as connection:
        for path in paths:
            connection.execute(
                "INSERT INTO thumbnail SELECT path, properties ->> 'title', %s FROM content.node "
                "WHERE path = %s", (job.properties["change"], path))
        if number == int(os.environ.get("DIES_AT", "0")):
            os.kill(os.getpid(), signal.SIGKILL)


app.run()
"""


@pytest.fixture
def pictures(databases: Databases) -> Iterator[Site]:
    """A site with one subscriber, whose database has a table for thumbnails."""
    with site(databases, databases.new("journal")) as built:
        built.subscriber("sub")
        with psycopg.connect(built.database_urls["sub"]) as connection:
            connection.execute("CREATE TABLE thumbnail (path text, title text, change text)")
        built.start()
        yield built


def test_r34_each_picture_has_one_thumbnail_whatever_is_killed(
    pictures: Site, tmp_path: Path
) -> None:
    url = pictures.database_urls["sub"]
    script = tmp_path / "thumbnails.py"
    script.write_text(APP)

    def instance(name: str, **environment: str) -> Process:
        given = {"PACKHORSE_DATABASE_URL": url, "PACKHORSE_INSTANCE_ID": name, **environment}
        command = (sys.executable, "-m", "tests.harness.script", str(script))
        return Process(name, command, given, tmp_path)

    first, second = instance("first", DIES_AT="3"), instance("second")
    first.start()
    try:
        eventually(lambda: rows_of(url, "SELECT FROM jobs.content_watch"), what="it watches")
        for number in range(PICTURES):
            path = f"/pictures/{number}"
            pictures.put(path, properties={"title": f"picture {number}"})
            pictures.distribute(path)
        pictures.put("/pages/1")
        pictures.distribute_everywhere("/pages/1")
        eventually(lambda: not first.running, what="the first instance was killed in a job")
        end_leases(url)
        second.start()
        eventually(lambda: not rows_of(url, "SELECT FROM jobs.job"), timeout=240, what="all done")
    finally:
        for one in (first, second):
            if one.running:
                one.stop()
    made = rows_of(url, "SELECT path, title, change FROM thumbnail ORDER BY path")
    wanted = [(f"/pictures/{n}", f"picture {n}", "added") for n in range(PICTURES)]
    assert made == sorted(wanted), first.said() + second.said()
