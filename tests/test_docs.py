import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from peltier_adapters.manifest import Manifest
from peltier_training.report.files import report_paths

from tests.server_process import Server

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


def written(page: str) -> list[str]:
    """What the commands of a page write, below the folder of the repository."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    commands = [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if "peltier " in line]
    paths = [path for line in commands for path in re.findall(r"--(?:output|directory|store)[ =](\S+)", line)]
    artifacts = [Path(path) for path in paths if path.endswith(".safetensors")]
    reports = [str(report) for artifact in artifacts for report in report_paths(artifact)]
    return [path for path in [*paths, *reports] if "://" not in path]


def test_what_the_pages_write_is_ignored_by_git(tmp_path: Path):
    """Whoever follows README has nothing untracked in the clone: artifacts, reports, runs and the server's store."""
    paths = {path for page in PAGES for path in written(page)} | {"runs/intents-compacter-0/x", ".peltier/registry.db"}
    assert {"intents.safetensors", "intents.report.html", "intents.report.json"} <= paths
    shutil.copy(ROOT / ".gitignore", tmp_path)
    git = [str(shutil.which("git")), "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    names = sorted(path if Path(path).suffix else f"{path}/x" for path in paths)
    done = subprocess.run([*git, "check-ignore", *names], capture_output=True, text=True)
    assert sorted(done.stdout.splitlines()) == names


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page's lines call curl")
def test_the_lines_of_the_serving_page_run_as_written(tmp_path: Path):
    """Top to bottom in one shell, against a server with the examples; each says what the page says of it."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/serving.md").read_text(), flags=re.DOTALL)
    lines = "".join(block for block in blocks if "peltier serve" not in block)
    store = ("--store", str(tmp_path / "store"), "--publish", str(ROOT / "examples/adapters"))
    server = Server(tmp_path / "log", "--backbone", "minilm", *store)
    try:
        server.wait_until_ready()
        # A line break, because the answers of the server have none.
        script = re.sub(r"(?m)^(curl.*)$", r"\1; echo", lines.replace("http://127.0.0.1:8000", server.url))
        done = subprocess.run(["/bin/bash", "-eu", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
        audit = server.client.get("/v1/audit", params={"limit": 13}).json()["records"]
    finally:
        server.end()
    assert done.returncode == 0, done.stderr
    assert '"error"' not in done.stdout
    assert re.search(r"^x-adapter-version: [12]", done.stdout, flags=re.MULTILINE)
    assert [record["action"] for record in reversed(audit)] == [
        *("set_alias", "publish", "set_alias", "set_alias", "set_alias", "rollback_alias"),
        *("set_alias", "deprecate", "delete_alias", "delete_version", "undelete", "create_tenant", "update_tenant"),
    ]
