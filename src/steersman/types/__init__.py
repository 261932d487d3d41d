"""Plain values: nothing here waits, reads a clock or does I/O."""
