import faulthandler
import gzip
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from peltier_client import cli
from peltier_training.report.page import report_paths

from benchmarks.common.ports import ReservedPort
from tests.support.forked_commands import forked_commands
from tests.support.links import dead_links
from tests.support.server_process import Server

ROOT = Path(__file__).parent.parent
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="the pages' commands call curl")
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md")),
]
# Pages whose commands and Python are run here, top to bottom. A block that is not to be run has no language.
RUN = {
    "README.md",
    "docs/quickstart.md",
    "docs/guides/batches.md",
    "docs/guides/train.md",
    "docs/guides/trainings.md",
    "docs/guides/ranking.md",
    "docs/guides/embeddings.md",
    "docs/guides/entities.md",
    "docs/guides/questions.md",
    "docs/guides/many-tasks.md",
    "docs/guides/protocols.md",
    "docs/guides/publish.md",
    "docs/guides/rollouts.md",
    "docs/guides/score.md",
    "docs/guides/tenants.md",
    "docs/guides/t5.md",
    "docs/operations.md",
}
# Pages whose command trains an adapter, all in one process.
METHODS = sorted(page for page in PAGES if page.startswith("docs/methods/"))


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str):
    """Every relative link of a page names a file or folder that is there, and a heading of it."""
    assert dead_links(ROOT / page) == []


def test_every_page_can_be_reached_from_the_readme():
    """By links, in any number of steps."""
    reached, ahead = set(), {ROOT / "README.md"}
    while ahead:
        page = ahead.pop()
        reached.add(page)
        targets = {page.parent / target for target in re.findall(r"\]\(([^)#]+\.md)", page.read_text())}
        ahead |= {target.resolve() for target in targets if not str(target).startswith("http")} - reached
    assert {ROOT / page for page in PAGES} - reached - {ROOT / "CHANGELOG.md"} == set()


def written(page: str) -> list[str]:
    """What the commands of a page write, below the folder of the repository."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    commands = [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if "peltier " in line]
    paths = [path for line in commands for path in re.findall(r"--(?:output|directory|store)[ =](\S+)", line)]
    artifacts = [Path(path) for path in paths if path.endswith(".safetensors")]
    reports = [str(report) for artifact in artifacts for report in report_paths(artifact)]
    return [path for path in [*paths, *reports] if "://" not in path]


def test_what_the_pages_write_is_ignored_by_git(tmp_path: Path):
    """After the commands of README git shows no untracked artifacts, reports, runs or stores."""
    paths = {path for page in PAGES for path in written(page)} | {"runs/intents-compacter-0/x", ".peltier/registry.db"}
    assert {"intents.safetensors", "intents.report.html", "intents.report.json"} <= paths
    shutil.copy(ROOT / ".gitignore", tmp_path)
    git = [str(shutil.which("git")), "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    names = sorted(path if Path(path).suffix else f"{path}/x" for path in paths)
    done = subprocess.run([*git, "check-ignore", *names], capture_output=True, text=True)
    assert sorted(done.stdout.splitlines()) == names


def blocks(page: str, languages: str = "sh|python") -> list[tuple[str, str]]:
    """Language and text of the blocks of a page that are run."""
    return re.findall(rf"^```({languages})\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)


def test_every_command_of_the_documents_is_run():
    """A page with a block of shell commands must be in `RUN` or `METHODS`."""
    assert {page for page in PAGES if blocks(page, "sh")} == RUN | set(METHODS)


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """A folder in which commands run as in a clone, with data of a few rows, and without writing into this one. The
    processes of `peltier` are forked; tests/training/test_commands.py runs trainings by new interpreters."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for path in (*Path(sys.prefix).iterdir(), *Path(sys.prefix, "bin").iterdir()):
        if path.name not in ("bin", "peltier"):
            (tmp_path / ".venv" / path.relative_to(sys.prefix)).symlink_to(path)
    (tmp_path / "examples").mkdir()
    for name in ("adapters", "backbones"):
        (tmp_path / "examples" / name).symlink_to(ROOT / "examples" / name)
    for data in ("banking77", "questions"):
        (tmp_path / "examples/data" / data).mkdir(parents=True)
        for name in ("train", "validation"):
            file = f"examples/data/{data}/{name}.jsonl.gz"
            with gzip.open(ROOT / file, "rt") as lines:
                rows = list(itertools.islice(lines, 32))
            with gzip.open(tmp_path / file, "wt") as copy:
                copy.writelines(rows)
    shutil.copy(ROOT / "examples/data/banking77/labels.json", tmp_path / "examples/data/banking77")
    with forked_commands() as program:
        (tmp_path / ".venv/bin/peltier").symlink_to(program)
        yield tmp_path


def run_page(page: str, clone: Path, url: str, epochs: int | None = None) -> str:
    """The output of a page's blocks in one shell, which ask the server at `url`; fails where one of them fails. A
    training takes as many epochs as the page says, or `epochs`."""
    parts = [f"python - <<'END'\n{text}END\n" if kind == "python" else text for kind, text in blocks(page)]
    # A line break, because the answers of the server have none.
    script = re.sub(r"(?m)^(curl.*)$", r"\1; echo", "".join(parts).replace("\\\n", " "))
    script = script.replace("http://127.0.0.1:8000", url)
    if epochs is not None:
        script = re.sub(r"--epochs \d+", f"--epochs {epochs}", script)
    path = f"{clone / '.venv/bin'}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PELTIER_URL": url}
    ending = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
    command = ["/bin/bash", "-eu", "-c", ending + script]
    # A test runs several pages, which beside other tests take longer than a test that hangs may.
    faulthandler.cancel_dump_traceback_later()
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, timeout=1200, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    assert '"error"' not in done.stdout
    return done.stdout


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """As `make serve` starts it, by a new interpreter."""
    store = ("--store", str(tmp_path / "store"), "--publish", str(ROOT / "examples/adapters"))
    started = Server(tmp_path / "log", "--backbone", "minilm", *store, under=("env",))
    try:
        yield started.wait_until_ready()
    finally:
        started.end()


# The commands themselves are tested where they live; pages that train nothing stay.
@pytest.mark.slow
@needs_curl
def test_the_commands_of_the_first_pages_run_as_written(server: Server, clone: Path):
    """Adapters that are trained, published and asked. The ranking and the questions, of which no right answer is
    expected, take one epoch; each embedding takes three, because the rate of its first step is 0."""
    assert re.search("intents.*version 1", run_page("docs/quickstart.md", clone, server.url))
    run_page("docs/guides/train.md", clone, server.url)
    assert '"results":[{"index":' in run_page("docs/guides/ranking.md", clone, server.url, epochs=1)
    embeddings = run_page("docs/guides/embeddings.md", clone, server.url, epochs=3)
    assert '"indices":[' in embeddings
    assert '"relevance_score":' in embeddings
    assert "<Adapter support: compacter on minilm, " in run_page("docs/guides/python.md", clone, server.url)
    assert "0 12 person Ada Lovelace" in run_page("docs/guides/entities.md", clone, server.url)
    assert (clone / "lora-intents.report.html").exists()
    assert '"predictions":[{"answer":"' in run_page("docs/guides/questions.md", clone, server.url, epochs=1)


@pytest.mark.slow
@needs_curl
def test_the_commands_of_the_serving_guides_run_as_written(server: Server, clone: Path):
    """The front page's question, a comparison, versions and their aliases, then keys and quotas, which close the
    server."""
    assert '"label":"card_arrival"' in run_page("README.md", clone, server.url)
    assert "[b'card_arrival' b'topping_up_by_card'] (2, 77)" in run_page("docs/guides/protocols.md", clone, server.url)
    assert "banking77-adamix lost_or_stolen_card" in run_page("docs/guides/many-tasks.md", clone, server.url)
    assert '"better":"banking77@2 is better: accuracy 1.0000' in run_page("docs/guides/score.md", clone, server.url)
    assert "banking77 is pinned by " in run_page("docs/operations.md", clone, server.url)
    assert '"status":"cancelled"' in run_page("docs/guides/trainings.md", clone, server.url)
    assert re.search(
        '"request_id":"letter-1","row":1,.*"counted":true', run_page("docs/guides/rollouts.md", clone, server.url)
    )
    assert "completed BatchRequestCounts(completed=2, failed=0, total=2)" in run_page(
        "docs/guides/batches.md", clone, server.url
    )
    output = run_page("docs/guides/publish.md", clone, server.url)
    assert re.search(r"^x-adapter-version: [12]", output, flags=re.MULTILINE)
    audit = server.client.get("/v1/audit", params={"limit": 11}).json()["records"]
    assert [record["action"] for record in reversed(audit)] == [
        *("set_alias", "publish", "set_alias", "set_alias", "set_alias", "rollback_alias"),
        *("set_alias", "deprecate", "delete_alias", "delete_version", "undelete"),
    ]
    output = run_page("docs/guides/tenants.md", clone, server.url)
    assert "peltier_tenant_served_tokens_total" in output
    assert server.client.get("/info").status_code == 401


@pytest.mark.slow
@needs_curl
def test_the_commands_of_the_guide_to_t5_run_as_written(clone: Path):
    """A text2text adapter is trained, published on a second server and writes texts."""
    page, local = (ROOT / "docs/guides/t5.md").read_text(), clone / "t5.md"
    with ReservedPort() as port:
        local.write_text(page.replace("8001", str(port.number)))
        run_page(str(local), clone, f"http://127.0.0.1:{port.number}", epochs=1)


# tests/training trains every method, and tests/training/test_train.py runs the command.
@pytest.mark.slow
def test_commands_of_the_methods_run(clone: Path, monkeypatch: pytest.MonkeyPatch):
    """The command of each page of docs/methods, on a few rows; methods that are served leave an artifact."""
    monkeypatch.chdir(clone)
    for page in METHODS:
        ((_, command),) = blocks(page)
        program, *arguments = shlex.split(command.replace("\\\n", " "))
        assert program == ".venv/bin/peltier"
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code, page
        artifact = clone / "intents.safetensors"
        assert artifact.exists() == ("baselines" not in page), page
        artifact.unlink(missing_ok=True)
        (clone / "intents.report.json").unlink()
