"""Tools from an OpenAPI description. Requests go only to the address the user gave."""
