"""The options that a local JVM is started with; what the operator says wins."""

import subprocess
from pathlib import Path

import pytest

from packhorse_services.pipeline.engine.jars import class_archive, java
from packhorse_services.pipeline.engine.session import _with_java_options
from packhorse_services.pipeline.engine.shared_classes import share_classes
from packhorse_services.pipeline.settings import Settings

OPTIONS = "spark.driver.extraJavaOptions"
LATE = "-XX:Tier4"


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)


def test_the_second_compiler_of_a_local_jvm_comes_late() -> None:
    assert LATE in _with_java_options({}, "local[*]")[OPTIONS]


@pytest.mark.parametrize("said", ["-XX:-TieredCompilation", "-XX:TieredStopAtLevel=1"])
def test_what_is_said_of_the_compiler_wins(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert LATE not in _with_java_options({OPTIONS: said}, "local[*]")[OPTIONS]
    monkeypatch.setenv("JDK_JAVA_OPTIONS", said)
    assert LATE not in _with_java_options({}, "local[*]")[OPTIONS]


def test_what_is_said_of_the_collector_wins() -> None:
    assert "-XX:+UseParallelGC" in _with_java_options({}, "local[2]")[OPTIONS]
    found = _with_java_options({OPTIONS: "-XX:+UseZGC"}, "local[2]")[OPTIONS]
    assert "ParallelGC" not in found


def test_a_cluster_has_its_own_options() -> None:
    assert _with_java_options({OPTIONS: "-Xss2m"}, "yarn") == {OPTIONS: "-Xss2m"}


def test_classes_that_were_kept_are_shared_and_a_damaged_archive_is_passed_over(
    tmp_path: Path,
) -> None:
    jars = tmp_path / "jars"
    conf = {"spark.driver.extraClassPath": f"{jars}/*"}
    assert "Archive" not in _with_java_options(conf, "local[2]")[OPTIONS]
    archive = class_archive(jars)
    archive.write_bytes(b"no archive")
    options = _with_java_options(conf, "local[2]")[OPTIONS]
    assert f"-XX:SharedArchiveFile={archive}" in options
    said = _with_java_options({**conf, OPTIONS: "-XX:SharedArchiveFile=mine"}, "local[2]")
    assert str(archive) not in said[OPTIONS]
    started = [str(java()), *options.split(), "-version"]
    done = subprocess.run(started, capture_output=True, text=True, check=True, timeout=120)
    assert "warning" not in (done.stdout + done.stderr).lower()


def test_jars_beside_which_nothing_can_be_written_stay_as_they_are(tmp_path: Path) -> None:
    assert not share_classes(Settings(), tmp_path / "none" / "jars").exists()
