"""One run without a chat: plain text or JSON on stdout, orders on stdin."""
