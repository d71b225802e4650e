"""Beginning of the processes of a build: the compiler, imported once for all of them."""

from maxtool.runtime.loader.ffi import without

with without({"torch"}):  # which TVM would import
    import maxtool.artifact
import maxtool.cli.app
import maxtool.conversion  # noqa: F401
