import json
import re
from pathlib import Path

import pytest
from peltier_adapters.manifest import Manifest

ROOT = Path(__file__).parent.parent
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md")),
]


def test_the_published_schema_is_the_manifest_that_is_read():
    """docs/artifact.schema.json is what the code accepts, not what it once accepted."""
    assert json.loads((ROOT / "docs/artifact.schema.json").read_text()) == Manifest.model_json_schema()


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str):
    """Every relative link of a page names a file or folder that is there."""
    path = ROOT / page
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text())
    local = [target for target in targets if not target.startswith("http")]
    assert [target for target in local if not (path.parent / target).exists()] == []


def test_example_adapters_are_small_and_made_by_the_committed_script():
    """Together under 5 MB, one for each call of examples/train.sh."""
    script = (ROOT / "examples/train.sh").read_text()
    trained = re.findall(r"^train (\S+) \S+ (\S+)", script, flags=re.MULTILINE)
    adapters = {path.stem: path for path in (ROOT / "examples/adapters").glob("*.safetensors")}
    assert sorted(adapters) == sorted(name for name, _ in trained)
    assert {preset for _, preset in trained} >= {"compacter", "unipelt-apl", "adamix"}
    assert sum(path.stat().st_size for path in adapters.values()) < 5_000_000
