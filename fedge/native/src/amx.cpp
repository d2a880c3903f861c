// Products by AMX's tiles, which multiply numbers of 8 bits (bf16) and add up in float, some ten times as fast as
// vectors of floats. A float is the sum of three such numbers, high + middle + low. Of the nine products of two
// floats' parts, the six largest are taken; what is left out is below the last bit of a float's product. So kernel
// `amx` computes as exactly as the others, and `amx_bf16`, which takes high parts only, faster and less exactly.
//
// Source: Henry, Tang and Heinecke 2019, "Leveraging the bfloat16 artificial intelligence datatype for
// higher-precision computations".
//
// Order of a sum: 32 terms at a time, k ascending; for each 32 the small products first.
#include "amx.h"

#if defined(__AMX_BF16__) && defined(__AMX_TILE__) && defined(__linux__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

namespace fedge {

namespace {

#define FEDGE_UNROLL _Pragma("GCC unroll 16")

typedef uint16_t Half;          // a bf16 number
constexpr int64_t SIDE = 16;    // rows, and columns of floats, of a tile
constexpr int64_t DEPTH = 32;   // bf16 numbers in a row of a tile
constexpr int64_t LINE = 64;    // bytes of a row of a tile

int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
int64_t floats_of(int64_t halves) { return (halves + 1) / 2; }
__mmask16 first_lanes(int64_t n) { return n >= SIDE ? (__mmask16)0xffff : n <= 0 ? (__mmask16)0 : (__mmask16)((1u << n) - 1); }

struct TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {LINE, LINE, LINE, LINE, LINE, LINE, LINE, LINE};
  uint8_t rows[16] = {SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE};
};
const TileShapes SHAPES;

// For as long as it lives, this thread has eight tiles of 16 rows.
struct Tiles {
  Tiles() { _tile_loadconfig(&SHAPES); }
  ~Tiles() { _tile_release(); }
};

// Two vectors of floats as their parts, the upper 16 bits of each being a bf16 number.
template <int PARTS>
struct Parts {
  __m512i a[PARTS], b[PARTS];
};

// The nearest bf16 number, in the upper 16 bits.
inline __m512i nearest(__m512 x) {
  return _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000)),
                          _mm512_set1_epi32((int)0xffff0000u));
}

inline void split(__m512 x, __m512i* part) {
  part[0] = nearest(x);
  x = _mm512_sub_ps(x, _mm512_castsi512_ps(part[0]));
  part[1] = nearest(x);
  part[2] = _mm512_castps_si512(_mm512_sub_ps(x, _mm512_castsi512_ps(part[1])));  // 8 bits are left at most
}

// What puts the parts of two vectors into one: one after the other, or in turns.
inline __m512i after_each_other() {
  return _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21, 19, 17,
                          15, 13, 11, 9, 7, 5, 3, 1);
}
inline __m512i in_turns() {
  return _mm512_set_epi16(63, 31, 61, 29, 59, 27, 57, 25, 55, 23, 53, 21, 51, 19, 49, 17, 47, 15, 45, 13, 43, 11, 41, 9,
                          39, 7, 37, 5, 35, 3, 33, 1);
}

// Parts of 32 numbers, part by part.
template <int PARTS>
inline void parts_of(__m512 first, __m512 second, bool turns, __m512i* out) {
  if constexpr (PARTS == 1) {  // exactly to nearest, ties to even
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(second, first);
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                           5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    out[0] = turns ? _mm512_permutexvar_epi16(order, both) : both;
  } else {
    __m512i a[3], b[3];
    split(first, a);
    split(second, b);
    const __m512i order = turns ? in_turns() : after_each_other();
    FEDGE_UNROLL for (int i = 0; i < 3; i++) out[i] = _mm512_permutex2var_epi16(a[i], order, b[i]);
  }
}

// Numbers side by side -> their parts side by side, `stride` apart; 32 zeros behind them.
template <int PARTS>
void split_row(const float* x, int64_t n, Half* out, int64_t stride) {
  for (int64_t i = 0; i < n + DEPTH; i += DEPTH) {
    __m512 first, second;
    if (i + DEPTH <= n) {
      first = _mm512_loadu_ps(x + i), second = _mm512_loadu_ps(x + i + SIDE);
    } else {
      first = _mm512_maskz_loadu_ps(first_lanes(n - i), x + i);
      second = _mm512_maskz_loadu_ps(first_lanes(n - i - SIDE), x + i + SIDE);
    }
    __m512i part[PARTS];
    parts_of<PARTS>(first, second, false, part);
    FEDGE_UNROLL for (int p = 0; p < PARTS; p++) _mm512_storeu_si512(out + p * stride + i, part[p]);
  }
}

// (k, n) with rows b_row apart -> panels of 16 columns, part by part; two rows in turns make a row of a tile. Zeros
// behind the last row, up to `depth`.
template <int PARTS>
void pack_to(const float* b, int64_t b_row, int64_t k, int64_t n, int64_t depth, Half* out) {
  const int64_t part_halves = depth * SIDE;
  for (int64_t column = 0; column < n; column += SIDE, out += PARTS * part_halves) {
    const __mmask16 lanes = first_lanes(n - column);
    for (int64_t row = 0; row < depth; row += 2) {
      const float* at = b + row * b_row + column;
      const __m512 even = _mm512_maskz_loadu_ps(row < k ? lanes : (__mmask16)0, row < k ? at : b);
      const __m512 odd = _mm512_maskz_loadu_ps(row + 1 < k ? lanes : (__mmask16)0, row + 1 < k ? at + b_row : b);
      __m512i part[PARTS];
      parts_of<PARTS>(even, odd, true, part);
      FEDGE_UNROLL for (int p = 0; p < PARTS; p++) _mm512_storeu_si512(out + p * part_halves + row * SIDE, part[p]);
    }
  }
}

// Taking floats apart costs more than tiles gain where few products are made of a part, so such factors stay whole.
// Where factors are rounded they are so everywhere.
template <int PARTS>
bool worth(int64_t columns) {
  return PARTS == 1 || columns > SIDE;
}

template <int PARTS>
bool worth(const TapGradient& t) {
  return PARTS == 1 || (t.columns > SIDE && t.size * t.channels >= 4 * SIDE);
}

template <int PARTS>
void pack(const float* b, int64_t b_row, int64_t k, int64_t n, float* packed) {
  if (worth<PARTS>(n)) pack_to<PARTS>(b, b_row, k, n, rounded_up(k, DEPTH), (Half*)packed);
}

template <int PARTS>
int64_t packed_floats(int64_t k, int64_t n) {
  return floats_of(rounded_up(k, DEPTH) * rounded_up(n, SIDE) * PARTS);
}

void turn_block(__m512i (&r)[16]) {  // 16 x 16 words
  __m512i t[16];
  FEDGE_UNROLL for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  FEDGE_UNROLL for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  FEDGE_UNROLL for (int h = 0; h < 16; h += 8) FEDGE_UNROLL for (int i = 0; i < 4; i++) {
    t[h + i] = _mm512_shuffle_i32x4(r[h + i], r[h + i + 4], 0x88);
    t[h + i + 4] = _mm512_shuffle_i32x4(r[h + i], r[h + i + 4], 0xdd);
  }
  FEDGE_UNROLL for (int i = 0; i < 8; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

// Rows of time by channels -> channels by time, part by part; zeros behind the last step, up to 32 or a multiple.
template <int PARTS>
void split_turned(const float* x, int64_t row, int64_t steps, int64_t channels, Half* out, int64_t out_row,
                  int64_t part_halves) {
  for (int64_t c = 0; c < channels; c += SIDE) {
    const __mmask16 lanes = first_lanes(channels - c);
    for (int64_t t = 0; t < steps; t += DEPTH) {
      __m512i block[PARTS][16];
      FEDGE_UNROLL for (int i = 0; i < 16; i++) {
        const int64_t at = t + 2 * i;
        const __m512 even = _mm512_maskz_loadu_ps(at < steps ? lanes : (__mmask16)0, x + (at < steps ? at * row + c : 0));
        const __m512 odd =
            _mm512_maskz_loadu_ps(at + 1 < steps ? lanes : (__mmask16)0, x + (at + 1 < steps ? (at + 1) * row + c : 0));
        __m512i part[PARTS];
        parts_of<PARTS>(even, odd, true, part);
        FEDGE_UNROLL for (int p = 0; p < PARTS; p++) block[p][i] = part[p];
      }
      FEDGE_UNROLL for (int p = 0; p < PARTS; p++) {
        turn_block(block[p]);
        FEDGE_UNROLL for (int i = 0; i < 16; i++)
          _mm512_storeu_si512(out + p * part_halves + (c + i) * out_row + t, block[p][i]);
      }
    }
  }
}

// Where the parts of both factors of a block of C lie.
struct Factors {
  const Half *a, *b;
  int64_t a_row_bytes, a_part, b_part, b_panel, blocks;  // distances in halves but for the first
  int64_t pieces = 1, a_piece = 0, b_piece = 0;           // of k, which lie apart
};

template <int R, int N>
inline void multiply() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (N == 2) _tile_dpbf16ps(1, 4, 7);
  if constexpr (R == 2) _tile_dpbf16ps(2, 5, 6);
  if constexpr (R == 2 && N == 2) _tile_dpbf16ps(3, 5, 7);
}

template <int R>
inline void load_a(const Factors& f, const Half* a) {
  _tile_loadd(4, a, f.a_row_bytes);
  if constexpr (R == 2) _tile_loadd(5, (const char*)a + SIDE * f.a_row_bytes, f.a_row_bytes);
}

template <int N>
inline void load_b(const Factors& f, const Half* b) {
  _tile_loadd(6, b, LINE);
  if constexpr (N == 2) _tile_loadd(7, b + f.b_panel, LINE);
}

// Where a block's sums go, and what they begin with.
struct Result {
  float* c;
  int64_t c_row, rows, columns;
  const float* bias;
  bool add, relu;

  // Whether tiles can be stored there as they are.
  bool takes_tiles() const { return rows % SIDE == 0 && columns % SIDE == 0 && !relu; }
};

template <int R, int N>
inline void begin(const Result& to) {
  if (to.add) {
    const int64_t bytes = to.c_row * 4;
    _tile_loadd(0, to.c, bytes);
    if constexpr (N == 2) _tile_loadd(1, to.c + SIDE, bytes);
    if constexpr (R == 2) _tile_loadd(2, to.c + SIDE * to.c_row, bytes);
    if constexpr (R == 2 && N == 2) _tile_loadd(3, to.c + SIDE * to.c_row + SIDE, bytes);
  } else if (to.bias) {  // the same numbers for each row
    _tile_loadd(0, to.bias, 0);
    if constexpr (N == 2) _tile_loadd(1, to.bias + SIDE, 0);
    if constexpr (R == 2) _tile_loadd(2, to.bias, 0);
    if constexpr (R == 2 && N == 2) _tile_loadd(3, to.bias + SIDE, 0);
  } else {
    _tile_zero(0);
    if constexpr (N == 2) _tile_zero(1);
    if constexpr (R == 2) _tile_zero(2);
    if constexpr (R == 2 && N == 2) _tile_zero(3);
  }
}

// R x N tiles of C.
template <int PARTS, int R, int N>
void block(const Factors& f, const Result& to) {
  begin<R, N>(to);
  for (int64_t i = 0; i < f.pieces * f.blocks; i++) {
    const int64_t piece = i / f.blocks, k = i % f.blocks;
    const Half *a = f.a + piece * f.a_piece + k * DEPTH, *b = f.b + piece * f.b_piece + k * DEPTH * SIDE;
    if constexpr (PARTS == 1) {
      load_a<R>(f, a);
      load_b<N>(f, b);
      multiply<R, N>();
    } else {
      load_a<R>(f, a + 2 * f.a_part);
      load_b<N>(f, b);
      multiply<R, N>();  // low high
      load_a<R>(f, a + f.a_part);
      multiply<R, N>();  // middle high
      load_b<N>(f, b + f.b_part);
      multiply<R, N>();  // middle middle
      load_a<R>(f, a);
      multiply<R, N>();  // high middle
      load_b<N>(f, b + 2 * f.b_part);
      multiply<R, N>();  // high low
      load_b<N>(f, b);
      multiply<R, N>();  // high high
    }
  }
  const int64_t bytes = to.c_row * 4;
  _tile_stored(0, to.c, bytes);
  if constexpr (N == 2) _tile_stored(1, to.c + SIDE, bytes);
  if constexpr (R == 2) _tile_stored(2, to.c + SIDE * to.c_row, bytes);
  if constexpr (R == 2 && N == 2) _tile_stored(3, to.c + SIDE * to.c_row + SIDE, bytes);
}

template <int PARTS>
inline void any_block(const Factors& f, const Result& to) {
  if (to.rows > SIDE)
    to.columns > SIDE ? block<PARTS, 2, 2>(f, to) : block<PARTS, 2, 1>(f, to);
  else
    to.columns > SIDE ? block<PARTS, 1, 2>(f, to) : block<PARTS, 1, 1>(f, to);
}

// What tiles cannot do: a part of their rows and columns, and ReLU. `sums` has rows of two tiles.
void hand_over(const Result& to, const float* sums) {
  for (int64_t column = 0; column < to.columns; column += SIDE) {
    const __mmask16 lanes = first_lanes(to.columns - column);
    const __m512 bias = to.bias ? _mm512_maskz_loadu_ps(lanes, to.bias + column) : _mm512_setzero_ps();
    for (int64_t row = 0; row < to.rows; row++) {
      float* c = to.c + row * to.c_row + column;
      __m512 sum = _mm512_load_ps(sums + row * 2 * SIDE + column);
      if (to.bias) sum = _mm512_add_ps(sum, bias);
      if (to.add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, c), sum);
      if (to.relu)
        sum = _mm512_mask_mov_ps(sum, _mm512_cmp_ps_mask(sum, _mm512_setzero_ps(), _CMP_LT_OQ), _mm512_setzero_ps());
      _mm512_mask_storeu_ps(c, lanes, sum);
    }
  }
}

// All columns of up to 32 rows of C.
template <int PARTS>
void rows_of_c(Factors f, Result to, int64_t columns) {
  alignas(64) float sums[4 * SIDE * SIDE];
  for (int64_t column = 0; column < columns; column += 2 * SIDE, f.b += 2 * f.b_panel) {
    to.columns = columns - column < 2 * SIDE ? columns - column : 2 * SIDE;
    if (to.takes_tiles()) {
      any_block<PARTS>(f, to);
    } else {
      any_block<PARTS>(f, {sums, 2 * SIDE, to.rows, to.columns, nullptr, false, false});
      asm volatile("" ::: "memory");  // after tiles are stored there
      hand_over(to, sums);
    }
    to.c += 2 * SIDE;
    if (to.bias) to.bias += 2 * SIDE;
  }
}

int64_t row_halves(const Product& p) { return rounded_up((p.m - 1 + SIDE) * p.a_row + p.k + 2 * DEPTH, DEPTH); }

template <int PARTS>
int64_t work_floats(const Product& p) {
  return floats_of(PARTS * row_halves(p));
}

template <int PARTS>
void packed_product(const Product& p, const float* packed, float* work) {
  if (!worth<PARTS>(p.n)) return kernels_avx512.product(p);
  const int64_t part = row_halves(p), depth = rounded_up(p.k, DEPTH);
  Half* a = (Half*)work;
  split_row<PARTS>(p.a, (p.m - 1) * p.a_row + p.k, a, part);
  asm volatile("" ::: "memory");  // before tiles are loaded from there
  const Tiles tiles;
  Factors f = {a, (const Half*)packed, p.a_row * 2, part, depth * SIDE, PARTS * depth * SIDE, depth / DEPTH};
  for (int64_t row = 0; row < p.m; row += 2 * SIDE, f.a += 2 * SIDE * p.a_row) {
    const int64_t rows = p.m - row < 2 * SIDE ? p.m - row : 2 * SIDE;
    rows_of_c<PARTS>(f, {p.c + row * p.c_row, p.c_row, rows, 0, p.bias, p.add, p.relu}, p.n);
  }
}

// The gradient is computed turned, columns by channels: g is turned once, and x packed twice, from step 0 and from
// step 1 on, so that for each tap pairs of steps lie where tiles are loaded fastest.
struct TapLayout {
  int64_t depth, x_depth, slots, g_row, g_part, x_copy, x_slot;  // in halves, but for slots

  TapLayout(const TapGradient& t, int parts) {
    depth = rounded_up(t.steps, DEPTH);
    x_depth = rounded_up(depth + t.size - 1, DEPTH);
    slots = depth < 512 ? 512 / depth : 1;
    g_row = slots * depth / DEPTH % 2 ? slots * depth : slots * depth + DEPTH;  // rows share no cache lines' places
    g_part = g_row * rounded_up(t.columns, SIDE);
    x_copy = x_depth * rounded_up(t.channels, SIDE) * parts;
    x_slot = x_copy * (t.size > 1 ? 2 : 1);
  }
};

template <int PARTS>
int64_t tap_slots(const TapGradient& t) {
  if (!worth<PARTS>(t)) return 1;
  return TapLayout(t, PARTS).slots;
}

template <int PARTS>
int64_t tap_work_floats(const TapGradient& t) {
  const TapLayout at(t, PARTS);
  return floats_of(PARTS * at.g_part + at.slots * at.x_slot);
}

// Adds up to 32 x 32 turned sums, whose rows are of two tiles.
void hand_over_turned(const TapGradient& t, const float* sums, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  for (int64_t r = 0; r < rows; r += SIDE)
    for (int64_t c = 0; c < columns; c += SIDE) {
      __m512i block[16];
      FEDGE_UNROLL for (int i = 0; i < 16; i++) block[i] = _mm512_load_si512(sums + (c + i) * 2 * SIDE + r);
      turn_block(block);
      const __mmask16 lanes = first_lanes(columns - c);
      float* to = t.c + (row + r) * t.columns + column + c;
      FEDGE_UNROLL for (int i = 0; i < 16; i++) {
        if (r + i >= rows) break;
        __m512 sum = _mm512_castsi512_ps(block[i]);
        if (t.add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, to + i * t.columns), sum);
        _mm512_mask_storeu_ps(to + i * t.columns, lanes, sum);
      }
    }
}

template <int PARTS>
void tap_gradient(const TapGradient& t, float* work) {
  if (!worth<PARTS>(t)) {
    kernels_avx512.product({t.size * t.channels, t.columns, t.steps, t.x, 1, t.x_row, t.g, t.columns, t.c, t.columns,
                            nullptr, t.add, false});
    return;
  }
  const TapLayout at(t, PARTS);
  Half *g = (Half*)work, *x = g + PARTS * at.g_part;
  Half* x_here = x + t.slot * at.x_slot;
  split_turned<PARTS>(t.g, t.columns, t.steps, t.columns, g + t.slot * at.depth, at.g_row, at.g_part);
  const int64_t steps = t.steps + t.size - 1;
  pack_to<PARTS>(t.x, t.x_row, steps, t.channels, at.x_depth, x_here);
  if (t.size > 1) pack_to<PARTS>(t.x + t.x_row, t.x_row, steps - 1, t.channels, at.x_depth, x_here + at.x_copy);
  if (!t.last) return;
  asm volatile("" ::: "memory");
  alignas(64) float sums[4 * SIDE * SIDE];
  const Tiles tiles;
  Factors f = {g, x, at.g_row * 2, at.g_part, at.x_depth * SIDE, PARTS * at.x_depth * SIDE, at.depth / DEPTH,
               t.slot + 1, at.depth, at.x_slot};
  for (int64_t tap = 0; tap < t.size; tap++)
    for (int64_t c = 0; c < t.channels; c += 2 * SIDE) {
      f.b = x + tap % 2 * at.x_copy + c / SIDE * f.b_panel + tap / 2 * 2 * SIDE;
      for (int64_t column = 0; column < t.columns; column += 2 * SIDE) {
        f.a = g + column * at.g_row;
        const int64_t rows = t.channels - c < 2 * SIDE ? t.channels - c : 2 * SIDE;
        const int64_t columns = t.columns - column < 2 * SIDE ? t.columns - column : 2 * SIDE;
        any_block<PARTS>(f, {sums, 2 * SIDE, columns, rows, nullptr, false, false});
        asm volatile("" ::: "memory");  // after tiles are stored there
        hand_over_turned(t, sums, tap * t.channels + c, rows, column, columns);
      }
    }
}

template <int PARTS>
Kernels with_tiles(const char* name) {
  Kernels kernels = kernels_avx512;
  kernels.name = name;
  kernels.packed_floats = packed_floats<PARTS>;
  kernels.pack = pack<PARTS>;
  kernels.work_floats = work_floats<PARTS>;
  kernels.packed_product = packed_product<PARTS>;
  kernels.tap_slots = tap_slots<PARTS>;
  kernels.tap_work_floats = tap_work_floats<PARTS>;
  kernels.tap_gradient = tap_gradient<PARTS>;
  return kernels;
}

// Whether the processor has the instructions, and the system keeps tiles for this process.
bool allowed() {
  unsigned a, b, c, d;
  asm volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
  const bool has = (d >> 22 & 1) && (d >> 24 & 1);
  asm volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(1));
  constexpr long ASK = 0x1023, TILES = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return has && (a >> 5 & 1) && syscall(SYS_arch_prctl, ASK, TILES) == 0;
}

}  // namespace

const Kernels* amx_kernels(bool bf16) {
  static const bool here = allowed();
  static const Kernels exact = with_tiles<3>("amx"), rough = with_tiles<1>("amx_bf16");
  return here ? (bf16 ? &rough : &exact) : nullptr;
}

}  // namespace fedge
#else
namespace fedge {
const Kernels* amx_kernels(bool) { return nullptr; }
}  // namespace fedge
#endif
