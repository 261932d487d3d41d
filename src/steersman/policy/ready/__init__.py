"""Ready-made policies for the hooks there are. Users import them from `steersman.policy`."""
