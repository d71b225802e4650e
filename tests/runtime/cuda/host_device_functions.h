// The functions that our kernels bring along, by their descriptions in the PTX ISA, and 16-bit floats.
typedef _Float16 half;
static half __float2half_rn(float x) { return (half)x; }
static float __half2float(half x) { return (float)x; }
VECTORS(half, half)

static unsigned bits_of(float x) {
  unsigned bits;
  memcpy(&bits, &x, 4);
  return bits;
}
static float bf16_to_float(unsigned short bits) {
  const unsigned wide = (unsigned)bits << 16;
  float x;
  memcpy(&x, &wide, 4);
  return x;
}
static float f16_to_float(unsigned short bits) {
  half x;
  memcpy(&x, &bits, 2);
  return (float)x;
}
static unsigned short mt_bf16(float x) {
  const unsigned bits = bits_of(x);
  if (x != x) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static unsigned short mt_f16(float x) {
  const half rounded = (half)x;
  unsigned short bits;
  memcpy(&bits, &rounded, 2);
  return bits;
}
static unsigned mt_pack_bf16(float low, float high) { return mt_bf16(low) | (unsigned)mt_bf16(high) << 16; }
static unsigned mt_pack_f16(float low, float high) { return mt_f16(low) | (unsigned)mt_f16(high) << 16; }
static void mt_unpack_bf16(float *f, unsigned bits) {
  f[0] = bf16_to_float(bits);
  f[1] = bf16_to_float(bits >> 16);
}
static void mt_unpack_f16(float *f, unsigned bits) {
  f[0] = f16_to_float(bits);
  f[1] = f16_to_float(bits >> 16);
}

static void mt_load_8(void *r, const void *p) { memcpy(r, p, 8); }
static void mt_load_16(void *r, const void *p) { memcpy(r, p, 16); }
static void mt_store_8(void *p, const void *r) { memcpy(p, r, 8); }
static void mt_store_16(void *p, const void *r) { memcpy(p, r, 16); }
static const void *mt_either(bool one, const void *p, const void *q) { return one ? p : q; }
static void mt_cp_async_commit() {}
static void mt_cp_async_wait(int) {}
static void mt_cp_async_16(void *to, const void *from, int bytes) {
  memset(to, 0, 16);
  memcpy(to, from, bytes);
}

// ldmatrix.x4: lane 8 m + i has the address of row i of matrix m; each lane gets a pair of each.
static void matrices(unsigned *r, const void *row, bool transposed) {
  const threads::lanes<const char *> rows = threads::exchange((const char *)row);
  const unsigned group = threads::lane() / 4, t = threads::lane() % 4;
  for (unsigned m = 0; m < 4; m++) {
    unsigned short pair[2];
    for (unsigned i = 0; i < 2; i++) {
      const unsigned at = transposed ? 2 * t + i : group, column = transposed ? group : 2 * t + i;
      memcpy(&pair[i], rows[8 * m + at] + 2 * column, 2);
    }
    r[m] = pair[0] | (unsigned)pair[1] << 16;
  }
  threads::wait_for_warp();  // the memory may be written again
}
static void mt_ldmatrix_x4(unsigned *r, const void *row) { matrices(r, row, false); }
static void mt_ldmatrix_x4_trans(unsigned *r, const void *row) { matrices(r, row, true); }

// mma.m16n8k16: a[i] has rows group + 8 (i % 2), columns 2 t + 8 (i / 2) and the next; b[i] has rows
// 2 t + 8 i and the next of column group; d[i] has row group + 8 (i / 2), column 2 t + i % 2.
struct fragments { unsigned a[4], b[2]; };
static void multiply(float *d, const unsigned *a, const unsigned *b, float (*to_float)(unsigned short)) {
  fragments mine;
  memcpy(mine.a, a, sizeof mine.a);
  memcpy(mine.b, b, sizeof mine.b);
  const threads::lanes<fragments> all = threads::exchange(mine);
  const unsigned group = threads::lane() / 4, t = threads::lane() % 4;
  for (unsigned k = 0; k < 16; k++) {
    const unsigned from = k % 8 / 2, half_of = 16 * (k % 2);
    const fragments left = all[4 * group + from];
    for (unsigned i = 0; i < 4; i++) {
      const fragments right = all[4 * (2 * t + i % 2) + from];
      const unsigned short x = left.a[i / 2 + 2 * (k / 8)] >> half_of, y = right.b[k / 8] >> half_of;
      d[i] += to_float(x) * to_float(y);
    }
  }
}
static void mt_mma_f16(float *d, const unsigned *a, const unsigned *b) { multiply(d, a, b, f16_to_float); }
static void mt_mma_bf16(float *d, const unsigned *a, const unsigned *b) { multiply(d, a, b, bf16_to_float); }
