"""One namespace a module: what tests of this folder read is stored once."""

from tests.integration.context.conftest import kit, plain

__all__ = ["kit", "plain"]
