"""The website of the documentation, as the README's command builds and serves it."""

import json
import re
import shlex
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from markdown_it import MarkdownIt

from tests.browser import CHROMIUM, Page, visit
from tests.programs import PATIENCE_S, started

pytest.importorskip("mkdocs", reason="needs the extra [docs]")
bs4 = pytest.importorskip("bs4", reason="needs the extra [docs]")
pytestmark = pytest.mark.pages

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
[LINE] = re.findall(r"^.* && \.venv/bin/mkdocs serve$", (ROOT / "README.md").read_text(), re.M)
PAGES = sorted(path.relative_to(DOCS) for path in (*DOCS.rglob("*.md"), *(DOCS / "tutorial").glob("*.ipynb")))
#: Markdown and reStructuredText that a page shows as text.
SYNTAX = re.compile(
    r"`|\*\*|\]\(|\]\[\w|:::|!!!|>>>|:(class|meth|func|attr|mod):|\|\s*:?-{3}|(^|\n)\s*([-*|]|\d+\.|#+) ", re.M
)
#: Elements that a page of the site has as on GitHub.
ELEMENTS = (
    "h1",
    "h2",
    "h3",
    "pre",
    "p",
    "ul",
    "ol",
    "li",
    "tr",
    "td",
    "blockquote",
    "a",
    "img",
    "code",
    "em",
    "strong",
)


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of the site, which is built strictly: a warning ends the command."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = LINE.rpartition("&& ")[2].replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    options = ("--dev-addr", address, "--no-livereload")
    with started([*shlex.split(command), *options], cwd=ROOT, stdout=subprocess.DEVNULL) as server:
        assert server.stderr is not None
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                urlopen(f"http://{address}/index.html").close()
            except URLError:
                assert server.poll() is None, server.stderr.read()
                time.sleep(0.2)
            else:
                break
        yield f"http://{address}"


def article(site: str, page: Path) -> Any:
    """Return the content of a page of the site, without the links that the theme adds to headings and code."""
    with urlopen(f"{site}/{page.with_suffix('.html')}") as response:
        [content] = bs4.BeautifulSoup(response.read(), "html.parser").find_all("article")
    for added in content.select("a.headerlink, a.md-content__button, .highlight a, .highlight .filename"):
        added.decompose()
    return content


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_all_markdown_is_rendered(site: str, page: Path) -> None:
    content = article(site, page)
    for code in content.find_all(["pre", "code", "script", "style"]):
        code.decompose()
    paragraphs = [element.get_text() for element in content.find_all(["p", "li", "td", "dd"])]
    assert paragraphs
    assert [text for text in paragraphs if SYNTAX.search(text)] == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.suffix == ".md" and "reference" not in page.parts], ids=str
)
def test_a_page_has_the_same_elements_as_on_github(site: str, page: Path) -> None:
    """GitHub's Markdown is CommonMark with tables, which differs from the site's in lists, for example."""
    markdown = MarkdownIt("commonmark").enable("table").render((DOCS / page).read_text())
    shown = [
        Counter(element.name for element in content.find_all(ELEMENTS))
        for content in (article(site, page), bs4.BeautifulSoup(markdown, "html.parser"))
    ]
    assert shown[0] == shown[1]


def test_links_of_notebooks_lead_to_pages(site: str) -> None:
    for page in [page for page in PAGES if page.suffix == ".ipynb"]:
        for link in article(site, page).find_all("a", href=re.compile(r"^(?!https?:|#)")):
            urlopen(f"{site}/tutorial/{link['href'].partition('#')[0]}").close()


#: A search -> page that should be among the first five.
SEARCHES = {
    "GNN": "guides/network.html",
    "PyG": "guides/network.html",
    "Gantt": "guides/report.html",
    "event log": "guides/event-logs.html",
    "srpt-tuned": "guides/srpt.html",
    "moving delay": "how/simulator.html",
}
#: Types a text into the search field.
SEARCH = """
document.querySelector("#__search").checked || document.querySelector("#__search").click();
document.querySelector(".md-search__input").value = {text};
document.querySelector(".md-search__input").dispatchEvent(new Event("keyup", {{bubbles: true}}));
"""
FOUND = "Array.from(document.querySelectorAll('.md-search-result__item > a')).slice(0, 5).map(a => a.href)"


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_search_finds_the_page_that_answers(site: str, tmp_path: Path) -> None:
    found = {}

    async def search(page: Page) -> None:
        for text in SEARCHES:
            await page.send("Page.navigate", url=f"{site}/index.html")
            await page.until(
                "document.querySelector('.md-search-result__meta')?.innerText === 'Type to start searching'"
            )
            await page.run(SEARCH.format(text=json.dumps(text)))
            await page.until(f"{FOUND}.length")
            found[text] = [link.partition("?")[0] for link in await page.run(FOUND)]

    visit(DOCS / "index.md", search, tmp_path)
    assert {text: pages for text, pages in found.items() if f"{site}/{SEARCHES[text]}" not in pages} == {}
