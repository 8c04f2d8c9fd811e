"""The schemas of the custom resources that the manifests use, in the fields that these and their neighbours have.

No package has the definitions of these projects. The names, types and required fields are those of their API references
of August 2026: Gateway API v1 (gateway-api.sigs.k8s.io/reference/spec), Inference Extension v1
(gateway-api-inference-extension.sigs.k8s.io/reference/spec), KServe (kserve.github.io, v1alpha1 and v1beta1) and
Prometheus operator (prometheus-operator.dev, monitoring.coreos.com/v1). Fields that no manifest uses are left out, so
that one is added here with the manifest that needs it.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Manifest = Mapping[str, Any]

# By version and kind. What Kubernetes' own schemas check, as a part of a Pod, is any value.
_SPECS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text())
_PREDICTOR = _SPECS["serving.kserve.io/v1beta1 InferenceService"]["properties"]["predictor"]
SCHEMAS = {
    tuple(name.split()): {
        "type": "object",
        "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {}, "spec": spec},
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "additionalProperties": False,
    }
    for name, spec in _SPECS.items()
}


def pieces_of(manifest: Manifest) -> Iterator[Manifest]:
    """The manifest, and what it has of a pod as a Pod, whose fields Kubernetes' own schemas have."""
    spec = manifest["spec"] if manifest["kind"] in {"ServingRuntime", "InferenceService"} else {}
    pod = {name: spec[name] for name in ("containers", "volumes") if name in spec}
    if "predictor" in spec:
        own = {name: value for name, value in spec["predictor"].items() if name in _PREDICTOR["properties"]}
        pod = {"containers": [{"name": "model"}]} | {k: v for k, v in spec["predictor"].items() if k not in own}
        manifest = {**manifest, "spec": {**spec, "predictor": own}}
    yield manifest
    if pod:
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": manifest["metadata"]["name"]}, "spec": pod}
