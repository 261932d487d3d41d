"""Checkpoints: what each prompt changed in the files of a workspace, kept outside of it, so that it can be undone."""
