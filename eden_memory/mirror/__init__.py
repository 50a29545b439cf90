"""Memory as a folder of Markdown files that people edit: `eden mirror`."""
