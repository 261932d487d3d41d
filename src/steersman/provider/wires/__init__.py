"""The wire protocols. Each is pure: it encodes a request, decodes a stream and explains an error, without I/O."""
