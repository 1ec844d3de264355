"""Links of the documentation, in the repository: their files and anchors are there."""

from tests.harness.pages import ROOT, anchors, every_page, links


def test_every_link_leads_to_a_file_and_a_heading_that_are_there() -> None:
    dead = []
    for page in every_page():
        for link in links(page):
            target, _, anchor = link.partition("#")
            if ":" in target:
                continue
            file = (page.parent / target).resolve() if target else page
            if not file.exists() or (anchor and anchor not in anchors(file)):
                dead.append(f"{page.relative_to(ROOT)}: {link}")
    assert dead == []
