"""The manifest of an artifact."""

import json
from pathlib import Path

from peltier_adapters.artifact.manifest import Manifest

DOCS = Path(__file__).parents[3] / "docs"


def test_the_published_schema_is_the_manifest_that_is_read() -> None:
    """docs/artifact.schema.json is what the code accepts, not what it once accepted."""
    assert json.loads((DOCS / "artifact.schema.json").read_text()) == Manifest.model_json_schema()
