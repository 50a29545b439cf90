"""docs/reference/operations.md lists every operation of every door once."""

from collections import Counter

import pytest

from tools.reference.export import ROOT
from tools.reference.operations import DOORS, commands, names_by_door, operations, operations_page


@pytest.mark.parametrize("door", DOORS)
def test_every_name_at_a_door_is_in_exactly_one_row(door: str) -> None:
    variants = {"command": (" --", "forget verify")}.get(door, ())
    listed = Counter(
        name
        for row in operations()
        for name in getattr(row, door)
        if not any(variant in name for variant in variants)
    )
    assert listed == Counter(names_by_door()[door])


def test_a_variant_of_a_command_names_an_option_that_the_command_has() -> None:
    options = {name: {opt for param in command.params for opt in param.opts} for name, command in commands()}
    variants = [name for row in operations() for name in row.command if " --" in name]
    assert variants
    for variant in variants:
        name, option = variant.split(" --")
        assert f"--{option}" in options[name], variant


def test_the_page_is_current() -> None:
    path = ROOT / "docs/reference/operations.md"
    assert path.read_text() == operations_page(), "run `make schemas`"
