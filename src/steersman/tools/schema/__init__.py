"""JSON Schema from Python types, objects from JSON values, and validation of arguments."""
