"""HTTP: the routes, who may use them, and how errors are told."""
