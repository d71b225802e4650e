"""The compiler: the only room that imports TVM."""
