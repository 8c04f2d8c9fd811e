from peltier_store.blobs.blobs import Blobs
from peltier_store.blobs.location import locate
from peltier_store.registry.extensions.registry import Registry
from peltier_store.verification import verify_store

from tests.adapters_store.store.conftest import manifest_of, upload

TENANT = "default"


async def test_a_sound_store_has_no_problems(registry, location, bert, make_artifact):
    """Live and deleted versions with readable bytes are counted; an unneeded blob is an orphan."""
    blobs, data = Blobs.open(location), make_artifact(bert, proved=False)
    for name in ("a", "b"):
        await upload(registry, blobs, data, name=name, manifest=manifest_of(data))
    await registry.delete_adapter(TENANT, "b", actor="test")
    orphan = await blobs.put(b"orphan")
    verdict = await verify_store(registry, blobs)
    assert (verdict.num_versions, verdict.num_blobs, verdict.blob_bytes) == (2, 1, len(data))
    assert verdict.problems == []
    assert [(entry.digest, entry.size_bytes) for entry in verdict.orphans] == [(orphan, 6)]


async def test_everything_that_is_wrong_is_said(registry, location, bert, make_artifact):
    """A missing blob, a damaged one, one that is not an artifact and a wrong record are each one sentence that names
    the version."""
    blobs = Blobs.open(location)
    whole = make_artifact(bert, seed=1, proved=False)
    missing, damaged = [await upload(registry, blobs, make_artifact(bert, seed=seed, proved=False)) for seed in (2, 3)]
    await upload(registry, blobs, b"no artifact")
    await upload(registry, blobs, whole, manifest=manifest_of(make_artifact(bert, name="other", proved=False)))
    await upload(registry, blobs, whole, name="sound", manifest=manifest_of(whole))
    await blobs.delete(missing)
    await locate(location).store.put_async(damaged.replace(":", "/"), whole)
    verdict = await verify_store(registry, blobs)
    problems = {problem.partition(" ")[0]: problem.partition(" ")[2] for problem in verdict.problems}
    assert problems.keys() == {f"default:demo@{number}" for number in (1, 2, 3, 4)}
    assert f"has lost its bytes: the blob store {locate(location).name!r} holds no" in problems["default:demo@1"]
    assert "has lost its bytes: the blob sha256:" in problems["default:demo@2"]
    assert "is not a readable artifact" in problems["default:demo@3"]
    assert problems["default:demo@4"] == "has a manifest that differs from its record"
    assert all("\n" not in problem for problem in verdict.problems)


async def test_examples_and_checkpoints_are_checked(registry: Registry, location: str) -> None:
    """They are no orphans, and one that is missing is a problem."""
    blobs = Blobs.open(location)
    digest = await blobs.put(b"{}")
    reservation = await registry.reserve(digest)
    await registry.files.add(
        TENANT, reservation, name="a.jsonl", purpose="fine-tune", size_bytes=2, num_rows=1, actor="test"
    )
    verdict = await verify_store(registry, blobs)
    assert (verdict.problems, verdict.orphans) == ([], [])
    await blobs.delete(digest)
    (problem,) = (await verify_store(registry, blobs)).problems
    assert problem.startswith("a file or a training has lost its bytes: ")
