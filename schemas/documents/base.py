"""The base of every stored document: a closed model with the collection that holds it."""

from typing import Any, ClassVar

from pydantic import ConfigDict

from eden_memory.schemas.fields import Part


class Document(Part):
    """One document of a collection.

    `COLLECTION` stands without the configurable prefix (`memory_`). Field `id` is stored as `_id`. Times are
    BSON dates, vectors BSON float32 vectors, money Decimal128: the adapter converts, the exported JSON Schema
    shows them as events write them. Fields with a default may be missing.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)

    COLLECTION: ClassVar[str]
    NAME: ClassVar[str]
    VERSION: ClassVar[int] = 1

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.NAME = cls.__name__

    def stored(self) -> dict[str, Any]:
        """As a mapping of Python values with `_id`, in declared order."""
        return self.model_dump()
