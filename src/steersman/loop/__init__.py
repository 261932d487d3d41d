"""The loop. Only this room changes a run and emits its events; every other room is asked, and answers with values."""
