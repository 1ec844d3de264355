"""R33: whatever one client does to a program with its connections, others are served meanwhile."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from starlette.responses import Response

from packhorse.runtime.limits import ServiceLimits
from tests.harness.floods import (
    DEADLINE_S,
    MIB,
    Address,
    address_of,
    answered,
    connected,
    head,
    statuses,
)
from tests.harness.waiting import eventually
from tests.unit.runtime.apps import sample_app
from tests.unit.runtime.serving import received_after, serving

ROOT = Path(__file__).parents[3]
LONG = 64 * MIB + 1
HONEST, HOSTILE = "honest-token-of-20-characters", "hostile-token-of-20-characters"


@dataclass
class Program:
    url: str
    pid: int

    @property
    def address(self) -> Address:
        return address_of(self.url)

    def serves(self) -> None:
        """Check that an honest caller and a probe have their answers."""
        headers = {"Authorization": f"Bearer {HONEST}"}
        with httpx.Client(base_url=self.url, headers=headers, timeout=DEADLINE_S) as client:
            answer = client.put("/texts", json={"text": "abc"})
            assert (answer.status_code, answer.text) == (200, "3")
            assert client.get("/livez").status_code == 200

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.touch(mode=0o600)
    entries = [
        {"name": "honest", "token": HONEST, "scopes": ["admin"]},
        {"name": "hostile", "token": HOSTILE, "scopes": ["admin"]},
    ]
    tokens.write_text(json.dumps({"tokens": entries}))
    command = [sys.executable, "-m", "tests.unit.runtime.flooded", str(tokens)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            yield Program(ready["url"], ready["pid"])
        finally:
            process.kill()


def slow_body(token: str = "", length: int = MIB) -> bytes:
    return head("PUT /texts", token, content_type="application/json", content_length=length) + b" "


def test_901_silent_connections_keep_nobody_out(program: Program) -> None:
    with connected(program.address, 901) as silent:
        program.serves()
        silent[0].setblocking(True)
        assert silent[0].recv(1) == b"", "the oldest made room"
        silent[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert silent[-1].recv(12) == b"HTTP/1.1 200", "the newest did not"


@pytest.mark.parametrize("length", [MIB, 100], ids=["large", "small"])
def test_505_slow_bodies_of_strangers_are_not_waited_for(program: Program, length: int) -> None:
    with connected(program.address, 505, slow_body(length=length)) as slow:
        program.serves()
        for one in slow:
            assert one.recv(12) == b"HTTP/1.1 401"


def test_480_slow_bodies_of_one_caller_take_little_memory(program: Program) -> None:
    before = program.resident_bytes()
    with connected(program.address, 480, slow_body(HOSTILE)) as slow:
        program.serves()
        refused = 0
        for one in slow:
            try:
                one.sendall(b" " * 900_000)
            except (ConnectionResetError, BrokenPipeError):
                refused += 1
        program.serves()
        assert refused >= 480 - 125
        assert program.resident_bytes() - before < 50 * MIB


def test_500_abandoned_waits_end_with_their_clients(program: Program) -> None:
    ask = head("GET /waits", HOSTILE)
    with connected(program.address, 500, ask) as waiting:
        program.serves()
        eventually(
            lambda: statuses(waiting) == [429] * 450,
            timeout=DEADLINE_S,
            what="all but one caller's share is refused",
        )

    def as_many_as_before() -> bool:
        with connected(program.address, 50, ask) as waiting:
            program.serves()
            return not any(map(answered, waiting))

    eventually(as_many_as_before, timeout=DEADLINE_S, what="the places are free again")


def test_r33_an_answer_that_nobody_reads_keeps_its_place() -> None:
    """Else one caller could have any number of them lie in memory."""

    async def scenario() -> None:
        app = sample_app(limits=ServiceLimits(in_flight=2))  # one caller has half of the places

        @app.get("/long")
        async def long() -> Response:
            return Response(b"x" * LONG)

        async with serving(app) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(head("GET /long"))
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert (await received_after(address, head("GET /orders"))).startswith(b"HTTP/1.1 429")
            assert await reader.readexactly(LONG) == b"x" * LONG
            writer.close()

    asyncio.run(scenario())
