#!/usr/bin/env bash
# Helm, kubeconform, and the published schemas of Kubernetes and KEDA, into the folder given: what `make chart` needs.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
kubernetes=1.34.0 keda=v2.21.0

export GOBIN="$folder/bin"
go install helm.sh/helm/v3/cmd/helm@v3.22.0
go install github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0

rm -rf "$folder/site" "$folder/schemas"
mkdir -p "$folder/schemas"
"$2/uv" pip install -q --no-deps --target "$folder/site" kubernetes-validate==1.37.0
published="$folder/site/kubernetes_validate/kubernetes-json-schema/v$kubernetes-local-strict"
crds=$(go mod download -json github.com/kedacore/keda/v2@$keda | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/config/crd/bases
"$2/python" - "$published" "$crds" "$folder/schemas" <<'END'
"""Published schemas → the files that kubeconform reads; unknown fields are errors."""
import json, sys
from pathlib import Path
import yaml

published, crds, schemas = map(Path, sys.argv[1:])
for file in published.glob("*.json"):
    schema = json.loads(file.read_text().replace('"/api/_definitions.json', '"_definitions.json'))
    schema.pop("$id", None)  # an address, which references would be looked up at
    (schemas / file.name).write_text(json.dumps(schema))

def strict(schema):
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        strict(value)
    if isinstance(schema, dict) and schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema

for plural in ("scaledobjects", "triggerauthentications"):
    spec = yaml.safe_load((crds / f"keda.sh_{plural}.yaml").read_text())["spec"]
    (version,) = spec["versions"]
    schema = strict(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    name = f"{spec['names']['kind'].lower()}-keda-{version['name']}.json"
    (schemas / name).write_text(json.dumps(schema))
END
