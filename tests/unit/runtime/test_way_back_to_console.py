"""Pages of other services lead back to the console where they are told its address."""

from pathlib import Path

from packhorse.runtime.pages.rendering import Pages


def test_pages_lead_back_once_they_know_where_the_console_is() -> None:
    pages = Pages(Path(__file__).parent, "/pages/topology")
    assert "← Console" not in pages.rendered("sign_in.html", next="", wrong="", other_way="")
    pages.lead_back_to("https://console.example/")
    found = pages.rendered("sign_in.html", next="", wrong="", other_way="")
    assert 'href="https://console.example/pages/overview"' in found
