"""The process and its terminal: descriptors, signals, stdout, stderr, and text made safe to print."""
