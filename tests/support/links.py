"""Links between the pages of the documents."""

import re
from pathlib import Path


def dead_links(page: Path) -> list[str]:
    """The relative links of a page that name a file or folder that does not exist, or a heading that a page lacks."""
    targets = re.findall(r"\]\(([^)]+)\)", page.read_text())
    return [target for target in targets if not target.startswith("http") and not is_there(page, target)]


def is_there(page: Path, target: str) -> bool:
    """Whether the file of a link exists, and the heading it names."""
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    return file.exists() and (not anchor or file.suffix != ".md" or anchor in anchors(file))


def anchors(page: Path) -> set[str]:
    """What a link may name behind `#`: GitHub's names of the headings, and the page's own."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    named = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return named | set(re.findall(r'<a id="([^"]+)">', text))
