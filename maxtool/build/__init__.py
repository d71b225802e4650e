"""Builds: targets of a file, run in the order of their dependencies, where they are not up to date.

Nothing here imports what works on models: a build that is up to date is told within a fraction of a
second. A step is a command line of maxtool, addressable by its name, with what it read and wrote
recorded; whoever has the file and its folder can run one.
"""
