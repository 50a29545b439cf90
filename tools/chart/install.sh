#!/usr/bin/env bash
# Helm, and the published schemas of Kubernetes and KEDA, into the folder given: what `make chart` needs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
keda=v2.21.0

rm -rf "$folder/site" "$folder/schemas"
"$2/uv" pip install -q --no-deps --require-hashes --target "$folder/site" -r "$here/requirements.txt"
crds=$(cd "$folder" && go mod download -json github.com/kedacore/keda/v2@$keda | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/config/crd/bases
"$2/python" "$here/unpack.py" "$folder" "$crds"
