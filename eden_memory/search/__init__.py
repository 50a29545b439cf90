"""Lists, fusion, ranking, caches."""
