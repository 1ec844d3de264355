"""Values of JCR properties in and out: what they are is what they stay."""

from pathlib import Path

from packhorse.content import tree
from packhorse.content.node import Node
from tests.harness.author import Author
from tests.harness.filevault import package

JCR = 'xmlns:jcr="http://www.jcp.org/jcr/1.0"'


def test_a_value_of_another_type_is_a_change(author: Author, tmp_path: Path) -> None:
    with author.connection() as conn:
        tree.upsert(conn, [Node("/content/a", "my:Type", '{"x": true, "y": [0]}')])
    said = f'<jcr:root {JCR} jcr:primaryType="my:Type" x="{{Long}}1" y="{{Boolean}}[false]"/>'
    given = package(tmp_path / "in.zip", {"content/a/.content.xml": said})
    assert author.imported(given, "/")["nodes"] == 1
    assert author.nodes()["/content/a"].properties == '{"x": 1, "y": [false]}'
    assert author.imported(given, "/")["nodes"] == 0
