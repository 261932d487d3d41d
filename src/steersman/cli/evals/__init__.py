"""The command that evaluates agents on a file of cases."""
