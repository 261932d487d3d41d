"""The loop. Only this package changes a run and emits its events; the others are called and return values."""
