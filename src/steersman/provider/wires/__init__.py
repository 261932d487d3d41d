"""The wire protocols. Each one encodes requests, decodes streams and classifies errors; none does I/O."""
