"""What importing loads: help costs nothing of the system, and the package nothing of its doors."""

import subprocess
import sys

import pytest

HEAVY = (
    "openai",
    "google.genai",
    "onnxruntime",
    "aiokafka",
    "confluent_kafka",
    "fastapi",
    "pymongo",
    "mcp",
    "numpy",
)
MODELS = (
    "openai",
    "google.genai",
    "onnxruntime",
    "aiokafka",
    "confluent_kafka",
    "fastapi",
    "mcp",
    "anthropic",
)
TELL = "; import sys; print(*[one for one in {names!r} if one in sys.modules], sep=',')"


def loaded(code: str, names: tuple[str, ...]) -> str:
    """Which of these packages are loaded after the code ran."""
    command = [sys.executable, "-c", code + TELL.format(names=names)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return ended.stdout.strip().rpartition("\n")[2]


@pytest.mark.parametrize("arguments", ["['--help']", "['search', '--help']"])
def test_help_loads_nothing_heavy(arguments: str) -> None:
    code = (
        "from typer.testing import CliRunner; from eden_memory.cli.main import app; "
        f"assert CliRunner().invoke(app, {arguments}).exit_code == 0"
    )
    names = HEAVY if "search" not in arguments else MODELS
    assert loaded(code, names) == ""


COMMAND_LINE = {"annotated_doc", "rich", "shellingham", "typer"}
VALIDATION = {"annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"}
SETTINGS = {"dotenv", "pydantic_settings"}
MONGODB = {"bson", "cryptography", "pymongo"}
KAFKA = {"aiokafka", "async_timeout", "cramjam", "cython_runtime", "packaging", "yaml"}
METRICS = {"prometheus_client"}
HELP = "from eden_memory.cli.main import COMMANDS, app; app(['--help'], standalone_mode=False)"
DEAD_LIST = "from eden_memory.cli.main import COMMANDS; COMMANDS['dead'].load('dead')"
SERVICE = "from eden_memory.api.service import MemoryService"
HELP_DRAWS = {"attr", "markdown_it", "mdurl", "pygments"}


@pytest.mark.parametrize(
    ("code", "packages"),
    [
        (HELP, COMMAND_LINE | HELP_DRAWS),
        (DEAD_LIST, (COMMAND_LINE - {"rich"}) | VALIDATION | SETTINGS | MONGODB | KAFKA | {"orjson"}),
        (SERVICE, VALIDATION | SETTINGS | MONGODB | METRICS | {"orjson"}),
    ],
    ids=["eden --help", "eden dead list", "MemoryService"],
)
def test_starting_loads_these_packages_and_no_others(code: str, packages: set[str]) -> None:
    tell = "; import sys; print(*{name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
    ended = subprocess.run([sys.executable, "-c", code + tell], capture_output=True, text=True, check=True)
    found = {name for name in ended.stdout.strip().rpartition("\n")[2].split() if not name.startswith("_")}
    assert found <= packages | {"eden_memory"}


def test_running_the_stages_loads_no_sdk_until_its_provider_is_asked_for() -> None:
    assert (
        loaded("import eden_memory.cli.run", ("openai", "google.genai", "onnxruntime", "fastapi", "mcp"))
        == ""
    )


def test_no_model_reads_its_source_when_it_is_imported() -> None:
    refuse = "import inspect; inspect.findsource = None; "
    code = "import eden_memory.schemas.documents, eden_memory.schemas.events, eden_memory.schemas.answers"
    assert loaded(refuse + code, ()) == ""


def test_the_doors_package_loads_nothing() -> None:
    assert loaded("import eden_memory.api", (*HEAVY, "pydantic", "eden_memory.settings")) == ""


def test_the_service_loads_no_model_and_no_kafka() -> None:
    assert loaded("from eden_memory.api import MemoryService, SyncMemoryService", MODELS) == ""
    made = "import os; os.environ['EDEN_MONGODB_URI'] = 'mongodb://127.0.0.1:1'; "
    assert loaded(made + "from eden_memory.api import Memory; Memory().agent('a')", MODELS) == ""


def test_an_unknown_name_is_an_attribute_error() -> None:
    import eden_memory.api

    with pytest.raises(AttributeError, match="no attribute 'Memories'"):
        _ = eden_memory.api.Memories  # pyright: ignore
