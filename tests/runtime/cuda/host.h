// What CUDA C++ that was generated needs to be compiled for the host: a block is run at a time, its
// threads take turns, and each goes on until it waits for the others of its block or of its warp.
#pragma GCC diagnostic ignored "-Wunused-function"
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define CUDART_INF_F INFINITY

using std::max;
using std::min;

struct index3 { unsigned x, y, z; };
// Vectors, aligned as those of CUDA are where they are used to move bytes.
#define VECTORS(name, type)                                                                     \
  struct alignas(2 * sizeof(type)) name##2 { type x, y; };                                      \
  struct alignas(sizeof(type) > 4 ? 16 : 4 * sizeof(type)) name##4 { type x, y, z, w; };        \
  static inline name##2 make_##name##2(type x, type y) { return {x, y}; }                       \
  static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
VECTORS(char, signed char)
VECTORS(short, short)
VECTORS(ushort, unsigned short)
VECTORS(int, int)
VECTORS(uint, unsigned)
VECTORS(longlong, int64_t)
VECTORS(float, float)

static index3 blockIdx, threadIdx;
alignas(256) static char dynamic_shared[256 << 10];

// The threads of a block. Each has a stack of its own, and stays for the blocks to come.
namespace threads {
enum { WARP = 32, MOST = 1024, STACK = 64 << 10 };
struct thread { jmp_buf at; index3 index; bool begun, ended; };
struct barrier { unsigned waiting, turn; };
static thread all[MOST];
static barrier barriers[MOST / WARP + 1];  // of the block, and of its warps
static unsigned current, count, idle;
static jmp_buf scheduler;
static uint64_t exchanged[2][MOST][4];
static void (*body)(const uint64_t *);
static const uint64_t *parameters;

static void yield() {
  if (!_setjmp(all[current].at)) _longjmp(scheduler, 1);
}

static void enter() {
  for (;;) {
    body(parameters);
    all[current].ended = true;
    yield();
  }
}

static void go_on() {
  if (all[current].begun) _longjmp(all[current].at, 1);
  all[current].begun = true;
  ucontext_t start;
  getcontext(&start);
  start.uc_stack = {malloc(STACK), 0, STACK};
  makecontext(&start, enter, 0);
  setcontext(&start);
}

static void wait(unsigned group, unsigned size) {
  barrier &here = barriers[group];
  const unsigned turn = here.turn;
  idle = 0;
  if (++here.waiting == size) {
    here.waiting = 0;
    here.turn++;
    return;
  }
  while (here.turn == turn) {
    if (++idle > 4 * count) {
      fprintf(stderr, "threads of a kernel wait for each other for ever\n");
      abort();
    }
    yield();
  }
  idle = 0;
}

static unsigned warp_size(unsigned warp) { return min<unsigned>(WARP, count - warp * WARP); }
static void wait_for_block() { wait(0, count); }
static void wait_for_warp() { wait(1 + current / WARP, warp_size(current / WARP)); }

static void run_block(const unsigned *block) {
  count = block[0] * block[1] * block[2];
  memset(barriers, 0, sizeof barriers);
  for (unsigned i = 0; i < count; i++) {
    all[i].index = {i % block[0], i / block[0] % block[1], i / block[0] / block[1]};
    all[i].ended = false;
  }
  static unsigned alive;
  for (alive = count; alive;)
    for (current = 0; current < count; current++) {
      if (all[current].ended) continue;
      threadIdx = all[current].index;
      if (!_setjmp(scheduler)) go_on();
      alive -= all[current].ended;
    }
}

static void run_grid(const unsigned *grid, const unsigned *block, const uint64_t *given,
                     void (*kernel)(const uint64_t *)) {
  body = kernel;
  parameters = given;
  for (blockIdx.z = 0; blockIdx.z < grid[2]; blockIdx.z++)
    for (blockIdx.y = 0; blockIdx.y < grid[1]; blockIdx.y++)
      for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++) run_block(block);
}

// What every lane of a warp has, for all of them.
template <typename T> struct lanes {
  const uint64_t (*first)[4];
  T operator[](unsigned lane) const {
    T found;
    memcpy(&found, first[lane], sizeof found);
    return found;
  }
};

template <typename T> lanes<T> exchange(T mine) {
  static_assert(sizeof mine <= sizeof exchanged[0][0]);
  const unsigned warp = current / WARP, turn = barriers[1 + warp].turn % 2;
  memcpy(exchanged[turn][current], &mine, sizeof mine);
  wait_for_warp();
  // The next exchange has another place, and nobody is two exchanges ahead.
  return {&exchanged[turn][warp * WARP]};
}

template <typename T> T shuffle(T mine, unsigned lane) {
  const lanes<T> all_lanes = exchange(mine);
  return lane < warp_size(current / WARP) ? all_lanes[lane] : mine;
}
static unsigned lane() { return current % WARP; }
}  // namespace threads

static void __syncthreads() { threads::wait_for_block(); }
static void __syncwarp(unsigned = ~0u) { threads::wait_for_warp(); }
template <typename T> T __shfl_sync(unsigned, T v, unsigned lane, unsigned = 32) {
  return threads::shuffle(v, lane);
}
template <typename T> T __shfl_xor_sync(unsigned, T v, unsigned bits, unsigned = 32) {
  return threads::shuffle(v, threads::lane() ^ bits);
}
template <typename T> T __shfl_down_sync(unsigned, T v, unsigned by, unsigned = 32) {
  return threads::shuffle(v, threads::lane() + by);
}
template <typename T> T __shfl_up_sync(unsigned, T v, unsigned by, unsigned = 32) {
  return threads::shuffle(v, threads::lane() < by ? threads::lane() : threads::lane() - by);
}

#include "host_device_functions.h"

template <typename T> T value(uint64_t bits) {
  T found;
  memcpy(&found, &bits, sizeof found);
  return found;
}

#define RUN(name, count, call)                                                                  \
  extern "C" {                                                                                  \
  int count_##name = count;                                                                     \
  void run_##name(const unsigned *grid, const unsigned *block, const uint64_t *parameters) {    \
    threads::run_grid(grid, block, parameters, [](const uint64_t *p) { call; });                \
  }                                                                                             \
  }
