"""The command line: one file per command, one output object. It renders, it never computes."""
