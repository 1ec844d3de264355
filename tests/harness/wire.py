"""A TCP relay that cuts a connection at a chosen moment of a chosen statement."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit, urlunsplit

_BUFFER = 64 * 1024


class CuttingRelay:
    """Relays to the server of a URL. `url` is the same URL by way of the relay.

    Arm it with one of the `cut_` methods: when the next message that holds the word comes, both
    sides are cut off before it is delivered, behind it, or after its answer. It happens once.
    While `refusing`, new connections are ended at once; `refuse_after_cut` lets a cut begin that.
    `at_cut` is called when the message has come, before the cut.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "", parts.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        user = parts.netloc.rpartition("@")[0]
        self.url = urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{port}"))
        self.refusing = self.refuse_after_cut = False
        self.at_cut: Callable[[], object] = lambda: None
        self.cuts = 0
        self._word: bytes | None = None
        self._deliver = self._await_answer = False
        self._swallowing: socket.socket | None = None
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def cut_before(self, word: bytes) -> None:
        """Cut when a message with `word` comes, and do not deliver it."""
        self._word, self._deliver = word, False

    def cut_behind(self, word: bytes) -> None:
        """Deliver the message with `word` and cut at once."""
        self._word, self._deliver, self._await_answer = word, True, False

    def cut_after(self, word: bytes) -> None:
        """Deliver the message with `word`, wait for the answer, swallow it and cut."""
        self._word, self._deliver, self._await_answer = word, True, True

    def cut_all(self) -> None:
        """Cut every connection that there is now."""
        _end(*self._sockets)

    def _start(self, run: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refusing:
                    client.close()
                    continue
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                self._start(self._up, client, server)
                self._start(self._down, server, client)

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(_BUFFER):
                if self._word is not None and self._word in data:
                    self._word = None
                    self.refusing = self.refuse_after_cut
                    self.at_cut()
                    self.cuts += 1
                    if not self._deliver:
                        break
                    self._swallowing = server
                    server.sendall(data)
                    if not self._await_answer:
                        _end(client)
                    return
                server.sendall(data)
        _end(client, server)

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(_BUFFER):
                if self._swallowing is server:
                    break
                client.sendall(data)
        _end(client, server)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._listener, *self._sockets)
        for thread in self._threads:
            thread.join(120)


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):  # shutdown wakes the thread that reads, close alone does not
            one.shutdown(socket.SHUT_RDWR)
        one.close()
