// What CUDA C++ of kernels needs to be compiled for the host, each thread after the other.
#include <algorithm>
#include <cstdint>
#include <cstring>

#define __global__
#define __launch_bounds__(threads)

using std::max;
using std::min;

struct index3 { unsigned x, y, z; };
static index3 blockIdx, threadIdx;

template <typename T> T value(uint64_t bits) {
  T found;
  memcpy(&found, &bits, sizeof found);
  return found;
}

template <typename F> void each(index3 &at, const unsigned *sizes, F body) {
  for (at.z = 0; at.z < sizes[2]; at.z++)
    for (at.y = 0; at.y < sizes[1]; at.y++)
      for (at.x = 0; at.x < sizes[0]; at.x++) body();
}

#define RUN(name, parameters, call)                                                             \
  extern "C" {                                                                                  \
  int count_##name = parameters;                                                                \
  void run_##name(const unsigned *grid, const unsigned *block, const uint64_t *p) {             \
    each(blockIdx, grid, [&] { each(threadIdx, block, [&] { call; }); });                       \
  }                                                                                             \
  }
