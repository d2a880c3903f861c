// Norms of rows of numbers that lie side by side: LayerNorm (Ba, Kiros and Hinton 2016).
//
// Of each row are kept the mean as a float, what that missed, and 1 / its deviation.
#pragma once
#include <cmath>

#include "norm.h"
#include "vector.h"

namespace FEDGE_ISA {

// Lanes behind the last of `count` are zero.
FEDGE_INLINE V first_lanes(V v, int64_t count) {
  if (count < W)
    for (int64_t i = count; i < W; i++) v[i] = 0.0f;
  return v;
}

FEDGE_INLINE double over_lanes(V v) {
  double sum = 0;
  for (int i = 0; i < W; i++) sum += v[i];
  return sum;
}

// Adds up what work(c) gives for vectors from number c on; the last is cut to the row.
template <class Work>
FEDGE_INLINE double over_row(int64_t length, const Work& work) {
  V sum[SUMS] = {};
  int64_t c = 0;
  for (; c + SUMS * W <= length; c += SUMS * W) FEDGE_UNROLL for (int i = 0; i < SUMS; i++) sum[i] += work(c + i * W);
  for (; c < length; c += W) sum[0] += first_lanes(work(c), lanes(length - c));
  return over_lanes(total(sum));
}

static void row_norm(int64_t rows, int64_t length, double eps, const float* x, const float* weight, const float* bias,
                     float* y, float* kept) {
  for (int64_t r = 0; r < rows; r++, x += length, y += length, kept += 3) {
    const float mean = (float)(over_row(length, [&](int64_t c) { return load(x + c); }) / length);
    const V middle = all(mean);
    const double off = over_row(length, [&](int64_t c) { return load(x + c) - middle; });
    const double squares = over_row(length, [&](int64_t c) {
      const V d = load(x + c) - middle;
      return d * d;
    });
    const double missed = off / length, about = squares - missed * off;
    kept[0] = mean, kept[1] = (float)missed;
    kept[2] = (float)(1.0 / std::sqrt((about < 0 ? 0 : about) / length + eps));
    const V rest = all(kept[1]), inverse = all(kept[2]);
    for (int64_t c = 0; c < length; c += W) {
      V out = (load(x + c) - middle - rest) * inverse;
      if (weight) out *= load(weight + c);
      if (bias) out += load(bias + c);
      store_first(y + c, out, lanes(length - c));
    }
  }
}

// dx = (g w - mean(g w) - x^ mean(g w x^)) / deviation. Adds the gradients of weights and biases to `by_weight` and
// `by_bias`; `out` may be null.
static void row_norm_back(int64_t rows, int64_t length, const float* x, const float* g, const float* weight,
                          const float* kept, float* by_weight, float* by_bias, float* out) {
  for (int64_t r = 0; r < rows; r++, x += length, g += length, kept += 3) {
    const V middle = all(kept[0]), rest = all(kept[1]), inverse = all(kept[2]);
    auto unit = [&](int64_t c) __attribute__((always_inline)) { return (load(x + c) - middle - rest) * inverse; };
    auto weighted = [&](int64_t c) __attribute__((always_inline)) { return weight ? load(g + c) * load(weight + c) : load(g + c); };
    for (int64_t c = 0; c < length; c += W) {
      const int64_t count = lanes(length - c);
      store_first(by_weight + c, fma(load(g + c), unit(c), load(by_weight + c)), count);
      store_first(by_bias + c, load(by_bias + c) + load(g + c), count);
    }
    if (!out) continue;
    const V mean = all((float)(over_row(length, [&](int64_t c) { return weighted(c); }) / length));
    const V along = all((float)(over_row(length, [&](int64_t c) { return weighted(c) * unit(c); }) / length));
    for (int64_t c = 0; c < length; c += W)
      store_first(out + c, (weighted(c) - mean - unit(c) * along) * inverse, lanes(length - c));
    out += length;
  }
}

}  // namespace FEDGE_ISA
