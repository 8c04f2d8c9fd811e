"""What an adapter is, and where it lives. The format and the stores import no torch."""

from peltier_adapters.artifact.manifest import Manifest, read_manifest
from peltier_adapters.errors import AdapterError, ArtifactError, InputError
from peltier_adapters.presets.presets import PRESETS, find_preset

__all__ = ["PRESETS", "AdapterError", "ArtifactError", "InputError", "Manifest", "find_preset", "read_manifest"]
