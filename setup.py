"""Make the readme of the distribution: the package index knows no other file, so links become addresses."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent


def with_addresses(readme: str) -> str:
    """Return the text of README.md with addresses in the repository instead of paths, without invisible marks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [version] = re.findall(
        r'^__version__ = "(.*)"$', (ROOT / "decima" / "__init__.py").read_text("utf-8"), re.M
    )
    repository = project["urls"]["Repository"]
    readme = re.sub(r"<!--.*?-->", "", readme)
    readme = re.sub(r"(!\[[^]]*\]\()(?!https?:)", rf"\g<1>{repository}/raw/v{version}/", readme)
    return re.sub(r"((?<!!)\[[^]]*\]\()(?!https?:|#)", rf"\g<1>{repository}/blob/v{version}/", readme)


setup(
    long_description=with_addresses((ROOT / "README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
