"""How a small model is prompted: first decide on a tool, then answer."""
