import subprocess
import sys

import pytest

IMPORT_ALL = """
import importlib, pathlib, pkgutil, sys, warnings
sys.modules["rfc3987_syntax"] = None  # jsonschema, which Ray imports, would build parsers with it for 2 s
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray Serve uses what pydantic has deprecated
    import ray.serve.experimental.consistent_hash_router
for top in ("backbone", "adapters", "store", "server", "training", "client"):
    package = importlib.import_module(f"peltier_{top}")
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        is_code = pathlib.Path(found.module_finder.path, found.name.rpartition(".")[2]).with_suffix(".py").exists()
        if is_code and ".migrations." not in found.name and not found.name.endswith("__main__"):
            importlib.import_module(found.name)
"""


SERVE = """
import importlib.abc, sys
from pathlib import Path

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Banks
from peltier_backbone.load import load_backbone
import peltier_server.app, peltier_server.cli, peltier_server.service

assert "ray" not in sys.modules
backbone = load_backbone("minilm")
artifact = read_artifact(Path("examples/adapters/banking77.safetensors").read_bytes(), backbone)
(output,) = forward(backbone, [Row(backbone.tokenizer.encode("a good film"), Banks(backbone).add(artifact))])
print(len(output.logits))
"""
# What the extra training installs, and the package of MiniLM's weights.
OF_TRAINING = (
    "accelerate", "grpc", "matplotlib", "nltk", "rouge_score", "sacrebleu", "scipy", "sentence_transformers", "sklearn",
    "tensorboard", "transformers",
)  # fmt: skip


def test_serving_needs_nothing_of_training() -> None:
    """`make serve` installs none of these. Neither the command nor the app imports a module of Ray."""
    code = SERVE.format(missing=OF_TRAINING)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("77\n", "")


BODIES = """
import sys
import peltier_client.errors, peltier_client.protocol.adapters

loaded = sorted(name for name in sys.modules if name.startswith(("peltier_client.", "httpx")))
assert loaded == {loaded!r}, loaded
from peltier_client import *

assert Client.__module__ == "peltier_client.synchronous.client"
assert AdapterNotFound is peltier_client.errors.AdapterNotFound
assert set(peltier_client.__all__) <= set(dir(peltier_client))
assert not hasattr(peltier_client, "nothing")
"""


def test_bodies_and_errors_load_no_client() -> None:
    """A server imports them. Every public name is still there for who asks for it."""
    loaded = [
        "errors",
        "protocol",
        *(f"protocol.{name}" for name in ("adapters", "aliases", "names", "predict", "wire")),
    ]
    code = BODIES.format(loaded=[f"peltier_client.{name}" for name in loaded])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


ROUTE = """
import sys
import peltier_server.routes.predict

loaded = {name for name in sys.modules if name.startswith("peltier")}
made_of = ("service", "inference.predictor", "runner.worker", "extensions")
assert not loaded & {f"peltier_server.{name}" for name in made_of}, loaded
assert not loaded & {"peltier_store.registry.schema", "peltier_backbone.backbone", "peltier_adapters.batch.forward"}
assert len(loaded) <= 150, len(loaded)
"""


def test_a_route_does_not_load_what_makes_its_service() -> None:
    """It names the service by a type alone, so a reader of the route has that much less before them."""
    done = subprocess.run([sys.executable, "-c", ROUTE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_every_module_is_imported_without_a_warning() -> None:
    """With what the extras bring; a warning tells of a version that does not fit another."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", IMPORT_ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
