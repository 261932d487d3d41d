"""The one HTTP client of all wires: it sends one request, reads one response, and never retries."""
