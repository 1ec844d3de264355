"""The jars that Spark needs: pinned in ivy.xml, fetched once by the Ivy that PySpark brings."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from importlib.resources import as_file, files
from pathlib import Path

from packhorse_services.pipeline.errors import JarsMissing, JavaUnusable

_JAVA_VERSIONS = (17, 21)
_HERE = files("packhorse_services.pipeline.engine")


def jars_folder(configured: Path | None = None) -> Path:
    """Return where the jars are, or will be: another folder whenever ivy.xml changes."""
    if configured is not None:
        return configured
    home = os.environ.get("XDG_CACHE_HOME")
    cache = (Path(home) if home else Path.home() / ".cache") / "packhorse"
    digest = hashlib.sha256(_HERE.joinpath("ivy.xml").read_bytes()).hexdigest()[:8]
    return cache / f"spark-jars-{digest}"


def require_jars(configured: Path | None = None) -> Path:
    """Return the folder of the jars. Raises `JarsMissing` when one of them is not there."""
    folder = jars_folder(configured)
    missing = [name for name in _pinned() if not (folder / name).is_file()]
    if missing:
        raise JarsMissing(
            f"{folder} lacks {missing[0]}; fetch the jars with packhorse-pipeline jars"
        )
    return folder


def fetch_jars(configured: Path | None = None, ivy_settings: Path | None = None) -> Path:
    """Fetch the jars unless they are there, and return their folder.

    The folder appears whole. Raises `JarsMissing` with Ivy's own words, or `JavaUnusable`.
    """
    folder = jars_folder(configured)
    try:
        return require_jars(configured)
    except JarsMissing:
        folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-") as workplace:
        fresh = Path(workplace, "jars")
        _retrieve(fresh, Path(workplace, "ivy"), ivy_settings)
        if folder.exists():
            shutil.rmtree(folder)
        fresh.rename(folder)
    return require_jars(configured)


def class_archive(folder: Path) -> Path:
    """Return where the classes that Spark's JVM shares between runs are, or will be.

    Another file for each Java, PySpark and folder of jars: it counts for these alone. Raises
    `JavaUnusable`.
    """
    spark, home = _spark_jars(), java().parent.parent
    release = home / "release"
    of = (sorted(spark.iterdir()), home, release.read_text() if release.exists() else "")
    digest = hashlib.sha256(repr(of).encode()).hexdigest()[:8]
    return folder.with_name(f"{folder.name}-classes-{digest}.jsa")


def _retrieve(fresh: Path, home: Path, ivy_settings: Path | None) -> None:
    with (
        as_file(_HERE.joinpath("ivy.xml")) as ivy,
        as_file(_HERE.joinpath("ivysettings.xml")) as own,
    ):
        command = [
            *(str(java()), f"-Divy.default.ivy.user.dir={home}", "-cp", f"{_spark_jars()}/*"),
            *("org.apache.ivy.Main", "-settings", str(ivy_settings or own), "-ivy", str(ivy)),
            *("-cache", str(home / "cache")),
            *("-retrieve", f"{fresh}/[artifact]-[revision].[ext]"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not fresh.is_dir():
        said = re.findall(r"(?:UNRESOLVED|FAILED|unresolved|not found|ERROR).*", done.stdout)
        reason = said[0] if said else (done.stderr or done.stdout).strip()[-300:]
        raise JarsMissing(
            f"the jars can't be fetched ({reason}); name a repository that has them with "
            "PACKHORSE_IVY_SETTINGS, or a folder that holds them with PACKHORSE_SPARK_JARS"
        )


def java() -> Path:
    """Return the Java that Spark is started with: that of JAVA_HOME, else of the PATH.

    Raises `JavaUnusable`.
    """
    wanted = " or ".join(map(str, _JAVA_VERSIONS))
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None:
        raise JavaUnusable(f"there is no Java; install version {wanted}, or set JAVA_HOME")
    version = _major_version(found)
    if version not in _JAVA_VERSIONS:
        reported = f"Java {version}" if version else "no Java"
        raise JavaUnusable(f"{found} is {reported}; Spark needs {wanted}: set JAVA_HOME to one")
    return Path(os.path.realpath(found))


def _major_version(candidate: str) -> int:
    try:
        said = subprocess.run(
            [candidate, "-version"], capture_output=True, text=True, check=False, timeout=300
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(r'version "(\d+)', said)
    return int(version[1]) if version else 0


def _pinned() -> list[str]:
    """Return the file names of the jars that ivy.xml names."""
    text = _HERE.joinpath("ivy.xml").read_text()
    pins = re.findall(r'<dependency org="[^"]+" name="([^"]+)" rev="([^"]+)"', text)
    return [f"{name}-{revision}.jar" for name, revision in pins]


def spark_home() -> Path:
    """Return the folder of the Spark in PySpark."""
    import pyspark

    return Path(pyspark.__file__).parent


def _spark_jars() -> Path:
    return spark_home() / "jars"
