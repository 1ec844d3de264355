"""What is wrong with a submission is said in a line before anything starts."""

import pytest

from packhorse.runtime.startup import plain_refusals
from packhorse_services.pipeline.engine.exit_codes import plain_ends
from packhorse_services.pipeline.program import program


@pytest.mark.usefixtures("jars")
@pytest.mark.parametrize(
    ("arguments", "settings", "said"),
    [
        (("submit",), {}, "name the task"),
        (("submit", "archive"), {"PACKHORSE_SPARK_MASTER": "local[2]"}, "names no cluster"),
        (("submit", "archive"), {"SPARK_HOME": "/nowhere"}, "there is no /nowhere/bin"),
        (("submit", "archive"), {"PACKHORSE_SPARK_JARS": "/nowhere"}, "packhorse-pipeline jars"),
        (("submit", "--deploy-mode", "cluster", "archive"), {}, "only on Kubernetes"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    arguments: tuple[str, ...],
    settings: dict[str, str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, value in {"PACKHORSE_SPARK_MASTER": "spark://127.0.0.1:9", **settings}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended, plain_refusals(), plain_ends():
        program("submit")(arguments, prog_name="packhorse-pipeline")
    assert ended.value.code == 2
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert said in lines[0]
