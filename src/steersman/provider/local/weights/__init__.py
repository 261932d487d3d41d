"""Model files: find, download and verify them. A file is used only when its hash is right."""
