/* What the two stub libraries share. */
#include <stddef.h>
#include <stdint.h>

enum { COPY, FILL, LAUNCH, MARK };
/* A kernel: how many parameters it takes, each in 8 bytes, and what runs it for a grid. */
typedef void (*kernel)(const unsigned *grid, const unsigned *block, const uint64_t *parameters);
typedef struct { char name[200]; int count; kernel run; } function;
/* A mark: how often it was recorded, and the last of those that was reached. */
typedef struct { int asked, reached; } event;
typedef struct op {
  int what, value;
  char *to, *staged;
  const char *from;
  size_t size;
  function *function;
  unsigned grid[3], block[3], shared;
  uint64_t parameters[64];
  event *mark;
  int turn;
  struct op *next;
} op;
typedef struct { op *first; } graph;
typedef struct { graph *capturing; } stream;

void stub_say(const char *format, ...);
size_t stub_used(int device), stub_memory(void);
int stub_kind(const void *where, size_t size), stub_drop(void *start);
int stub_current(void), stub_failing(void), stub_submit(op *o, stream *s, const char *name);
void *stub_take(size_t size, int kind);
void stub_use(int device), stub_put(op *o), stub_run(const op *o), stub_drain(void);
void stub_drain_until(const event *mark);
