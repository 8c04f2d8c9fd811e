"""Checks manifests against the schemas of custom resources, which their projects publish as files of definitions.

    .venv/bin/python deploy/kubernetes/validate.py --crds FOLDER FILE.yaml …

`FOLDER` holds the definitions (`CustomResourceDefinition`), from `config/crd` of kubernetes-sigs/gateway-api and
kubernetes-sigs/gateway-api-inference-extension, `charts/kserve-crd` of kserve/kserve, and
`example/prometheus-operator-crd-full` of prometheus-operator/prometheus-operator. Kinds that no definition names are
checked against the schemas of Kubernetes. Fields that a schema does not name are errors. Exits with 1 if there is one.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

Schemas = Mapping[tuple[str, str], Mapping[str, Any]]
# Kubernetes' own rules for metadata are not part of a definition.
_METADATA = {"type": "object"}


def read_definitions(files: Sequence[Path]) -> Schemas:
    """The schema of each version and kind."""
    found = {}
    for document in (one for file in files for one in yaml.safe_load_all(file.read_text()) if one):
        if document["kind"] != "CustomResourceDefinition":
            continue
        spec = document["spec"]
        for version in spec["versions"]:
            key = f"{spec['group']}/{version['name']}", spec["names"]["kind"]
            found[key] = closed(version["schema"]["openAPIV3Schema"])
    return found


def closed(schema: Any) -> Any:
    """A schema of OpenAPI as JSON schema, in which objects have no other fields than those that it names."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    own = {name: closed(value) for name, value in schema.items() if name not in ("properties", "default", "format")}
    if "properties" in schema:
        own["properties"] = {name: closed(value) for name, value in schema["properties"].items()}
        is_open = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
        # Branches of anyOf and the like have no type and name only some of the fields.
        if schema.get("type") == "object" and not is_open:
            own["additionalProperties"] = False
    return own


def faults(manifest: Mapping[str, Any], schemas: Schemas, kubernetes_version: str) -> Iterator[str]:
    """What is wrong with a manifest, a sentence each."""
    name = f"{manifest['kind']} {manifest['metadata']['name']}"
    schema = schemas.get((manifest["apiVersion"], manifest["kind"]))
    try:
        if schema is None:
            kubernetes_validate.validate(manifest, kubernetes_version, strict=True)
            return
    except kubernetes_validate.SchemaNotFoundError:
        yield f"{name}: no definition names {manifest['apiVersion']} {manifest['kind']}"
        return
    except kubernetes_validate.ValidationError as error:
        yield f"{name}: {'.'.join(map(str, error.path))}: {error.message}"
        return
    properties = {**schema["properties"], "metadata": _METADATA}
    for error in jsonschema.Draft202012Validator({**schema, "properties": properties}).iter_errors(manifest):
        yield f"{name}: {'.'.join(map(str, error.absolute_path))}: {error.message}"


def main() -> None:
    """Prints the faults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crds", type=Path, required=True, help="folder with the definitions, *.yaml")
    parser.add_argument("--kubernetes", default=kubernetes_validate.latest_version(), help="version of Kubernetes")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE.yaml", help="manifests; - is the standard input")
    options = parser.parse_args()
    schemas = read_definitions(sorted(options.crds.glob("*.yaml")))
    texts = [sys.stdin.read() if str(file) == "-" else file.read_text() for file in options.files]
    manifests = [one for text in texts for one in yaml.safe_load_all(text) if one]
    found = [fault for one in manifests for fault in faults(one, schemas, options.kubernetes)]
    print(*found, f"{len(manifests)} manifests, {len(found)} faults", sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
