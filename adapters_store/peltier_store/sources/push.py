"""Pushes an artifact with its model card to a repository of the Hugging Face hub."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi
from peltier_adapters.artifact.manifest import read_header
from peltier_adapters.errors import AdapterError
from peltier_adapters.hub.address import HubRepository
from peltier_adapters.hub.download import as_hub_errors, seconds_for
from peltier_adapters.limited_process import Limits, answer, run

from peltier_store.sources.card import create_card

_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_DEFAULT_BRANCH = "main"
# hf_xet's sentence for a hub that has no xet storage, such as a mirror.
_NO_XET = re.compile("404 Not Found.*/xet-write-token/")


_MODULE = "peltier_store.sources.push"


@dataclass(frozen=True)
class PushOptions:
    """Whether a new repository is private, whether the card is written, and the backbone's repository on the hub."""

    private: bool = False
    card: bool = True
    base_model: str | None = None


def push_artifact(path: Path, target: HubRepository, options: PushOptions) -> HubRepository:
    """Commits NAME.safetensors and README.md to a branch, in one commit; returns the repository at that commit.

    Makes a missing repository and a missing branch. Raises AdapterError, also if the hub does not answer in time."""
    if target.revision is not None and _COMMIT.fullmatch(target.revision):
        raise AdapterError(f"the target {target} names a commit; push to a branch, such as hf://{target.name}@main")
    read_header(path.read_bytes())
    job = {"path": str(path.absolute()), "name": target.name, "revision": target.revision, **asdict(options)}
    return HubRepository(target.name, run(_MODULE, job, f"the push to {target}", os.environ))


def commit(job: Mapping[str, Any], apply: Callable[[Limits], None] = Limits.apply) -> str:
    """Pushes the artifact of a job, and returns the commit."""
    path, target = Path(job["path"]), HubRepository(job["name"], job["revision"])
    data = path.read_bytes()
    apply(Limits(seconds_for(len(data))))
    manifest, _ = read_header(data)
    files = {f"{manifest.name}.safetensors": data}
    if job["card"]:
        files["README.md"] = str(create_card(manifest, target.name, job["base_model"])).encode()
    with as_hub_errors(f"{path} cannot be pushed to {target}"):
        return _commit(target, manifest.name, files, private=job["private"])


def _commit(target: HubRepository, name: str, files: Mapping[str, bytes], *, private: bool) -> str:
    api = HfApi(library_name="peltier")
    # The visibility of an existing repository stays.
    api.create_repo(target.name, private=private, exist_ok=True)
    if target.revision not in (None, _DEFAULT_BRANCH):
        api.create_branch(target.name, branch=str(target.revision), exist_ok=True)
    send = partial(api.create_commit, target.name, commit_message=f"Publish {name}", revision=target.revision)
    try:
        return send([CommitOperationAdd(name, content) for name, content in files.items()]).oid
    except ConnectionError as error:
        if _NO_XET.search(str(error)) is None:
            raise
        # huggingface_hub uploads by HTTP what it cannot read as bytes.
        return send([CommitOperationAdd(name, BytesIO(content)) for name, content in files.items()]).oid


if __name__ == "__main__":
    answer(commit)
