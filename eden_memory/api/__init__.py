"""HTTP, MCP and gateway."""
