"""From a model's name to its settings: registry, presets, prices and windows, API keys."""
