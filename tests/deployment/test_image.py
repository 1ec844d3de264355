"""The image's recipe, checked without an engine."""

import json
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

from tests.harness.deployment import DOCKERFILE, IMAGES, ROOT, image_environment, stages

TEXT = DOCKERFILE.read_text().replace("\\\n", " ")


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_what_the_image_copies_exists_and_reaches_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    for line in re.findall(r"^COPY (?!--from)(.+)$", TEXT, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignored, f"{source} is kept from the builder"


def test_what_a_wheel_is_made_of_is_copied() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    made_of = wheel["targets"]["wheel"]
    copied = re.findall(r"^COPY (?!--from)(\S+) \S+$", TEXT, re.MULTILINE)
    for source in (*made_of["packages"], *made_of["force-include"]):
        assert any(source.startswith(one) for one in copied), source


def test_nothing_private_reaches_the_builder() -> None:
    patterns = (ROOT / ".dockerignore").read_text().split("\n")
    assert patterns[1] == "*", "everything is left out unless it is named"
    assert not any(fnmatch(".git", p.lstrip("!")) for p in patterns if p.startswith("!"))


def test_it_runs_as_a_numbered_user_without_rights() -> None:
    for stage in IMAGES.values():
        text = stages()[stage][1]
        assert re.findall(r"^USER (.+)$", text, re.MULTILINE) == ["10001:10001"]
        assert text.strip().endswith("USER 10001:10001")


def test_bases_are_plain_names_with_a_version() -> None:
    bases = {parent for parent, _ in stages().values()} - stages().keys()
    assert bases == {"python:3.11-slim"}


def test_the_command_chooses_the_program() -> None:
    assert not re.search(r"^ENTRYPOINT", TEXT, re.MULTILINE)
    commands = re.findall(r"^CMD (.+)$", TEXT, re.MULTILINE)
    assert [json.loads(command) for command in commands] == [["packhorse", "--help"]]


def test_its_health_check_is_a_program_that_runs() -> None:
    check = json.loads(re.findall(r"^HEALTHCHECK .*CMD (\[.+\])$", TEXT, re.MULTILINE)[0])
    assert check[:2] == ["python", "-c"]
    compile(check[2], "HEALTHCHECK", "exec")
    assert "/livez" in check[2]
    assert image_environment()["PACKHORSE_PORT"] == "8080"


def test_the_pipeline_image_fetches_its_jars_when_it_is_built() -> None:
    environment = image_environment("pipeline")
    assert environment["PACKHORSE_SPARK_JARS"].startswith("/opt/")
    lines = stages()["pipeline"][1].splitlines()
    assert lines.index("RUN packhorse-pipeline jars") < lines.index("USER 10001:10001")
    assert "/opt/packhorse/bin" in environment["PATH"]
