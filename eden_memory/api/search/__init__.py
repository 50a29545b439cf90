"""Searching facts: one request over visible scopes, ranked, with a report of what each stage did."""
