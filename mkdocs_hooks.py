"""Hooks of the website."""

import re
from typing import Any


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Lead links of notebooks to pages of the site; on GitHub they are paths from the folder ``notebooks`` to files."""
    if page.file.src_uri.startswith("tutorial/"):
        html = re.sub(r'href="\.\./docs/([^"#]+)\.md', r'href="../\1.html', html)
        html = re.sub(r'href="(\w+)\.ipynb', r'href="\1.html', html)
    return html
