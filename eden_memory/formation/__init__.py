"""Extraction, dedup, reflections, consolidation; prompts and offline rules."""
