"""Memory in files: imports of other systems' memories, exports and their import, and the mirror of Markdown files.

An import becomes requests to memory under ids that stay the same, so a second import changes nothing (`import_items`,
`importing`, and the readers of each source). An export keeps records under their keys (`exporting`, `record_import`).
"""
