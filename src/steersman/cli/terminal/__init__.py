"""The process and its terminal: file descriptors, signals, stdin, stdout, stderr, and text made safe to print."""
