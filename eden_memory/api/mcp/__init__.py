"""The MCP server: memory as tools and resources, over stdio (`eden mcp`) and streamable HTTP (/mcp)."""
