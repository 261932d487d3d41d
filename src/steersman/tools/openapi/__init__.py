"""Tools from an OpenAPI description. Requests go only to the `base_url` that the user gave."""
