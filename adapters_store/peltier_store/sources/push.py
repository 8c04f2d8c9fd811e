"""Pushes an artifact with its model card to a repository of the Hugging Face hub."""

import re
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi
from peltier_adapters.artifact.manifest import read_header
from peltier_adapters.errors import AdapterError
from peltier_adapters.hub.address import HubRepository
from peltier_adapters.hub.snapshot import as_hub_errors

from peltier_store.sources.card import create_card

_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_DEFAULT_BRANCH = "main"
# hf_xet's sentence for a hub that has no xet storage, such as a mirror.
_NO_XET = re.compile("404 Not Found.*/xet-write-token/")


@dataclass(frozen=True)
class PushOptions:
    """Whether a new repository is private, whether the card is written, and the backbone's repository on the hub."""

    private: bool = False
    card: bool = True
    base_model: str | None = None


def push_artifact(path: Path, target: HubRepository, options: PushOptions) -> HubRepository:
    """Commits NAME.safetensors and README.md to a branch, in one commit; returns the repository at that commit.

    Makes a missing repository and a missing branch. Raises AdapterError."""
    if target.revision is not None and _COMMIT.fullmatch(target.revision):
        raise AdapterError(f"the target {target} names a commit; push to a branch, such as hf://{target.name}@main")
    data = path.read_bytes()
    manifest, _ = read_header(data)
    files = {f"{manifest.name}.safetensors": data}
    if options.card:
        files["README.md"] = str(create_card(manifest, target.name, options.base_model)).encode()
    api = HfApi(library_name="peltier")
    with as_hub_errors(f"{path} cannot be pushed to {target}"):
        # The visibility of an existing repository stays.
        api.create_repo(target.name, private=options.private, exist_ok=True)
        if target.revision not in (None, _DEFAULT_BRANCH):
            api.create_branch(target.name, branch=str(target.revision), exist_ok=True)
        commit = partial(
            api.create_commit, target.name, commit_message=f"Publish {manifest.name}", revision=target.revision
        )
        try:
            done = commit([CommitOperationAdd(name, content) for name, content in files.items()])
        except ConnectionError as error:
            if _NO_XET.search(str(error)) is None:
                raise
            # huggingface_hub uploads by HTTP what it cannot read as bytes.
            done = commit([CommitOperationAdd(name, BytesIO(content)) for name, content in files.items()])
    return HubRepository(target.name, done.oid)
