"""A receiver follows a subscriber by a hook: it fails, is killed and comes back (R34, ADR 0101)."""

import base64
import hashlib
import hmac
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from packhorse_services.cli.stack.ports import free_port
from tests.harness.postgres import Databases
from tests.harness.processes import Process, Program
from tests.harness.site import Site, site
from tests.harness.subscriber import rows_of
from tests.harness.waiting import eventually

KEYS = [b"the old key of the receiver" * 2, b"and the new one, which it takes"]
SECRETS = ["whsec_" + base64.b64encode(key).decode() for key in KEYS]
HIDDEN = "a-path-that-only-the-receiver-knows"

RECEIVER = """
import json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_, port, says, told = sys.argv


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        status = int(Path(says).read_text())
        heard = {name.lower(): value for name, value in self.headers.items()}
        line = json.dumps({**heard, "status": status, "path": self.path, "body": body.decode()})
        with open(told, "a") as file:
            file.write(line + "\\n")
        if not status:
            threading.Event().wait()
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()


ThreadingHTTPServer(("127.0.0.1", int(port)), Receiver).serve_forever()
"""


@dataclass
class Hooked:
    """A site with one subscriber, jobs services on its database, and who is told."""

    site: Site
    jobs: Program
    other_jobs: Program
    receiver: Process
    says: Path
    told: Path

    def says_now(self, status: int) -> None:
        """Let the receiver answer with a status; 0: it hears, and never answers."""
        self.says.write_text(str(status))

    def heard(self, status: int | None = None) -> list[dict[str, Any]]:
        """Return what it was told, where it answered so."""
        lines = self.told.read_text().splitlines() if self.told.exists() else []
        every = [json.loads(line) for line in lines]
        return [one for one in every if status is None or one["status"] == status]

    def ask(self, method: str, path: str, **more: Any) -> Any:
        """Ask the jobs service."""
        answer: httpx.Response = self.site.http.request(method, f"{self.jobs.url}{path}", **more)
        assert answer.is_success, answer.text
        return answer.json()

    def change(self, *paths: str) -> None:
        """Change pages at the author, and see that the subscriber has them."""
        for path in paths:
            self.site.put(path)
            self.site.distribute_everywhere(path)

    def unfinished(self) -> list[Any]:
        """Return the jobs that wait or are done now."""
        return rows_of(self.site.database_urls["sub"], "SELECT number FROM jobs.job")


@pytest.fixture
def hooked(databases: Databases, tmp_path: Path) -> Iterator[Hooked]:
    script, port = tmp_path / "receiver.py", free_port()
    script.write_text(RECEIVER)
    says, told = tmp_path / "says", tmp_path / "told"
    receiver = Process(
        "receiver", [sys.executable, str(script), str(port), str(says), str(told)], {}, tmp_path
    )
    hook = {
        "url": f"http://127.0.0.1:{port}/{HIDDEN}",
        "secrets": SECRETS,
        "paths": ["/site"],
        "timeout_s": 60,
    }
    with site(databases, databases.new("journal")) as built:
        built.subscriber("sub")
        url = built.database_urls["sub"]
        own = {"hooks": json.dumps({"cdn": hook}), "topology_interval_s": 0.4}
        one, other = (built.programs.jobs(url, **own) for _ in range(2))
        made = Hooked(built, one, other, receiver, says, told)
        made.says_now(503)
        receiver.start()
        built.start()
        eventually(lambda: rows_of(url, "SELECT FROM jobs.queue WHERE name = 'hooks.cdn'"))
        at_author = {"hooks": json.dumps({"search": {**hook, "paths": ["/authored"]}})}
        built.programs.jobs(built.author_url, **at_author).start()
        queue = {"patterns": ["packhorse/hooks/cdn"], "type": "UNORDERED", "max_retries": -1}
        delays = {"retry_delay_s": 0.1, "max_retry_delay_s": 0.2}
        made.ask("PUT", "/job-queues/hooks.cdn", json={**queue, **delays})
        yield made
        if receiver.running:
            receiver.kill()


def _are_signed(heard: list[dict[str, Any]]) -> None:
    for one in heard:
        signed = f"{one['webhook-id']}.{one['webhook-timestamp']}.{one['body']}".encode()
        own = [
            "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
            for key in KEYS
        ]
        assert one["webhook-signature"].split(" ") == own


def test_r34_each_change_is_delivered_whatever_fails_or_is_killed(hooked: Hooked) -> None:
    pages = [f"/site/{number}" for number in range(6)]
    hooked.change(*pages[:3], "/elsewhere")  # imported, although the receiver fails
    eventually(lambda: len(hooked.heard(503)) > 6, what="it is tried again")
    hooked.says_now(0)
    eventually(lambda: len(hooked.heard(0)) >= 3, what="all are under way")
    hooked.jobs.kill()
    hooked.other_jobs.kill()
    hooked.receiver.kill()
    hooked.change(*pages[3:])
    with psycopg.connect(hooked.site.database_urls["sub"]) as connection:
        connection.execute("UPDATE jobs.worker SET lease_until = clock_timestamp()")
    hooked.says_now(204)
    hooked.receiver.start()
    for program in (hooked.jobs, hooked.other_jobs):
        program.start()
    hooked.jobs.ready()
    eventually(lambda: not hooked.unfinished(), what="all is delivered")
    paths: dict[str, str] = {}
    for one in hooked.heard():
        body = json.loads(one["body"])
        assert (body["type"], body["data"]["subscriber"]) == ("content.added", "sub")
        assert paths.setdefault(one["webhook-id"], one["body"]) == one["body"]
    done = {one["webhook-id"]: json.loads(one["body"]) for one in hooked.heard(204)}
    assert sorted(path for one in done.values() for path in one["data"]["paths"]) == pages
    assert paths.keys() == done.keys()
    assert len(hooked.heard(204)) == len(done), "two services deliver one job"
    _are_signed(hooked.heard())
    _is_given_up_and_retried(hooked)
    _follows_the_author(hooked)
    shown = [hooked.ask("GET", path) for path in ("/jobs?state=SUCCEEDED", "/content-watches")]
    said = json.dumps(shown) + hooked.jobs.log.read_text() + hooked.other_jobs.log.read_text()
    assert not [one for one in (*SECRETS, HIDDEN) if one in said]


def _is_given_up_and_retried(hooked: Hooked) -> None:
    hooked.says_now(410)
    hooked.change("/site/gone")
    [failed] = eventually(lambda: hooked.ask("GET", "/jobs?state=ERROR")["jobs"], what="it fails")
    assert failed["result_message"] == "the receiver answered 410: it is gone for good"
    hooked.says_now(200)
    hooked.ask("POST", f"/jobs/{failed['number']}/retry")
    eventually(lambda: hooked.heard(200), what="it is delivered")
    assert {one["webhook-id"] for one in hooked.heard(410)} == {
        one["webhook-id"] for one in hooked.heard(200)
    }


def _follows_the_author(hooked: Hooked) -> None:
    watched = "SELECT FROM jobs.content_watch WHERE name = 'packhorse.hooks.search'"
    eventually(lambda: rows_of(hooked.site.author_url, watched), what="the author is watched")
    hooked.site.put("/authored/page")
    of_author = eventually(lambda: _without_subscriber(hooked), what="the author's change is told")
    assert [one["data"]["paths"] for one in of_author] == [["/authored/page"]]


def _without_subscriber(hooked: Hooked) -> list[Any]:
    told = [json.loads(one["body"]) for one in hooked.heard(200)]
    return [one for one in told if "subscriber" not in one["data"]]
