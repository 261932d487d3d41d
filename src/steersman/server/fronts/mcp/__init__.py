"""The Model Context Protocol: agents as tools of other programs, over stdio and streamable HTTP."""
