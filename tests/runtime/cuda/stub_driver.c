/* A libcuda.so.1 for tests: its GPUs are what an environment variable says, their memory is that of
 * the host, and their kernels are functions of a library that another variable names.
 *
 * Work is put off until somebody waits for it, as it may be on a GPU: who reads a result without
 * waiting finds the old bytes. Everything asked for is written to a log that tests read.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stub.h"

/* Threads wait and ask for work at the same time; kernels run while one of them waits. */
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static void leave(int *held) { pthread_mutex_unlock(&mutex); }
#define ALONE int held __attribute__((cleanup(leave), unused)) = pthread_mutex_lock(&mutex)

static char *log_text;
static size_t log_size, log_room;

void stub_say(const char *format, ...) {
  ALONE;
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (log_size + length + 2 > log_room) log_text = realloc(log_text, log_room = 2 * log_room + 1024);
  memcpy(log_text + log_size, line, length);
  memcpy(log_text + log_size + length, "\n", 2);
  log_size += length + 1;
}

const char *stub_log(void) { return log_text ? log_text : ""; }
void stub_clear(void) { if (log_text) log_text[log_size = 0] = 0; }

static long long number(const char *name, long long otherwise) {
  const char *text = getenv(name);
  return text && *text ? atoll(text) : otherwise;
}

/* Memory: every range that is alive, of the device (kind 1) or pinned on the host (kind 2). */
typedef struct range { char *start; size_t size; int kind, device; struct range *next; } range;
static range *ranges;
static _Thread_local int current;
static int failing;  /* what every call answers, once set: a GPU that has failed */

size_t stub_used(int device) {
  ALONE;
  size_t used = 0;
  for (range *r = ranges; r; r = r->next) used += r->kind == 1 && r->device == device ? r->size : 0;
  return used;
}

size_t stub_memory(void) { return number("STUB_MEMORY", 1 << 30); }
int stub_current(void) { return current; }
void stub_use(int device) { current = device; }
void stub_fail(int code) { failing = code; }
int stub_failing(void) { return failing; }

int stub_kind(const void *where, size_t size) {
  ALONE;
  for (range *r = ranges; r; r = r->next)
    if ((char *)where >= r->start && (char *)where + size <= r->start + r->size) return r->kind;
  return 0;
}

void *stub_take(size_t size, int kind) {
  ALONE;
  if (kind == 1 && stub_used(current) + size > stub_memory()) return NULL;
  range *r = malloc(sizeof *r);
  *r = (range){aligned_alloc(256, (size + 256) / 256 * 256), size, kind, current, ranges};
  memset(r->start, 0xAB, size);  /* what a GPU gives is not zeroed */
  ranges = r;
  return r->start;
}

int stub_drop(void *start) {
  ALONE;
  for (range **at = &ranges; *at; at = &(*at)->next)
    if ((*at)->start == start) {
      range *r = *at;
      *at = r->next;
      memset(r->start, 0xCD, r->size);
      free(r->start);
      free(r);
      return 1;
    }
  return 0;
}

/* Work that waits. */
static op *first, **last = &first;

void stub_run(const op *o) {
  if (o->what == COPY) memmove(o->to, o->from ? o->from : o->staged, o->size);
  if (o->what == FILL) memset(o->to, o->value, o->size);
  if (o->what == LAUNCH) o->function->run(o->grid, o->block, o->parameters);
  if (o->what == MARK) o->mark->reached = o->turn;
}

void stub_put(op *o) {
  ALONE;
  o->next = NULL;
  *last = o;
  last = &o->next;
}

/* Do what waits: up to this mark, or all of it. */
void stub_drain_until(const event *mark) {
  ALONE;
  while (first && !(mark && mark->reached == mark->asked)) {
    op *o = first;
    if (!(first = o->next)) last = &first;
    stub_run(o);
    free(o->staged);
    free(o);
  }
}

void stub_drain(void) { stub_drain_until(NULL); }

/* The driver's own functions. */
static int gpus(int wanted, int *major, int *minor) {
  const char *text = getenv("STUB_GPUS");
  int count = 0, x, y, read;
  for (text = text ? text : "9.0"; sscanf(text, " %d.%d%n", &x, &y, &read) == 2; text += read)
    if (count++ == wanted) { *major = x; *minor = y; }
  return count;
}

int cuInit(unsigned flags) { return (int)number("STUB_INIT", 0); }
int cuDriverGetVersion(int *version) { *version = (int)number("STUB_DRIVER", 13000); return 0; }
int cuDeviceGetCount(int *count) { int x, y; *count = gpus(-1, &x, &y); return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }

int cuDeviceGetName(char *name, int size, int device) {
  snprintf(name, size, "Stub %d", device);
  return 0;
}

int cuDeviceTotalMem_v2(size_t *size, int device) { *size = stub_memory(); return 0; }

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  int major = 0, minor = 0;
  if (device >= gpus(device, &major, &minor)) return 101;
  int shared = major == 8 && minor == 0 ? 163 : major == 9 || major == 10 ? 227 : 99;
  *value = attribute == 97 ? shared << 10 : attribute == 75 ? major : attribute == 76 ? minor : attribute == 10 ? 32 : 1024;
  return 0;
}

static const char *name_of(int code) {
  static const struct { int code; const char *name; } names[] = {
    {0, "CUDA_SUCCESS"}, {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {100, "CUDA_ERROR_NO_DEVICE"}, {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}, {500, "CUDA_ERROR_NOT_FOUND"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].code == code) return names[i].name;
  return "CUDA_ERROR_UNKNOWN";
}

int cuGetErrorName(int code, const char **name) { *name = name_of(code); return 0; }
int cuGetErrorString(int code, const char **text) { *text = name_of(code); return 0; }

/* A module is its text, which may have a line "error CODE": what loading it answers. */
int cuModuleLoadData(char **handle, const char *image) {
  int code;
  if (failing) return failing;
  int elf = !strncmp(image, "\177ELF", 4);
  const char *error = elf ? NULL : strstr(image, "\nerror ");
  stub_say("module %.*s", (int)strcspn(image, "\n"), elf ? "elf" : image);
  if (error && sscanf(error, " error %d", &code) == 1) return code;
  *handle = strdup(elf ? "elf" : image);
  return 0;
}

int cuModuleUnload(char *handle) { free(handle); stub_say("unload"); return 0; }

static void *symbol(const char *kind, const char *name) {
  static void *library;
  char full[220];
  if (!library && getenv("STUB_KERNELS")) library = dlopen(getenv("STUB_KERNELS"), RTLD_NOW);
  snprintf(full, sizeof full, "%s_%s", kind, name);
  return library ? dlsym(library, full) : NULL;
}

int cuModuleGetFunction(function **found, char *handle, const char *name) {
  int *count = symbol("count", name);
  if (!count) return 500;
  *found = calloc(1, sizeof **found);
  snprintf((*found)->name, sizeof (*found)->name, "%s", name);
  (*found)->count = *count;
  (*found)->run = symbol("run", name);
  return 0;
}

int cuFuncSetAttribute(function *f, int attribute, int value) { return 0; }

typedef struct { unsigned grid[3], block[3], shared; void *stream; } configuration;

int cuLaunchKernelEx(const configuration *c, function *f, void **parameters, void **extra) {
  if (failing) return failing;
  for (int i = 0; i < 3; i++) if (!c->grid[i] || !c->block[i]) return 1;
  op *o = calloc(1, sizeof *o);
  *o = (op){.what = LAUNCH, .function = f, .shared = c->shared};
  memcpy(o->grid, c->grid, sizeof c->grid);
  memcpy(o->block, c->block, sizeof c->block);
  for (int i = 0; i < f->count; i++) o->parameters[i] = *(uint64_t *)parameters[i];
  return stub_submit(o, c->stream, f->name);
}

int cuTensorMapEncodeTiled(void) { return 1; }

/* Streams: one that captures keeps what it is given, in a graph. */
int stub_submit(op *o, stream *s, const char *name) {
  stub_say("%s%s %s", s && s->capturing ? "captured " : "",
           o->what == LAUNCH ? "launch" : o->what == COPY ? "copy" : o->what == FILL ? "fill" : "record",
           name);
  if (s && s->capturing) {
    op **at = &s->capturing->first;
    while (*at) at = &(*at)->next;
    *at = o;
  } else {
    stub_put(o);
  }
  return 0;
}
