"""A real S3 server for the tests: versitygw over a temporary folder."""

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from packhorse_services.cli.stack.embedded import free_port
from tests.harness.certificates import write_certificates
from tests.harness.waiting import eventually

VERSION = "v1.8.0"
TOOLS = Path.home() / ".cache" / "packhorse" / "tools"
ACCESS_KEY = "packhorse-test"
SECRET_KEY = "packhorse-test-secret"
BUCKET = "blobs"


@dataclass(frozen=True)
class S3Server:
    """One running server with one bucket."""

    port: int
    data: Path
    process: subprocess.Popen[bytes]
    scheme: str = "http"

    @property
    def endpoint(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def url(self, prefix: str = "") -> str:
        """Return the URL of a blob store; its credentials are in the environment."""
        query = f"endpoint={self.endpoint}&region=us-east-1&allow_http=true"
        return f"s3://{BUCKET}/{prefix}?{query}"


def versitygw() -> Path:
    """Return the server's binary, built from its Go module the first time, by one that asks."""
    binary = TOOLS / "versitygw"
    TOOLS.mkdir(parents=True, exist_ok=True)
    with (TOOLS / "versitygw.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            _build(binary)
    return binary


def _build(binary: Path) -> None:
    if shutil.which("go") is None:
        raise RuntimeError(
            "the S3 tests need the server versitygw, which is built with Go: install Go 1.24 or "
            f"newer, or put versitygw {VERSION} at {binary}"
        )
    with tempfile.TemporaryDirectory(dir=TOOLS, prefix="go-") as built:
        subprocess.run(
            # To optimise a program that serves a few requests takes longer than they do.
            [
                "go",
                "install",
                "-gcflags=all=-N -l",
                "-ldflags=-s -w",
                f"github.com/versity/versitygw/cmd/versitygw@{VERSION}",
            ],
            env={**os.environ, "GOBIN": built},
            check=True,
        )
        Path(built, "versitygw").rename(binary)


@contextmanager
def running_s3(tls: Path | None = None) -> Iterator[S3Server]:
    """Start a server with an empty bucket; end and remove it afterwards.

    With a folder `tls` it speaks TLS, with a certificate by the `authority.pem` made there.
    """
    data = Path(tempfile.mkdtemp(prefix="packhorse-test-s3-"))
    (data / BUCKET).mkdir()
    port = free_port()
    process = subprocess.Popen(
        [versitygw(), "--port", f"127.0.0.1:{port}", "--quiet", *_tls(tls), "posix", data],
        env={**os.environ, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY},
        stdout=subprocess.DEVNULL,
    )
    try:
        _await_listening(port, process)
        yield S3Server(port, data, process, "https" if tls else "http")
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(data, ignore_errors=True)


def _tls(folder: Path | None) -> list[str]:
    if folder is None:
        return []
    key, certificate = write_certificates(folder)
    return ["--key", str(key), "--cert", str(certificate)]


def _await_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    def listens() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"versitygw ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            return False
        return True

    eventually(listens, "versitygw answers", timeout=300, interval=0.02)
