"""Where sessions are kept. Every store obeys the same protocol and passes the same conformance suite."""
