"""`packhorse demo` on a folder of somebody's own, names and all."""

from pathlib import Path

from tests.harness.command_line import packhorse_program

NAMES = ["plain.txt", "with space.html", "Größe ✓.md", 'quote\'s "both".txt', "100%.txt", ".hidden"]


def test_the_demo_proves_that_a_folder_arrived(tmp_path: Path) -> None:
    for folder in ("", "deep/er"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(NAMES):
            (tmp_path / folder / name).write_bytes(bytes(range(256)) * number)
    done = packhorse_program("demo", "--content", str(tmp_path), "--subscribers", "2")
    lines = [line.split() for line in done.stdout.splitlines()]
    equal = {line[0]: line[-1] for line in lines if line and line[0] in ("author", "sub1", "sub2")}
    assert done.stdout.count(" yes") == 3, done.stdout
    assert sorted(equal) == ["author", "sub1", "sub2"]
    assert "curl http://127.0.0.1:" in done.stdout


def test_the_demo_of_an_empty_folder_says_so(tmp_path: Path) -> None:
    done = packhorse_program("demo", "--content", str(tmp_path), "--subscribers", "1", check=False)
    assert done.returncode == 2
    assert "no file in" in done.stderr
