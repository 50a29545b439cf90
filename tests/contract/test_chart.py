"""The Helm chart, held against the settings, commands and topics; rendered, against Kubernetes' and KEDA's schemas.

No cluster is used. What is rendered needs Helm: `make chart` and CI install it, with the schemas.
"""

import json
import re
import subprocess
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from eden_memory.app.system import CLOSED_SECONDS, DRAINED_SECONDS, PARTS
from eden_memory.cli.main import COMMANDS
from eden_memory.kafka.topics import load_topics
from eden_memory.settings import KafkaSettings, Settings
from eden_memory.stages.process import CANCEL_SECONDS, CLOSE_SECONDS

ROOT = Path(__file__).parents[2]
CHART, TOOLS = ROOT / "charts/eden-memory", ROOT / ".eden/chart"
VALUES = cast("dict[str, Any]", yaml.safe_load((CHART / "values.yaml").read_text()))
HELM, SCHEMAS = TOOLS / "bin/helm", TOOLS / "schemas"
DEFINITIONS = "_definitions.json"
rendered_only = pytest.mark.skipif(
    not HELM.exists(), reason="helm is not installed: `make chart` installs it"
)
EVERYTHING: dict[str, Any] = {
    "env": {"EDEN_LLM": "openai"},
    "files": ["certificates"],
    "imagePullSecrets": [{"name": "registry"}],
    "serviceAccount": {"token": True, "annotations": {"eks.amazonaws.com/role-arn": "arn"}},
    "keda": {
        "authentication": [{"parameter": "username", "name": "eden", "key": "user"}],
        "metadata": {"sasl": "scram_sha512"},
    },
    "networkPolicy": {
        "metricsFrom": [{"namespaceSelector": {}}],
        "egressTo": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
    },
    "nodeSelector": {"pool": "memory"},
    "tolerations": [{"key": "memory", "operator": "Exists"}],
}
LITTLE: dict[str, Any] = {
    "api": {"enabled": False},
    "keda": {"enabled": False},
    "setup": {"enabled": False},
    "disruptionBudgets": False,
    "networkPolicy": {"enabled": False},
}


def rendered(folder: Path, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The manifests that Helm makes of the chart."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    command = [str(HELM), "template", "eden", str(CHART), "--kube-version", "1.34.0", "-f", str(file)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


@cache
def definitions() -> Any:
    """The part that Kubernetes' schemas share."""
    shared, registry = json.loads((SCHEMAS / DEFINITIONS).read_text()), cast("Any", Registry)()
    return registry.with_resource(DEFINITIONS, Resource.from_contents(shared, DRAFT202012))


def faults(manifest: dict[str, Any]) -> list[str]:
    """Where a manifest breaks its kind's schema."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    name = "-".join(filter(None, (manifest["kind"].lower(), group.split(".")[0], version)))
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    validator: Any = Draft202012Validator(schema, registry=definitions())
    return [f"{name}: {error.json_path}: {error.message}" for error in validator.iter_errors(manifest)]


def workloads(manifests: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Component → pod."""
    pods = [one["spec"]["template"] for one in manifests if one["kind"] in ("Deployment", "Job")]
    return {pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["spec"] for pod in pods}


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


def test_every_part_runs_once() -> None:
    stages = [part for stage in VALUES["stages"].values() for part in stage["run"]]
    assert sorted(["tailer", *stages, "janitor", "lag"]) == sorted(PARTS)


def test_stages_are_scaled_by_the_topics_that_they_read() -> None:
    declared = load_topics(KafkaSettings()).file.topics  # pyright: ignore[reportCallIssue]
    reads = {
        group: sorted(topics)
        for stage in VALUES["stages"].values()
        for group, topics in stage["reads"].items()
    }
    groups = {group for topic in declared.values() for group in topic.groups}
    assert reads == {
        group: sorted(name for name, topic in declared.items() if group in topic.groups) for group in groups
    }
    assert VALUES["keda"]["groupPrefix"] == KafkaSettings().group_prefix  # pyright: ignore[reportCallIssue]
    for stage in VALUES["stages"].values():
        assert sorted(stage["run"]) == sorted(stage["reads"])


def test_the_settings_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "eden.toml").write_text(VALUES["config"])
    monkeypatch.setitem(Settings.model_config, "toml_file", tmp_path / "eden.toml")
    assert Settings().kafka.bootstrap == VALUES["keda"]["bootstrapServers"]
    assert tomllib.loads(VALUES["config"])["mongodb"].keys() == {"database"}  # the address is a secret


def test_a_secret_is_a_reference() -> None:
    for reference in VALUES["secrets"].values():
        assert set(reference) == {"name", "key"}


def test_a_stop_is_given_the_time_that_the_program_takes() -> None:
    letting_go = DRAINED_SECONDS + CLOSED_SECONDS + CANCEL_SECONDS + CLOSE_SECONDS
    assert VALUES["drainSeconds"] > Settings().run.drain_seconds + letting_go


def test_the_chart_runs_the_version_of_the_program() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert chart["appVersion"] == version


@rendered_only
@pytest.mark.parametrize("values", [{}, EVERYTHING, LITTLE], ids=["default", "everything", "little"])
def test_the_manifests_are_valid_by_the_published_schemas(values: Mapping[str, Any], tmp_path: Path) -> None:
    assert [fault for manifest in rendered(tmp_path, values) for fault in faults(manifest)] == []


@rendered_only
def test_a_field_that_kubernetes_does_not_know_would_be_found(tmp_path: Path) -> None:
    for manifest in rendered(tmp_path, {}):
        manifest["spec" if "spec" in manifest else "metadata"]["nmae"] = "eden"
        assert faults(manifest), manifest["kind"]


@rendered_only
def test_pods_run_without_privileges_and_take_secrets_by_reference(tmp_path: Path) -> None:
    for name, pod in workloads(rendered(tmp_path, EVERYTHING)).items():
        assert pod["enableServiceLinks"] is False  # its variables would be refused as settings
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert f"USER {pod['securityContext']['runAsUser']}" in (ROOT / "Dockerfile").read_text()
        for container in containers(pod):
            safe = container["securityContext"]
            assert safe["readOnlyRootFilesystem"] is True
            assert safe["allowPrivilegeEscalation"] is False
            assert safe["capabilities"] == {"drop": ["ALL"]}
            assert {"livenessProbe", "readinessProbe"} <= set(container) or name == "setup"
            uri = next(one for one in container["env"] if one["name"] == "EDEN_MONGODB_URI")
            assert uri["valueFrom"]["secretKeyRef"] == VALUES["secrets"]["EDEN_MONGODB_URI"]


@rendered_only
def test_every_variable_is_a_setting_and_every_command_exists(tmp_path: Path) -> None:
    for pod in workloads(rendered(tmp_path, {})).values():
        for container in containers(pod):
            word, *words = container["args"]
            assert word in COMMANDS
            assert set(words) <= set(PARTS if word == "run" else ("apply",))
            for variable in container["env"]:
                group, field = variable["name"].lower().removeprefix("eden_").split("_", 1)
                assert field in cast("Any", Settings.model_fields[group].annotation).model_fields


@rendered_only
def test_keda_decides_how_many_copies_of_a_stage_run_and_the_tailer_has_another_at_hand(
    tmp_path: Path,
) -> None:
    manifests = rendered(tmp_path, EVERYTHING)
    replicas = {
        one["metadata"]["name"]: one["spec"].get("replicas")
        for one in manifests
        if one["kind"] == "Deployment"
    }
    scaled = {
        one["spec"]["scaleTargetRef"]["name"]: one["spec"]["triggers"]
        for one in manifests
        if one["kind"] == "ScaledObject"
    }
    assert scaled.keys() == {f"eden-{name}" for name in VALUES["stages"]}
    assert all(replicas[name] is None for name in scaled)
    assert replicas["eden-tailer"] == 2
    (trigger,) = scaled["eden-windows"]
    assert trigger["metadata"]["consumerGroup"] == "eden.formation-trigger"
    assert trigger["metadata"]["sasl"] == "scram_sha512"
    assert trigger["authenticationRef"] == {"name": "eden"}


@rendered_only
def test_budgets_and_policies_select_the_pods(tmp_path: Path) -> None:
    manifests = rendered(tmp_path, {})
    components = {
        one["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]
        for one in manifests
        if one["kind"] == "PodDisruptionBudget"
    }
    assert components == set(workloads(manifests)) - {"setup"}
    policies = {one["metadata"]["name"]: one["spec"] for one in manifests if one["kind"] == "NetworkPolicy"}
    assert policies["eden"]["ingress"] == []
    assert policies["eden"]["policyTypes"] == ["Ingress", "Egress"]
    assert policies["eden-api"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": 8787}]


def test_no_manifest_names_a_secret_of_its_own() -> None:
    templates = "".join(file.read_text() for file in (CHART / "templates").iterdir())
    assert not re.search(r"kind: Secret\b", templates)
