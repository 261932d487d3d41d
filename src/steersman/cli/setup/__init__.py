"""From options, settings and the machine to an agent that is ready to run."""
