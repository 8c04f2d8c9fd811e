"""The backbone as a task of embeddings, for checkpoints of sentence-transformers."""

import json
import shutil
from pathlib import Path

import httpx2
import pytest
import torch
from peltier_backbone.load import load_backbone
from peltier_client import AdapterNotFound, Client
from peltier_server.inference.backbone_task import BackboneTask

from tests.server.conftest import Listen


def _save(bert_directory: Path, directory: Path, *modules: str) -> None:
    """A checkpoint with a pooling by the mean, and the `modules` after it."""
    shutil.copytree(bert_directory, directory, dirs_exist_ok=True)
    kinds = ["Transformer", "Pooling", *modules]
    listed = [
        {"idx": n, "name": str(n), "path": f"{n}_{kind}" if n else "", "type": f"sentence_transformers.models.{kind}"}
        for n, kind in enumerate(kinds)
    ]
    (directory / "modules.json").write_text(json.dumps(listed))
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))


def test_a_backbone_with_a_dense_module_embeds_no_texts(listen: Listen, bert_directory: Path, tmp_path: Path) -> None:
    """Its vectors would not be those of sentence-transformers. The module is named, and no list has the task."""
    _save(bert_directory, tmp_path, "Dense", "Normalize")
    with listen(backbone=str(tmp_path)) as other, Client(other.url) as own:
        rule = (
            "^'_backbone' does not compute the module '2_Dense' .sentence_transformers.models.Dense. of this server's"
        )
        with pytest.raises(AdapterNotFound, match=rule):
            own.embed("_backbone", "good")
        answer = httpx2.post(f"{other.url}/v1/embeddings", json={"model": "_backbone", "input": "good"}, timeout=30)
        assert answer.status_code == 404
        assert "'2_Dense'" in answer.json()["error"]["message"]
        assert httpx2.get(f"{other.url}/v1/models", timeout=30).json()["data"] == []


# Slow, because sentence-transformers takes seconds to import; the test above has files in its format.
@pytest.mark.slow
def test_sentence_transformers_own_files_are_read(bert_directory: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    modules = [Transformer(str(bert_directory)), Pooling(48, "mean")]
    SentenceTransformer(modules=[*modules, Normalize()]).save(str(tmp_path / "plain"))
    SentenceTransformer(modules=[*modules, Dense(48, 48, activation_function=torch.nn.Tanh())]).save(
        str(tmp_path / "dense")
    )
    assert BackboneTask.refusal(load_backbone(str(tmp_path / "plain")).config) is None
    refusal = BackboneTask.refusal(load_backbone(str(tmp_path / "dense")).config)
    assert refusal is not None
    assert "'2_Dense'" in refusal
