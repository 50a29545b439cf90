"""The MCP server: memory as tools and resources, over stdio (`eden mcp`) and streamable HTTP (/mcp)."""

from eden_memory.errors import needs

needs("mcp", "the MCP server")
