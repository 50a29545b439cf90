"""Every command of `eden` and every target of make that code, docs, runbooks, alerts or messages name exists."""

from collections.abc import Iterator

from tests.named import ROOT, commands, makefile_targets, targets, tracked, unknown

NOT_READ = ("tests/", "schemas/json/", "schemas/examples/", "examples/", "docs/asyncapi.yaml")
TEXT = (".py", ".md", ".yaml", ".yml", ".toml", ".sh", ".j2")
PAGES = (".md", ".yaml", ".yml", ".sh")


def texts(suffixes: tuple[str, ...] = TEXT) -> Iterator[tuple[str, str]]:
    """Path and text of what people read or run."""
    alone = ("Makefile", "Dockerfile", ".ci/run")
    for path in tracked():
        if path in alone or (path.endswith(suffixes) and not path.startswith(NOT_READ)):
            yield path, (ROOT / path).read_text()


def test_every_command_that_is_named_is_there() -> None:
    found = [(path, *one) for path, text in texts() for one in commands(text)]
    assert len(found) > 300
    assert [(path, wrong) for path, *words in found if (wrong := unknown(words)) is not None] == []


def test_every_target_that_is_named_is_there() -> None:
    found = [(path, one) for path, text in texts() for one in targets(text)]
    assert len(found) > 30
    assert [(path, one) for path, one in found if one not in makefile_targets()] == []


def test_what_is_not_there_is_found() -> None:
    text = "`eden forget --gone` or eden forge; run `eden dead bury ID`, `eden session end|from`, then `make tea`."
    assert [unknown(one) for one in commands(text)] == [
        "forget has no --gone",
        "no command forge",
        "dead has no bury",
        "session has no from",
    ]
    assert list(targets(text)) == ["tea"]
    known = "`eden dead retry --stage S`; eden reform trial --switch; `eden reform report x`; `eden session end|form`"
    assert [unknown(one) for one in commands(known)] == [None] * 4
