"""`steersman sessions`, and which saved session a run continues."""
