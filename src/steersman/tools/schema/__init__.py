"""Python types to JSON Schema and back, and validation of arguments."""
