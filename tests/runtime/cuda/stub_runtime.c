/* A libcudart.so.13 for tests, over the stub of the driver. */
#include <stdlib.h>
#include <string.h>

#include "stub.h"

enum { INVALID = 1, NO_MEMORY = 2, NO_CAPTURE = 900 };
/* Streams that this thread captures: it may not take memory or wait meanwhile. */
static _Thread_local int captures;

#define REFUSE_IF_FAILED if (stub_failing()) return stub_failing()
#define REFUSE_IN_CAPTURE if (captures) { stub_say("in capture: %s", __func__); return NO_CAPTURE; }

const char *cudaGetErrorName(int code) { return code == NO_MEMORY ? "cudaErrorMemoryAllocation" : "cudaError"; }
const char *cudaGetErrorString(int code) {
  return code == NO_MEMORY ? "out of memory"
         : code == 700     ? "an illegal memory access was encountered"
         : code == NO_CAPTURE ? "operation not permitted when stream is capturing" : "error";
}
int cudaGetLastError(void) { return 0; }
int cudaPeekAtLastError(void) { return 0; }
int cudaRuntimeGetVersion(int *version) { *version = 13000; return 0; }

int cuDeviceGetCount(int *), cuDeviceGetAttribute(int *, int, int), cuDeviceGetName(char *, int, int);
int cudaGetDevice(int *device) { *device = stub_current(); return 0; }
int cudaSetDevice(int device) { stub_use(device); return 0; }
int cudaGetDeviceCount(int *count) { return cuDeviceGetCount(count); }
int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  return cuDeviceGetAttribute(value, attribute, device);
}
int cudaGetDeviceProperties(char *properties, int device) { return cuDeviceGetName(properties, 256, device); }

int cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  *total = stub_memory();
  *free_bytes = *total - stub_used(stub_current());
  return 0;
}

static int take(void **start, size_t size, int kind) {
  REFUSE_IF_FAILED;
  REFUSE_IN_CAPTURE;
  *start = stub_take(size, kind);
  stub_say("%s %zu", kind == 1 ? "malloc" : "pin", size);
  return *start ? 0 : NO_MEMORY;
}

int cudaMalloc(void **start, size_t size) { return take(start, size, 1); }
int cudaMallocHost(void **start, size_t size) { return take(start, size, 2); }
int cudaFree(void *start) {
  REFUSE_IN_CAPTURE;
  stub_drain();
  stub_say("free");
  return !start || stub_drop(start) ? 0 : INVALID;
}
int cudaFreeHost(void *start) { return cudaFree(start); }

/* One side of a copy at least must be of the device, and alive. What the host may change at once
 * afterwards is read now; only pinned memory is written later. */
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, stream *s) {
  REFUSE_IF_FAILED;
  int target = stub_kind(to, size), source = stub_kind(from, size);
  if (!size) return 0;
  if ((kind == 1 && target != 1) || (kind == 2 && source != 1) ||
      (kind == 3 && (target != 1 || source != 1))) {
    stub_say("bad copy %d", kind);
    return INVALID;
  }
  op *o = calloc(1, sizeof *o);
  *o = (op){.what = COPY, .to = to, .from = from, .size = size};
  if (!source) {
    o->staged = memcpy(malloc(size), from, size);
    o->from = NULL;
  }
  const char *names[] = {"", "to device", "to host", "within", "any"};
  int code = stub_submit(o, s, names[kind]);
  if (!target) stub_drain();
  return code;
}

int cudaMemcpyPeerAsync(void *to, int a, const void *from, int b, size_t size, stream *s) {
  return cudaMemcpyAsync(to, from, size, 3, s);
}

int cudaMemsetAsync(void *to, int value, size_t size, stream *s) {
  REFUSE_IF_FAILED;
  if (stub_kind(to, size) != 1) return INVALID;
  op *o = calloc(1, sizeof *o);
  *o = (op){.what = FILL, .to = to, .value = value, .size = size};
  return stub_submit(o, s, "");
}

int cudaStreamCreateWithFlags(stream **s, unsigned flags) { *s = calloc(1, sizeof **s); return 0; }
int cudaStreamCreate(stream **s) { return cudaStreamCreateWithFlags(s, 0); }
int cudaStreamDestroy(stream *s) { free(s); return 0; }
int cudaStreamSynchronize(stream *s) {
  REFUSE_IF_FAILED;
  REFUSE_IN_CAPTURE;
  stub_say("wait stream");
  stub_drain();
  return 0;
}
int cudaStreamWaitEvent(stream *s, event *e, unsigned flags) { return 0; }

int cudaEventCreateWithFlags(event **e, unsigned flags) { *e = calloc(1, sizeof **e); return 0; }
int cudaEventCreate(event **e) { return cudaEventCreateWithFlags(e, 0); }
int cudaEventDestroy(event *e) { stub_drain(); free(e); return 0; }
int cudaEventRecord(event *e, stream *s) {
  op *o = calloc(1, sizeof *o);
  *o = (op){.what = MARK, .mark = e, .turn = ++e->asked};
  return stub_submit(o, s, "");
}
int cudaEventSynchronize(event *e) {
  REFUSE_IF_FAILED;
  REFUSE_IN_CAPTURE;
  stub_say("wait event");
  stub_drain_until(e);
  return 0;
}
int cudaEventElapsedTime(float *milliseconds, event *a, event *b) { *milliseconds = 1; return 0; }

int cudaStreamBeginCapture(stream *s, int mode) {
  REFUSE_IF_FAILED;
  const char *allowed = getenv("STUB_CAPTURE");
  if (!s || (allowed && *allowed == '0')) return NO_CAPTURE;
  stub_say("begin capture");
  s->capturing = calloc(1, sizeof *s->capturing);
  captures++;
  return 0;
}
int cudaStreamEndCapture(stream *s, graph **found) {
  stub_say("end capture");
  *found = s->capturing;
  s->capturing = NULL;
  captures--;
  return 0;
}
int cudaGraphInstantiate(graph **executable, graph *from, unsigned long long flags) {
  stub_say("instantiate");
  *executable = malloc(sizeof **executable);
  **executable = *from;
  return 0;
}
int cudaGraphDestroy(graph *g) { free(g); return 0; }
int cudaGraphExecDestroy(graph *g) { stub_drain(); stub_say("drop graph"); free(g); return 0; }
int cudaGraphLaunch(graph *g, stream *s) {
  REFUSE_IF_FAILED;
  stub_say("replay");
  for (op *o = g->first; o; o = o->next) {
    op *copy = malloc(sizeof *copy);
    *copy = *o;
    if (o->staged) copy->staged = memcpy(malloc(o->size), o->staged, o->size);
    stub_put(copy);
  }
  return 0;
}
