"""Folders into the tree and out again, by the program's own commands."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import psycopg
import pytest

from packhorse.blobs.open import open_blobs
from packhorse.content import tree
from packhorse.content.node import Binary, Node
from packhorse.db.connect import connect
from packhorse_services.content import __main__
from packhorse_services.content.transfer.folder_import import ImportBatch
from packhorse_services.content.transfer.local_tree import LocalTree
from packhorse_services.content.transfer.sources import open_source
from tests.harness.author import Author, check_binaries, files_below, some_content
from tests.harness.depth import at_depth
from tests.harness.processes import Process
from tests.harness.s3 import S3Server


def test_a_folder_comes_back_byte_by_byte(author: Author, tmp_path: Path) -> None:
    content = some_content(tmp_path / "in")
    counts = author.imported(content, "/content/site")
    assert (counts["files"], counts["refused"], counts["skipped"]) == (61, 0, 0)
    nodes = author.nodes()
    assert nodes["/content/site/empty"].type == "folder"
    page = nodes["/content/site/s 0/é-0/page-0.html"]
    assert (page.type, page.binaries[0].name, page.binaries[0].media_type) == (
        "file",
        "data",
        "text/html",
    )
    author.run("export", "/content/site", tmp_path / "out")
    assert files_below(tmp_path / "out") == files_below(content)
    assert (tmp_path / "out" / "empty").is_dir()
    author.run("export", "/content/site/large.bin", tmp_path / "one")
    assert (tmp_path / "one" / "large.bin").stat().st_size == 10_000_000
    author.run("export", "/content/site", tmp_path / "out.zip")
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        archive.extractall(tmp_path / "unzipped")
    assert files_below(tmp_path / "unzipped") == files_below(content)
    assert (tmp_path / "unzipped" / "empty").is_dir()
    author.run("export", "/", tmp_path / "all")
    assert files_below(tmp_path / "all" / "content" / "site") == files_below(content)


@pytest.mark.s3
def test_the_same_with_binaries_in_s3(author: Author, s3: S3Server, tmp_path: Path) -> None:
    author.blobs_url = author.environment["PACKHORSE_BLOBS_URL"] = s3.url("folders")
    author.environment |= {
        name: value for name, value in os.environ.items() if name.startswith("AWS_")
    }
    content = some_content(tmp_path / "in", files=12)
    assert author.imported(content, "/a")["files"] == 13
    assert author.imported(content, "/a")["unchanged"] == 13
    check_binaries(author)
    author.run("export", "/a", tmp_path / "out")
    assert files_below(tmp_path / "out") == files_below(content)


def test_again_is_nothing_and_a_change_is_one_file(author: Author, tmp_path: Path) -> None:
    content = some_content(tmp_path / "in")
    author.imported(content, "/a")
    before = author.nodes()
    again = author.imported(content, "/a")
    assert (again["files"], again["unchanged"]) == (0, 61)
    (content / "empty" / "new.txt").write_text("new")
    (content / "large.bin").write_text("small")
    changed = author.imported(content, "/a")
    assert (changed["files"], changed["unchanged"]) == (2, 60)
    after = author.nodes()
    assert {path for path in after if after[path] != before.get(path)} == {
        "/a/empty/new.txt",
        "/a/large.bin",
    }


_LIMITED = """
CREATE FUNCTION limited() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF current_setting('idle_in_transaction_session_timeout') = '0' THEN
        RAISE 'a paused import would keep its locks';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER limited BEFORE INSERT OR UPDATE ON content.node
    FOR EACH ROW EXECUTE FUNCTION limited();
"""


def test_a_paused_import_keeps_nobody_out(author: Author, tmp_path: Path) -> None:
    with author.connection() as conn:
        conn.execute(_LIMITED)
    assert author.imported(some_content(tmp_path / "in", files=3), "/a")["files"] == 4


def test_one_that_was_paused_for_too_long_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(**_: object) -> None:
        raise psycopg.errors.IdleInTransactionSessionTimeout

    monkeypatch.setattr(__main__, "commands", ended)
    with pytest.raises(SystemExit, match="1"):
        __main__.main()
    assert "paused for too long" in capsys.readouterr().err


def test_what_else_a_node_holds_stays(author: Author, tmp_path: Path) -> None:
    (tmp_path / "in" / "page").mkdir(parents=True)
    (tmp_path / "in" / "page" / "a.txt").write_text("new")
    extra = Binary("thumbnail", "0" * 64, 1, "image/png")
    with author.connection() as conn:
        tree.upsert(
            conn,
            [
                Node("/page", "page", '{"title": "Kept"}'),
                Node("/page/a.txt", "file", '{"alt": "Kept"}', (extra,)),
            ],
        )
    author.imported(tmp_path / "in", "/")
    nodes = author.nodes()
    assert nodes["/page"] == Node("/page", "page", '{"title": "Kept"}')
    assert nodes["/page/a.txt"].properties == '{"alt": "Kept"}'
    assert [binary.name for binary in nodes["/page/a.txt"].binaries] == ["data", "thumbnail"]


def test_what_somebody_writes_to_a_file_while_it_is_read_stays(
    author: Author, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("new")
    batch = ImportBatch({"/x/a.txt": next(open_source(tmp_path).entries())})
    old, extra = (Binary(name, "0" * 64, 1, "image/png") for name in ("data", "thumbnail"))
    with (
        author.connection() as conn,
        contextlib.closing(connect(author.url, "tests", autocommit=True)) as importer,
        contextlib.closing(open_blobs(author.blobs_url)) as blobs,
    ):
        tree.upsert(conn, [Node("/x/a.txt", "file", '{"alt": "Old"}', (old,))])
        conn.commit()
        local = LocalTree(importer, blobs)
        stored = local.store(batch, local.read_existing(batch))
        tree.upsert(conn, [Node("/x/a.txt", "file", '{"alt": "Written"}', (old, extra))])
        conn.commit()
        local.finish(batch, stored)
    node = author.nodes()["/x/a.txt"]
    assert node.properties == '{"alt": "Written"}'
    assert [(one.name, one.length) for one in node.binaries] == [("data", 3), ("thumbnail", 1)]


def test_r29_odd_names_are_refused_and_the_rest_is_imported(author: Author, tmp_path: Path) -> None:
    content = tmp_path / "in"
    content.mkdir()
    for name in (b"good.txt", b"not-utf8-\xff.txt", b"line\nbreak.txt", b"\x1b[31mred"):
        (Path(os.fsdecode(bytes(content) + b"/" + name))).write_text("x")
    deep = content
    for _ in range(11):
        deep /= "d" * 200
        deep.mkdir()
    done = author.run("import", content, "--at", "/a", "--json", code=1)
    counts = json.loads(done.stdout)
    assert (counts["files"], counts["refused"]) == (1, 4)
    assert done.stderr.count("refused: ") == 4
    assert "\x1b" not in done.stderr
    assert "/a/good.txt" in author.nodes()


def test_links_and_devices_are_left_out(author: Author, tmp_path: Path) -> None:
    content, secret = tmp_path / "in", tmp_path / "secret"
    content.mkdir()
    secret.mkdir()
    (secret / "key").write_text("secret")
    (content / "Verknüpfung").symlink_to(secret / "key")
    (content / "folder-link").symlink_to(secret)
    (content / "loop").symlink_to(content)
    os.mkfifo(content / "pipe")
    done = author.run("import", content, "--at", "/a", "--json")
    counts = json.loads(done.stdout)
    assert (counts["files"], counts["skipped"]) == (0, 4)
    assert "left out: 'Verknüpfung': it is a symbolic link" in done.stderr
    assert "left out: 'pipe': it is neither a file nor a folder" in done.stderr
    assert list(author.nodes()) == ["/a"]


def test_wrong_calls_say_what_to_do(author: Author, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    author.run("import", tmp_path / "in", code=2)
    author.run("import", tmp_path / "nothing", "--at", "/a", code=2)
    file = author.run("import", tmp_path / "full" / "x", "--at", "/a", code=1)
    assert "put a file into a folder" in file.stderr
    assert "absolute" in author.run("import", tmp_path / "in", "--at", "a", code=2).stderr
    for target in ("out", "out.zip"):
        assert "nothing at" in author.run("export", "/none", tmp_path / target, code=3).stderr
        assert not (tmp_path / target).exists()
    assert "not empty" in author.run("export", "/", tmp_path / "full", code=4).stderr
    (tmp_path / "full.zip").touch()
    assert "there already" in author.run("export", "/", tmp_path / "full.zip", code=4).stderr
    (tmp_path / ".begun.zip.part").symlink_to(tmp_path / "victim")
    assert "was killed" in author.run("export", "/", tmp_path / "begun.zip", code=4).stderr
    assert not (tmp_path / "victim").exists(), "what somebody else has put there is not followed"
    for command in ("import", "export"):
        assert "--server" in author.run(command, "-h").stdout
    author.environment.pop("PACKHORSE_DATABASE_URL")
    missing = author.run("import", tmp_path / "in", "--at", "/a", code=1).stderr
    assert missing.startswith("packhorse-content: PACKHORSE_DATABASE_URL")


_LOCAL = "packhorse_services.content.transfer.local_tree:"


def test_killed_and_run_again_it_gives_the_same(author: Author, tmp_path: Path) -> None:
    content = tmp_path / "in"
    for number in range(at_depth(3_000, 1_100)):
        path = content / str(number // 100) / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {number}")
    settings = {"PACKHORSE_DATABASE_URL": author.url, "PACKHORSE_BLOBS_URL": author.blobs_url}
    python, module, *arguments = author.command("import", content, "--at", "/a")
    for point, there in (("tree.add_folders@after2", 1), ("LocalTree.finish@after2", 1_001)):
        deadly = (python, module, "tests.harness.killed_program", _LOCAL + point, *arguments)
        running = Process("import", deadly, settings, tmp_path)
        running.start()
        assert running.wait() == -signal.SIGKILL, running.said()
        assert len(author.nodes()) == there, "the folder above, then with it a batch of 1,000"
        check_binaries(author)
    author.imported(content, "/a")
    author.run("export", "/a", tmp_path / "out")
    assert files_below(tmp_path / "out") == files_below(content)


def test_export_refuses_what_has_no_place_in_a_folder(author: Author, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("x")
    author.imported(tmp_path / "in", "/x")
    with author.connection() as conn:
        file = tree.read(conn, ["/x/a"])[0]
        lost = Binary("data", "0" * 64, 1, "text/plain")
        tree.upsert(
            conn,
            [
                Node("/x/a/below-a-file", "file", binaries=file.binaries),
                Node("/x/lost", "file", binaries=(lost,)),
                Node("/x/" + "n" * 300, "file", binaries=file.binaries),
                Node("/x/page", "page", '{"title": "Stays behind"}'),
            ],
        )
        conn.execute("INSERT INTO content.node VALUES ('/x/../../escaped', 'folder', '{}', '{}')")
    done = author.run("export", "/x", tmp_path / "out" / "deep", "--json", code=1)
    counts = json.loads(done.stdout)
    assert (counts["files"], counts["refused"], counts["skipped"]) == (1, 4, 1)
    assert (
        "left out: '/x/page': its type 'page' and its properties, which a folder can't hold"
        in done.stderr
    )
    assert files_below(tmp_path / "out") == {"deep/a": b"x"}
    assert not (tmp_path / "escaped").exists()


def test_memory_does_not_grow_with_the_folder(author: Author, tmp_path: Path) -> None:
    content = tmp_path / "in"
    content.mkdir()
    with (content / "large").open("wb") as large:
        large.truncate(120 * 1024**2)
    for number in range(1_000):
        (content / f"{number}").write_bytes(os.urandom(40_000))
    watched = (
        "import re, sys; from packhorse_services.content.__main__ import commands;"
        # ru_maxrss would be that of the test's own process, from which this one was forked
        r"most = lambda: int(re.search(r'VmHWM:\s+(\d+)', open('/proc/self/status').read())[1]);"
        "before = most(); commands(sys.argv[1:], standalone_mode=False);"
        "print((most() - before) // 1024)"
    )
    arguments = ("import", str(content), "--at", "/a", "--json")
    done = subprocess.run(
        [sys.executable, "-c", watched, *arguments],
        env=author.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    result, megabytes = done.stdout.split("\n")[:2]
    assert json.loads(result)["files"] == 1_001
    assert int(megabytes) < 80, "all of it is 160 MB"
