"""`packhorse up` of a process that has imported its programs: its fork server is a fork, too.

Begun by `tests.harness.imported`. Only the imports of the command line and of the server are left
out; a server that dies is started anew as the product does it.
"""

import os
import runpy
import signal
import socket
import sys
from pathlib import Path

from packhorse_services.cli.stack import fork_server, up
from packhorse_services.cli.stack.forked import ForkServer
from tests.harness.imported import COMMAND_LINE, forked


class _Forked:
    """What `subprocess.Popen` is of a started server: the part that `ForkServer` uses."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


class _Prepared(ForkServer):
    """A fork server that runs already."""

    def __init__(self, log: Path) -> None:
        super().__init__(log)
        self._process, self._channel = _server, _ours  # type: ignore[assignment]


_ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if (_pid := forked()) == 0:
    _ours.close()
    sys.argv = [fork_server.__name__, str(_theirs.detach())]
    runpy.run_module(fork_server.__name__, run_name="__main__", alter_sys=True)
    sys.exit()
_theirs.close()
_server = _Forked(_pid)
up.ForkServer = _Prepared  # type: ignore[attr-defined]
runpy.run_module(COMMAND_LINE, run_name="__main__", alter_sys=True)
