"""What a caller may decide. A guard that breaks counts as one that said no."""
