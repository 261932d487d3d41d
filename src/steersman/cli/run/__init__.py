"""One run without a chat: plain text or JSON on standard output, orders on standard input."""
