// The matrix product that convolutions and linear layers are made of.
//
// C is cut into tiles that stay in registers: R rows by N vectors. For every k, N vectors of B are loaded and R
// numbers of A spread over a vector each; R x N fused multiplications follow. 6 x 4 vectors of AVX-512 fill 29 of
// its 32 registers and need 10 loads per 24 multiplications, so the two multipliers are kept busy.
//
// Order of a sum: k ascending, in blocks of BLOCK whose sums are added up one after another. It does not depend
// on the tile an entry lies in, nor on the number of rows. Adding whole blocks, and whole products to C, keeps
// errors smaller than one long sum would. A block of B stays in the first cache while all rows of A pass by it.
#pragma once
#include "kernels.h"
#include "vector.h"

namespace FEDGE_ISA {

constexpr int64_t BLOCK = 128;
constexpr int64_t FAR = 256;  // floats between rows of B from which they are put side by side first
constexpr int MOST_VECTORS = REGISTERS == 32 ? 4 : 2;
constexpr int most_rows(int vectors) {
  return REGISTERS == 32 ? (vectors == 4 ? 6 : vectors == 3 ? 8 : 12) : (vectors == 2 ? 6 : 12);
}

struct Tile {
  int64_t k, a_row, a_step, b_row, c_row, columns;  // columns of the last vector
  const float *a, *b, *bias;
  float* c;
  bool add, relu;
};

template <int R, int N>
static void tile(const Tile& t) {
  V sum[R][N];
  FEDGE_UNROLL for (int j = 0; j < N; j++) {
    V first = t.bias ? load(t.bias + j * W) : all(0.0f);
    FEDGE_UNROLL for (int i = 0; i < R; i++) sum[i][j] = first;
  }
  const float *a = t.a, *b = t.b;
  const int64_t a_row = t.a_row, a_step = t.a_step, b_row = t.b_row;
  for (int64_t k = t.k; k > 0; k--, a += a_step, b += b_row) {
    V row[N];
    FEDGE_UNROLL for (int j = 0; j < N; j++) row[j] = load(b + j * W);
    FEDGE_UNROLL for (int i = 0; i < R; i++) {
      V spread = all(a[i * a_row]);
      FEDGE_UNROLL for (int j = 0; j < N; j++) sum[i][j] = fma(spread, row[j], sum[i][j]);
    }
  }
  FEDGE_UNROLL for (int i = 0; i < R; i++) {
    float* c = t.c + i * t.c_row;
    FEDGE_UNROLL for (int j = 0; j < N; j++) {
      V out = sum[i][j];
      if (t.add) out = load(c + j * W) + out;
      if (t.relu) out = relu(out);
      if (j + 1 < N)
        store(c + j * W, out);
      else
        store_first(c + j * W, out, t.columns);
    }
  }
}

typedef void (*TileFunction)(const Tile&);

// The function for 1 to 12 rows and 1 to 4 vectors, for those that there are.
template <int N>
struct Tiles {
  template <int R>
  static TileFunction of(int rows) {
    if constexpr (R == 0)
      return nullptr;
    else
      return rows == R ? &tile<R, N> : of<R - 1>(rows);
  }
  static TileFunction get(int rows) { return of<most_rows(N)>(rows); }
};

static TileFunction tile_function(int rows, int vectors) {
  switch (vectors) {
    case 1: return Tiles<1>::get(rows);
    case 2: return Tiles<2>::get(rows);
    case 3: return MOST_VECTORS >= 3 ? Tiles<(MOST_VECTORS >= 3 ? 3 : 1)>::get(rows) : nullptr;
    default: return MOST_VECTORS >= 4 ? Tiles<(MOST_VECTORS >= 4 ? 4 : 1)>::get(rows) : nullptr;
  }
}

// All rows of one panel of columns and one block of k, in tiles of nearly equal height.
static void rows_of_tiles(Tile t, int64_t m, int vectors) {
  const int most = most_rows(vectors);
  const int64_t tiles = (m + most - 1) / most, low = m / tiles, taller = m % tiles;
  const TileFunction tall = tile_function((int)low + 1, vectors), flat = tile_function((int)low, vectors);
  for (int64_t i = 0; i < tiles; i++) {
    const int64_t rows = i < taller ? low + 1 : low;
    (i < taller ? tall : flat)(t);
    t.a += rows * t.a_row;
    t.c += rows * t.c_row;
  }
}

// Copies a panel of B, whose rows lie so far apart that they would compete for the same places in the cache.
static const float* side_by_side(const float* b, int64_t b_row, int64_t rows, int vectors, float* packed) {
  for (int64_t k = 0; k < rows; k++)
    for (int j = 0; j < vectors; j++) store(packed + (k * vectors + j) * W, load(b + k * b_row + j * W));
  return packed;
}

static void product(const fedge::Product& p) {
  alignas(64) float packed[BLOCK * MOST_VECTORS * W];
  const bool packs = p.b_row > FAR && p.m >= 3 * most_rows(MOST_VECTORS);
  for (int64_t column = 0; column < p.n; column += MOST_VECTORS * W) {
    const int64_t left = p.n - column;
    const int vectors = left >= MOST_VECTORS * W ? MOST_VECTORS : (int)((left + W - 1) / W);
    const int64_t last = left - (vectors - 1) * W;
    for (int64_t k = 0; k < p.k; k += BLOCK) {
      const bool first = k == 0, end = k + BLOCK >= p.k;
      Tile t;
      t.k = end ? p.k - k : BLOCK;
      t.a_row = p.a_row, t.a_step = p.a_step, t.b_row = p.b_row, t.c_row = p.c_row;
      t.columns = last < W ? last : W;
      t.a = p.a + k * p.a_step;
      t.b = p.b + k * p.b_row + column;
      t.bias = first && p.bias ? p.bias + column : nullptr;
      t.c = p.c + column;
      t.add = p.add || !first;
      t.relu = p.relu && end;
      if (packs) {
        t.b = side_by_side(t.b, p.b_row, t.k, vectors, packed);
        t.b_row = vectors * W;
      }
      rows_of_tiles(t, p.m, vectors);
    }
  }
}

}  // namespace FEDGE_ISA
