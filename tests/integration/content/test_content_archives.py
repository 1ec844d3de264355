"""Archives into the tree, whatever their entries say."""

import io
import stat
import zipfile
from pathlib import Path

from tests.harness.author import Author, some_content


def test_an_archive_gives_the_same_as_its_folder(author: Author, tmp_path: Path) -> None:
    content = some_content(tmp_path / "in")
    archive = tmp_path / "in.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for path in sorted(content.rglob("*")):
            made.write(path, str(path.relative_to(content)))
    author.imported(content, "/a")
    author.imported(archive, "/b")
    folder, unzipped = author.nodes("/a"), author.nodes("/b")
    assert {path[2:]: node.binaries for path, node in folder.items()} == {
        path[2:]: node.binaries for path, node in unzipped.items()
    }


def test_an_archive_can_not_leave_its_place(author: Author, tmp_path: Path) -> None:
    archive = tmp_path / "slip.zip"
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(archive, "w") as made:
        for name in ("../up", "/etc/passwd", "a/../../b", "a//b", "..\\up", "./a", "good/a.txt"):
            made.writestr(name, "x")
        made.writestr(link, "/etc/passwd")
    counts = author.imported(archive, "/content/site", code=1)
    assert (counts["files"], counts["refused"], counts["skipped"]) == (1, 6, 1)
    assert set(author.nodes()) == {
        "/content",
        "/content/site",
        "/content/site/good",
        "/content/site/good/a.txt",
    }


def test_a_zip_bomb_is_cut_off(author: Author, tmp_path: Path) -> None:
    archive = tmp_path / "bomb.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made:
        for name, megabytes in (("a", 1), ("b", 256), ("c", 1)):
            with made.open(name, "w") as member:
                for _ in range(megabytes):
                    member.write(bytes(1024 * 1024))
    counts = author.imported(archive, "/a", code=1)
    assert (counts["files"], counts["refused"]) == (1, 2)


def test_a_damaged_archive(author: Author, tmp_path: Path) -> None:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as made:
        made.writestr("good.txt", "good")
        made.writestr("bad.txt", "B" * 1000)
    damaged = whole.getvalue().replace(b"B" * 1000, b"B" * 999 + b"C")
    (tmp_path / "damaged.zip").write_bytes(damaged)
    assert author.imported(tmp_path / "damaged.zip", "/a", code=1)["refused"] == 1
    assert "/a/good.txt" in author.nodes()
    (tmp_path / "no.zip").write_bytes(b"no archive")
    assert "neither" in author.run("import", tmp_path / "no.zip", "--at", "/a", code=1).stderr
