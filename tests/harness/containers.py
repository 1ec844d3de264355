"""Real containers on this machine, by podman: the product's images, and what runs in them."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.harness.deployment import DOCKERFILE, IMAGES, ROOT

_BASE = "python:3.11-slim"
_PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
_CERTIFICATES = "/etc/ssl/certs"
# Without limits of its own, and with the runtime that also runs inside another container.
_CONF = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


def missing() -> str:
    """Return what this machine lacks to build images and to run them; empty: nothing."""
    lacks = [one for one in ("podman", "buildah", "runc") if shutil.which(one) is None]
    if os.geteuid() != 0:
        lacks.append("root's rights")
    return " and ".join(lacks)


def built(image: str) -> str:
    """Build one of the product's images from this tree; return its name with its tag.

    Only the layers that have changed are built. Where the base can't be pulled, one is made of
    packages of the release that the recipe's base stands on.
    """
    tag = f"localhost/{image}:tested"
    if not _done("buildah", "inspect", "--type", "image", _BASE) and not _done(
        "buildah", "pull", _BASE
    ):
        _make_base()
    target = ("--target", IMAGES[image]) if IMAGES[image] else ()
    with tempfile.TemporaryDirectory() as folder:
        trusted = Path(folder, "certs")  # also by the build; packages of Java write there
        shutil.copytree(_CERTIFICATES, trusted, ignore_dangling_symlinks=True)
        _must(
            *("buildah", "bud", "--layers", "--file", str(DOCKERFILE), *target, "--tag", tag),
            *("--network", "host", "--volume", f"{trusted}:{_CERTIFICATES}:rw", str(ROOT)),
        )
    return tag


class Container:
    """One container of an image, on the network of this machine."""

    def __init__(self, name: str, image: str, log: Path) -> None:
        self.name, self.image, self.log = name, image, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        mounts: Mapping[str, Path],
        hosts: set[str],
    ) -> None:
        """Start it without waiting; `hosts` are names that mean this machine."""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *("podman", "run", "--rm", "--name", self.name, "--network", "host"),
                    *(f"--add-host={host}:127.0.0.1" for host in sorted(hosts)),
                    *(f"--env={name}={value}" for name, value in environment.items()),
                    *(f"--volume={place}:{path}" for path, place in mounts.items()),
                    *(self.image, *command),
                ],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait(self) -> int:
        """Return its exit code when it has ended."""
        assert self._process is not None
        return self._process.wait()

    def end(self) -> None:
        """End it, if it runs."""
        if self._process is not None and self._process.poll() is None:
            _done("podman", "rm", "--force", "--time", "10", self.name)
            self._process.wait()

    def said(self) -> str:
        """Return what it has said so far."""
        return self.log.read_text(errors="replace")


def _make_base() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        _must("debootstrap", "--variant=minbase", f"--include={_PACKAGES}", "bookworm", str(root))
        (root / "usr/bin/python").symlink_to("python3")
        Path(folder, "Dockerfile").write_text("FROM scratch\nCOPY root /\n")
        _must("buildah", "bud", "--tag", _BASE, folder)


def _must(*command: str) -> None:
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])


def _done(*command: str) -> bool:
    done = subprocess.run(command, env=_environment(), capture_output=True, check=False)
    return done.returncode == 0


def _environment() -> dict[str, str]:
    conf = Path(tempfile.gettempdir(), "packhorse-test-containers.conf")
    conf.write_text(_CONF)
    return {**os.environ, "CONTAINERS_CONF": str(conf), "BUILDAH_ISOLATION": "chroot"}
