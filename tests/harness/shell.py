"""A shell whose programs and scripts of Python are forks of a process that has imported ours.

A page has a hundred of them, and a start of their own would take four times as long as they do.
"""

import json
import os
import socket
import socketserver
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.imported import COMMAND_LINE, SERVICES, begin_module

_MODULES = {
    "packhorse": COMMAND_LINE,
    "python3": "tests.harness.script",
    **{f"packhorse-{service.rpartition('.')[2]}": service for service in SERVICES},
}
"""What runs for a command of a shell."""
_LONGEST = 2**17
_LONGEST_RUN_S = 1800.0
_PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
    channel.connect({address!r})
    given = {{"arguments": [{module!r}, *sys.argv[1:]], "folder": os.getcwd()}}
    given["environment"] = dict(os.environ)
    socket.send_fds(channel, [json.dumps(given).encode()], [0, 1, 2])
    pid = int(channel.recv(64))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda given, _: os.kill(pid, given))
    code = int(channel.recv(64))
sys.exit(code if code >= 0 else 128 - code)
"""
"""It hands over what it was started with, passes on signals, and ends as the fork ends."""


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    socket_type = socket.SOCK_SEQPACKET
    request_queue_size = 64


class _Command(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        message, files, *_ = socket.recv_fds(self.request, _LONGEST, 3)
        given = json.loads(message)
        folder = Path(given["folder"])
        begun = begin_module(given["arguments"], given["environment"], folder, files)
        for file in files:
            os.close(file)
        self.request.send(str(begun.pid).encode())
        self.request.send(str(begun.wait(_LONGEST_RUN_S)).encode())


@contextmanager
def forked_commands() -> Iterator[Path]:
    """Give a folder for the PATH, in which each command is such a fork."""
    with tempfile.TemporaryDirectory(prefix="packhorse-test-shell-") as folder:
        address = f"{folder}/commands"
        programs = Path(folder) / "bin"
        programs.mkdir()
        for name, module in _MODULES.items():
            text = _PROGRAM.format(python=sys.executable, address=address, module=module)
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        with _Server(address, _Command) as server:
            threading.Thread(target=server.serve_forever, args=(0.05,)).start()
            try:
                yield programs
            finally:
                server.shutdown()
