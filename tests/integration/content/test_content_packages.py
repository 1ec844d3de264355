"""FileVault content packages in and out: those that others have made, and each of their forms."""

import json
from pathlib import Path

import pytest

from packhorse.content import tree
from packhorse.content.node import Node
from packhorse_services.content.filevault import docview as product
from tests.harness.author import Author
from tests.harness.depth import at_depth
from tests.harness.filevault import described, files, package, real_packages

JCR = 'xmlns:jcr="http://www.jcp.org/jcr/1.0" xmlns:nt="http://www.jcp.org/jcr/nt/1.0"'


def docview(attributes: str, inner: str = "") -> str:
    return f"<jcr:root {JCR} {attributes}>{inner}</jcr:root>"


PAGE = docview('jcr:primaryType="cq:Page"', '<jcr:content jcr:primaryType="nt:unstructured"/>')


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.depth)])
def test_what_others_have_made_comes_back_as_it_was(
    author: Author, tmp_path: Path, number: int
) -> None:
    original = real_packages()[number]
    counts = author.imported(original, "/")
    assert counts["nodes"] > 2_800
    assert counts["refused"] == 0
    assert author.imported(original, "/")["nodes"] == 0, "the second time there is nothing to do"
    roots = ["/apps/core/wcm/components"]
    if "examples" in original.name:
        roots = [
            "/conf/core-components-examples",
            "/content/core-components-examples",
            "/content/dam/core-components-examples",
        ]
    before, now = described(original), dict[str, dict[str, str]]()
    bytes_now = dict[str, bytes]()
    for root in roots:
        out = tmp_path / f"{root.replace('/', '-')}.zip"
        author.run("export", root, out, "--as-package")
        now |= described(out)
        bytes_now |= files(out)
    covered = {
        path: one
        for path, one in before.items()
        if path.startswith(tuple(f"{root}/" for root in roots))
        and one != {"jcr:primaryType": "nt:file"}  # the file itself says so
    }
    assert len(covered) > 2_000
    assert {path: now.get(path) for path in covered} == covered
    assert files(original).items() <= bytes_now.items()


def test_types_values_names_and_order(author: Author, tmp_path: Path) -> None:
    properties = (
        'jcr:primaryType="my:Type" jcr:mixinTypes="[mix:title,mix:language]" plain="a\\\\b" '
        'no="{Boolean}false" number="{Long}-7" ratio="{Double}0.5" odd="{Double}1E9" '
        'when="{Date}2026-11-26T10:00:00.000Z" ref="{Reference}x" list="[a\\,b,,c]" one="[\\0]" '
        'none="[]" longs="{Long}[1,2]" braces="\\{no type}" bracket="\\[x" _x0031_st="1" '
        'lines="a&#xa;b"'
    )
    inner = '<b jcr:primaryType="nt:unstructured"/><a/><_x0032_nd jcr:primaryType="nt:folder"/>'
    inner += '<_xd83d__xde00_ jcr:primaryType="nt:unstructured"/>'
    given = package(
        tmp_path / "in.zip",
        {
            "content/_my_page/.content.xml": docview(properties, inner),
            "content/_my_page/__x_y/.content.xml": PAGE,
            "content/_my_page/a/odd%3fname/.content.xml": PAGE,
        },
    )
    counts = author.imported(given, "/")
    nodes = author.nodes()
    page = nodes["/content/my:page"]
    assert page.type == "my:Type"
    found = json.loads(page.properties)
    assert found.pop(":childOrder") == ["b", "a", "2nd", "\U0001f600"]
    assert found.pop("jcr:mixinTypes") == ["mix:title", "mix:language"]
    hints = {name: found.pop(name) for name in list(found) if name.endswith("@TypeHint")}
    assert hints == {
        "ratio@TypeHint": "Double",
        "odd@TypeHint": "Double",
        "when@TypeHint": "Date",
        "ref@TypeHint": "Reference",
    }
    texts = {"plain": "a\\b", "braces": "{no type}", "bracket": "[x", "lines": "a\nb", "1st": "1"}
    typed = {"no": False, "number": -7, "ratio": 0.5, "odd": "1E9", "ref": "x"}
    lists = {"list": ["a,b", "", "c"], "one": [""], "none": [], "longs": [1, 2]}
    assert found == {**texts, **typed, **lists, "when": "2026-11-26T10:00:00.000Z"}
    assert nodes["/content/my:page/2nd"].type == "folder"
    for path in ("/content/my:page/_x_y/jcr:content", "/content/my:page/a/odd?name/jcr:content"):
        assert nodes[path].type == "nt:unstructured"
    author.run("export", "/content", tmp_path / "out.zip", "--as-package")
    before, now = described(given), described(tmp_path / "out.zip")
    assert before.pop("/content/_my_page/2nd") == {"jcr:primaryType": "nt:folder"}
    assert {path: now.get(path) for path in before} == before
    author.imported(tmp_path / "out.zip", "/copy")
    copied = author.nodes()
    for path, node in nodes.items():
        if path.startswith("/content/"):
            assert copied[f"/copy{path}"].type == node.type
            assert copied[f"/copy{path}"].properties == node.properties
    assert counts["nodes"] == 8


def test_files_their_properties_and_other_binaries(author: Author, tmp_path: Path) -> None:
    nested = docview(
        'jcr:primaryType="nt:file"',
        '<jcr:content jcr:primaryType="nt:resource" jcr:data="{Binary}" jcr:mimeType="image/x"/>',
    )
    other = docview('jcr:primaryType="my:Doc" scan="{Binary}" lost="{Binary}" jcr:mimeType="a/b"')
    given = package(
        tmp_path / "in.zip",
        {
            "content/dam/a.png": b"picture",
            "content/dam/a.png.dir/.content.xml": nested,
            "content/dam/a.png.dir/_jcr_content/_dam_thumbnails/small.png": b"small",
            "content/dam/data.xml": "<data/>",
            "content/dam/broken.xml": "<data",
            "content/dam/page.xml": PAGE,
            "content/dam/doc/.content.xml": other,
            "content/dam/doc/scan.binary": b"scanned",
            "content/dam/_rep_policy.xml": docview('jcr:primaryType="rep:ACL"'),
            "elsewhere/x.txt": "not covered",
            "META-INF/vault/nodetypes.cnd": "<x='y'>",
        },
    )
    result = author.run("import", given, "--json", code=0)
    counts = json.loads(result.stdout)
    assert (counts["refused"], counts["skipped"]) == (0, 4)
    for reason in (
        "access control",
        "does not cover",
        "node types",
        "'lost' is not in the package",
    ):
        assert reason in result.stderr
    nodes = author.nodes()
    picture = nodes["/content/dam/a.png"]
    assert (picture.type, picture.binaries[0].media_type) == ("file", "image/png")
    assert nodes["/content/dam/a.png/jcr:content"].type == "nt:resource"
    assert "/content/dam/a.png/jcr:content/dam:thumbnails/small.png" in nodes
    assert nodes["/content/dam/data.xml"].type == nodes["/content/dam/broken.xml"].type == "file"
    assert nodes["/content/dam/page"].type == "cq:Page"
    [scan] = nodes["/content/dam/doc"].binaries
    assert (scan.name, scan.length, scan.media_type) == ("scan", 7, "a/b")
    author.run("export", "/content", tmp_path / "out.zip", "--as-package")
    author.imported(tmp_path / "out.zip", "/copy")
    copied = author.nodes()
    for path, node in nodes.items():
        if path.startswith("/content/"):
            copy = copied[f"/copy{path}"]
            assert (copy.type, copy.properties) == (node.type, node.properties)
            assert [one.sha256 for one in copy.binaries] == [one.sha256 for one in node.binaries]


def test_the_filter_decides_and_merge_keeps_what_is_there(author: Author, tmp_path: Path) -> None:
    filters = (
        '<workspaceFilter><filter root="/content/a"><exclude pattern="/content/a/not(/.*)?"/>'
        '<exclude pattern=".*/secret" matchProperties="true"/></filter>'
        '<filter root="/content/kept" mode="merge"/><filter root="/content/a/not/so"/>'
        "</workspaceFilter>"
    )
    kept = docview('jcr:primaryType="my:Type" from="{Long}1"')
    texts = {
        "content/a/.content.xml": docview('jcr:primaryType="x" secret="1" title="t"'),
        "content/a/not/.content.xml": PAGE,
        "content/a/not/so/.content.xml": PAGE,
        "content/kept/.content.xml": kept,
        "META-INF/vault/filter.xml": filters,
    }
    author.imported(package(tmp_path / "1.zip", texts), "/")
    texts["content/kept/.content.xml"] = kept.replace("}1", "}2")
    counts = author.imported(package(tmp_path / "2.zip", texts), "/")
    assert (counts["nodes"], counts["unchanged"], counts["bytes"]) == (0, 4, 0)
    nodes = author.nodes()
    assert nodes["/content/a"].properties == '{"title": "t"}'
    assert nodes["/content/a/not"].type == "folder", "it is above what another root covers"
    assert nodes["/content/a/not/so"].type == "cq:Page"
    assert nodes["/content/kept"].properties == '{"from": 1}'


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"content/a/.content.xml": '<!DOCTYPE x [<!ENTITY e "x">]>' + PAGE}, "a DOCTYPE"),
        ({"content/a/.content.xml": '<!DOCTYPE x [<!ATTLIST x y CDATA "z">]>' + PAGE}, "a DOCTYPE"),
        ({"content/a/.content.xml": docview('jcr:primaryType="x" a="\\ud800"')}, "no character"),
        ({"content/a/.content.xml": docview('jcr:primaryType="x" a="\\u0000"')}, "no character"),
        ({"content/a/.content.xml": docview('jcr:primaryType="x" a_xd83d_="y"')}, "half a char"),
        (
            {
                "content/a/.content.xml": docview(
                    'jcr:primaryType="x" a="{Binary}" jcr:mimeType="b&#xf6;&#xa;se"'
                ),
                "content/a/a.binary": "x",
            },
            "pattern",
        ),
        ({"content/a/.content.xml": PAGE[:-5]}, "XML is damaged"),
        ({"content/a/.content.xml": "<other/>"}, "no docview"),
        ({"content/%2e%2e/.content.xml": PAGE}, "segment '..'"),
        ({"content/a/.content.xml": docview('jcr:primaryType="a&#x9;b"')}, "pattern"),
        ({"META-INF/vault/filter.xml": "<workspaceFilter/>"}, "names no root"),
        ({"META-INF/vault/filter.xml": "<!DOCTYPE w><w/>"}, "DOCTYPE"),
        ({"META-INF/vault/filter.xml": "<w>" + "<a/>" * 10_000 + "</w>"}, "more than 10000"),
        ({"META-INF/vault/filter.xml": " " * 1024**2 + "<w/>"}, "more than 1048576"),
        ({"META-INF/vault/filter.xml": '<w><filter root="x"/></w>'}, "is no path"),
        (
            {"META-INF/vault/filter.xml": '<w><filter root="/"/><include pattern="("/></w>'},
            "pattern",
        ),
    ],
)
def test_what_is_damaged_is_refused_and_named(
    author: Author, tmp_path: Path, files: dict[str, str], says: str
) -> None:
    given = package(tmp_path / "in.zip", {**files, "content/good/.content.xml": PAGE})
    result = author.run("import", given, code=1)
    assert says in result.stderr
    assert ("/content/good/jcr:content" in author.nodes()) == ("META-INF" not in str(files))


def test_what_a_package_would_turn_into_something_else_is_named(
    author: Author, tmp_path: Path
) -> None:
    with author.connection() as conn:
        tree.upsert(
            conn,
            [
                *(Node(path, "my:Type", '{"a": 1}') for path in ("/c", "/c/my_ns:x", "/c/f.dir")),
                *(Node(path, "my:Type") for path in ("/c/f.dir/below", "/c/plain")),
                Node("/c/order", "folder", '{":childOrder": ["b", "a"]}'),
            ],
        )
    texts = {"f": "", "x.binary": "", ".content.xml": "", "a.xml": PAGE, "plain.xml": "<a/>"}
    author.imported(_folder(tmp_path / "in", texts), "/c")
    done = author.run("export", "/c", tmp_path / "out.zip", "--as-package", "--json", code=1)
    counts = json.loads(done.stdout)
    left_out = {line.split("'")[1] for line in done.stderr.splitlines() if "left out" in line}
    gone = {
        "/c/my_ns:x",
        "/c/f.dir",
        "/c/f.dir/below",
        "/c/x.binary",
        "/c/.content.xml",
        "/c/a.xml",
    }
    assert (counts["skipped"], left_out) == (len(gone), gone)
    author.imported(tmp_path / "out.zip", "/copy")
    nodes, copied = author.nodes("/c"), author.nodes("/copy/c")
    assert {path.removeprefix("/copy") for path in copied} == set(nodes) - gone
    for path, node in copied.items():
        assert node.properties == nodes[path.removeprefix("/copy")].properties
        assert node.type == nodes[path.removeprefix("/copy")].type


def _folder(folder: Path, texts: dict[str, str]) -> Path:
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


def test_what_would_take_too_much_memory_is_refused(
    author: Author, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = product._MOST_NODES, product._LARGEST
    assert limits == (100_000, 16 * 1024**2)
    nodes, length = at_depth(limits, (1_000, 1024**2))
    monkeypatch.setattr(product, "_MOST_NODES", nodes)
    monkeypatch.setattr(product, "_LARGEST", length)
    many = docview('jcr:primaryType="x"', '<a jcr:primaryType="x"/>' * (nodes + 1))
    long = docview('jcr:primaryType="x"', " " * length)
    deep = docview('jcr:primaryType="x"', "<a>" * 500 + "</a>" * 500)
    far = docview('jcr:primaryType="x"', f"<{'a' * 2_048}/>")
    endless = docview("a='" + "a" * length)
    documents = (many, long, deep, far, endless)
    texts = {f"content/{n}/.content.xml": text for n, text in enumerate(documents)}
    done = author.run("import", package(tmp_path / "in.zip", texts), code=1)
    for says in ("holds more", "has more", "is deeper", "has a path"):
        assert f"its XML {says}" in done.stderr
    assert "it is no docview" in done.stderr
    assert author.nodes() == {}


def test_a_package_may_be_taken_as_files(author: Author, tmp_path: Path) -> None:
    given = package(tmp_path / "in.zip", {"content/a/.content.xml": PAGE})
    author.run("import", given, "--at", "/files", "--as-files")
    assert author.nodes()["/files/jcr_root/content/a/.content.xml"].type == "file"
    (tmp_path / "folder").mkdir()
    assert "--at" in author.run("import", tmp_path / "folder", code=2).stderr
