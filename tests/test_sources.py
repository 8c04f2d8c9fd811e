"""What all sources and documents must keep to, read from the folders of the repository without starting a program."""

import os
import re
from fnmatch import fnmatch
from pathlib import Path

from docs.site.sources import navigation
from tests.support.links import is_there

ROOT = Path(__file__).parent.parent
SOURCES = ("*.py", "*.c", "*.h", "*.js", "*.sh", "*.toml", "*.cfg", "*.yml", "Makefile", "Dockerfile", ".ci/*")
# Folders that builds, installations and trainings make, wherever they are, and at the root; so do those with a dot.
MADE, MADE_AT_ROOT = {"__pycache__", "node_modules", "dist", "runs"}, {"site", "build"}
# Numbers of statements in documents that are not here.
STRANGE = re.compile(r"\bQ-[A-Z]\d+|(?<![\w./-])[\w-]+\.md (?:\d|section)")
# "so many" without a comparison, "what cannot be answered", a comment "Of each row the ...": say what the thing is.
RIDDLE = re.compile(
    r"\bso many\b(?! (?:that|as|more))|\bwhat cannot be\b|/\* Of (?:a|an|the|each|two)\b", re.IGNORECASE
)
# Records of measurements; the changes of versions.
RECORDS = {"docs/results.md", "CHANGELOG.md"}


def texts(*patterns: str) -> dict[str, str]:
    """The files whose paths have one of the patterns, by path; those that are not committed yet are among them."""
    found = dict[str, str]()
    for place, folders, names in os.walk(ROOT):
        folder, made = Path(place).relative_to(ROOT), MADE | (MADE_AT_ROOT if Path(place) == ROOT else set())
        folders[:] = [name for name in folders if name not in made and (name[0] != "." or name == ".ci")]
        paths = [(folder / name).as_posix() for name in names]
        matching = [path for path in paths if any(fnmatch(path, pattern) for pattern in patterns)]
        found |= {path: (ROOT / path).read_text() for path in matching}
    return dict(sorted(found.items()))


def test_the_files_that_are_read_are_those_of_the_repository():
    """Of every package and every language, and none that was installed, built or made by a run."""
    found = texts(*SOURCES, "*.md").keys()
    assert {path.split("/")[0] for path in found} >= {
        *("README.md", "Makefile", "Dockerfile", "pyproject.toml", ".ci", "docs", "examples", "deploy", "tests"),
        *("adapters_store", "backbone", "benchmarks", "client", "console", "server", "training"),
    }
    assert {Path(path).suffix for path in found} >= {".py", ".c", ".h", ".js", ".sh", ".toml", ".yml", ".md"}
    assert [path for path in found if re.search(r"(^|/)(\.venv|\.git/|node_modules|site-packages)", path)] == []


def test_code_cites_only_what_is_in_the_repository():
    """Every page that is named in code exists, with the heading behind `#`, or is built; nothing names a document kept
    elsewhere."""
    built = {str(page) for page in navigation(ROOT) if not (ROOT / page).exists()}
    wrong = []
    for path, whole in texts(*SOURCES).items():
        # The patterns take half a second for all lines.
        text = "\n".join(line for line in whole.splitlines() if ".md" in line or "Q-" in line)
        cited = re.findall(r"(?<![\w./-])((?:docs/)[\w/-]+\.md(?:#[\w-]+)?)", text)
        wrong += [f"{path}: {target}" for target in {*cited} - built if not is_there(ROOT / "README.md", target)]
        wrong += [f"{path}: {found}" for found in STRANGE.findall(text)]
    assert wrong == []


def test_documents_and_comments_in_c_have_no_riddles():
    """The few patterns that readers stumbled over most: relative numbers without a noun, inverted sentences."""
    files = texts("*.md", "*.c", "*.h")
    found = [(path, one.group()) for path in files.keys() - RECORDS for one in RIDDLE.finditer(files[path])]
    assert found == []


def test_example_adapters_are_small_and_made_by_the_committed_script():
    """Together under 5 MB, one for each call of examples/train.sh."""
    script = (ROOT / "examples/train.sh").read_text()
    trained = re.findall(r"^train (\S+) \S+ (\S+)", script, flags=re.MULTILINE)
    adapters = {path.stem: path for path in (ROOT / "examples/adapters").glob("*.safetensors")}
    assert sorted(adapters) == sorted(name for name, _ in trained)
    assert {preset for _, preset in trained} >= {"compacter", "unipelt-apl", "adamix"}
    assert sum(path.stat().st_size for path in adapters.values()) < 5_000_000
