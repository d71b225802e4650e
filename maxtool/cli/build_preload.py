"""Beginning of the processes of a build: the compiler, imported once for all of them."""

import maxtool.artifact
import maxtool.cli.app
import maxtool.conversion  # noqa: F401
