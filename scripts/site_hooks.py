"""What mkdocs.yml can not say: headings are named as GitHub names them, which links rely on."""

import re
from typing import Any


def slug(text: str, separator: str) -> str:
    """The name of a heading."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", separator)


def on_config(config: Any) -> Any:
    """Called by mkdocs."""
    config["mdx_configs"].setdefault("toc", {}).update(slugify=slug, permalink=True)
    return config
