"""How events leave a run: every subscriber hears each one before the loop goes on, and none can break it."""
