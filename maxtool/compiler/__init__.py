"""The compiler: the only room that imports TVM."""

from maxtool.compiler.tvm_import import import_alone

import_alone()
