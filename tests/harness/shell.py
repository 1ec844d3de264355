"""A shell whose programs and scripts of Python are forks of a process that has imported ours.

A page has a hundred of them, and a start of their own would take four times as long as they do.
"""

import marshal
import os
import socket
import socketserver
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.imported import COMMAND_LINE, PIPELINE, SERVICES, begin_module

MODULES = {
    "packhorse": COMMAND_LINE,
    "packhorse-pipeline": PIPELINE,
    "python3": "tests.harness.script",
    **{f"packhorse-{service.rpartition('.')[2]}": service for service in SERVICES},
}
"""What runs for a command of a shell: for those of ours, what the installed program calls."""
_LONGEST = 2**17
_LONGEST_RUN_S = 1800.0
_PROGRAM = """#!{python} -IS
import _signal, _socket, marshal, os, sys
channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
channel.connect({address!r})
given = ([{module!r}, *sys.argv[1:]], os.getcwd(), dict(os.environ))
files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
passed = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)
channel.sendmsg([marshal.dumps(given)], [passed])
pid = int(channel.recv(64))
for number in (_signal.SIGINT, _signal.SIGTERM):
    _signal.signal(number, lambda given, _: os.kill(pid, given))
code = int(channel.recv(64))
sys.exit(code if code >= 0 else 128 - code)
"""
"""It hands over what it was started with, passes on signals, and ends as the fork ends.

It imports what is built into the interpreter alone: the rest would take most of its time.
"""


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    socket_type = socket.SOCK_SEQPACKET
    request_queue_size = 64


class _Command(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        message, files, *_ = socket.recv_fds(self.request, _LONGEST, 3)
        arguments, folder, environment = marshal.loads(message)
        begun = begin_module(arguments, environment, Path(folder), files)
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
        for name, module in MODULES.items():
            text = _PROGRAM.format(python=sys.executable, address=address, module=module)
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        with _Server(address, _Command) as server:
            threading.Thread(target=server.serve_forever, args=(0.05,)).start()
            try:
                yield programs
            finally:
                server.shutdown()
