"""The schemas of the custom resources that the manifests use, in the fields that these and their neighbours have.

No package has the definitions of these projects. The names, types and required fields are those of their API references
of August 2026: Gateway API v1 (gateway-api.sigs.k8s.io/reference/spec), Inference Extension v1
(gateway-api-inference-extension.sigs.k8s.io/reference/spec), KServe (kserve.github.io, v1alpha1 and v1beta1) and
Prometheus operator (prometheus-operator.dev, monitoring.coreos.com/v1). Fields that no manifest uses are left out, so
that one is added here with the manifest that needs it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Manifest = Mapping[str, Any]


class _Schema(dict[str, Any]):
    """A JSON schema."""


# What Kubernetes' own schemas check, as a part of a Pod.
_POD = _Schema()
_PORT = _Schema(type="integer", minimum=1, maximum=65535)
_DURATION = _Schema(type="string", pattern="^([0-9]{1,5}(h|m|s|ms)){1,4}$")
_TEXTS = _Schema(type="object", additionalProperties={"type": "string"})


def _one_of(*values: str) -> _Schema:
    return _Schema(type="string", enum=list(values))


def _schema(fields: Any) -> Any:
    """The JSON schema for fields by their names, which end with `!` where they are required. Others are errors."""
    match fields:
        case _Schema():
            return fields
        case type():
            return {"type": {str: "string", int: "integer", bool: "boolean"}[fields]}
        case [items]:
            return {"type": "array", "items": _schema(items)}
        case dict():
            return {
                "type": "object",
                "properties": {name.rstrip("!"): _schema(value) for name, value in fields.items()},
                "required": [name.rstrip("!") for name in fields if name.endswith("!")],
                "additionalProperties": False,
            }
    raise TypeError(fields)


_REFERENCE = {"group": str, "kind": str, "name!": str, "namespace": str, "port": _PORT}
_SECRET_KEY = {"name": str, "key!": str, "optional": bool}

_GATEWAY = {
    "gatewayClassName!": str,
    "listeners!": [{"name!": str, "hostname": str, "port!": _PORT, "protocol!": str}],
}
_HTTP_ROUTE = {
    "parentRefs": [{**_REFERENCE, "sectionName": str}],
    "hostnames": [str],
    "rules": [
        {
            "name": str,
            "matches": [{"path": {"type": _one_of("Exact", "PathPrefix", "RegularExpression"), "value": str}}],
            "backendRefs": [{**_REFERENCE, "weight": int}],
            "timeouts": {"request": _DURATION, "backendRequest": _DURATION},
        }
    ],
}
_INFERENCE_POOL = {
    "selector!": {"matchLabels!": _TEXTS},
    "targetPorts!": [{"number!": _PORT}],
    "appProtocol": _one_of("http", "kubernetes.io/h2c"),
    "endpointPickerRef": {
        "group": str,
        "kind": str,
        "name!": str,
        "port": {"number!": _PORT},
        "failureMode": _one_of("FailOpen", "FailClose"),
    },
}
_SERVING_RUNTIME = {
    "supportedModelFormats": [{"name!": str, "version": str, "autoSelect": bool, "priority": int}],
    "protocolVersions": [str],
    "multiModel": bool,
    "disabled": bool,
    "annotations": _TEXTS,
    "labels": _TEXTS,
    "containers!": [_POD],
    "volumes": [_POD],
}
_MODEL = {
    "modelFormat": {"name!": str, "version": str},
    "runtime": str,
    "runtimeVersion": str,
    "protocolVersion": str,
    "storageUri": str,
}
# A predictor also has the fields of a pod.
_PREDICTOR = {
    "model": _MODEL,
    "minReplicas": int,
    "maxReplicas": int,
    "scaleTarget": int,
    "scaleMetric": _one_of("cpu", "memory", "concurrency", "rps"),
    "timeout": int,
    "canaryTrafficPercent": int,
    "containerConcurrency": int,
}
_SERVICE_MONITOR = {
    "selector!": {"matchLabels": _TEXTS},
    "namespaceSelector": {"any": bool, "matchNames": [str]},
    "endpoints!": [
        {
            "port": str,
            "path": str,
            "scheme": _one_of("http", "https", "HTTP", "HTTPS"),
            "interval": str,
            "scrapeTimeout": str,
            "authorization": {"type": str, "credentials": _SECRET_KEY},
        }
    ],
}
_SPECS = {
    ("gateway.networking.k8s.io/v1", "Gateway"): _GATEWAY,
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): _HTTP_ROUTE,
    ("inference.networking.k8s.io/v1", "InferencePool"): _INFERENCE_POOL,
    ("serving.kserve.io/v1alpha1", "ServingRuntime"): _SERVING_RUNTIME,
    ("serving.kserve.io/v1beta1", "InferenceService"): {"predictor!": _PREDICTOR},
    ("monitoring.coreos.com/v1", "ServiceMonitor"): _SERVICE_MONITOR,
}


SCHEMAS = {
    key: _schema({"apiVersion!": str, "kind!": str, "metadata!": _Schema(), "spec!": spec})
    for key, spec in _SPECS.items()
}


def pieces_of(manifest: Manifest) -> Iterator[Manifest]:
    """The manifest, and what it has of a pod as a Pod, whose fields Kubernetes' own schemas have."""
    spec = manifest["spec"] if manifest["kind"] in {"ServingRuntime", "InferenceService"} else {}
    pod = {name: spec[name] for name in ("containers", "volumes") if name in spec}
    if "predictor" in spec:
        own = {name: value for name, value in spec["predictor"].items() if name in _PREDICTOR}
        pod = {"containers": [{"name": "model"}]} | {k: v for k, v in spec["predictor"].items() if k not in own}
        manifest = {**manifest, "spec": {**spec, "predictor": own}}
    yield manifest
    if pod:
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": manifest["metadata"]["name"]}, "spec": pod}
