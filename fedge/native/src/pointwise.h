// What is done number by number: ReLU, GELU, dropout, sums of two branches; and the way of a window in.
#pragma once
#include "vector.h"

namespace FEDGE_ISA {

// Calls work(offset, lanes) for vectors of n numbers one after another; the last may have fewer lanes.
template <class Work>
FEDGE_INLINE void each(int64_t n, const Work& work) {
  for (int64_t i = 0; i < n; i += W) work(i, lanes(n - i));
}

static void relu_forward(const float* x, float* y, int64_t n) {
  each(n, [&](int64_t i, int64_t count) { store_first(y + i, relu(load(x + i)), count); });
}

static void relu_back(const float* y, const float* g, float* out, int64_t n) {
  each(n, [&](int64_t i, int64_t count) {
    store_first(out + i, choose(load(y + i) > 0.0f, load(g + i), all(0.0f)), count);
  });
}

static void add_to(const float* x, float* sum, int64_t n) {
  each(n, [&](int64_t i, int64_t count) { store_first(sum + i, load(sum + i) + load(x + i), count); });
}

// Rows of time by channels from the (channels, steps) that a window file holds.
static void gather(const float* x, int64_t channels, int64_t steps, float* out) {
  for (int64_t t = 0; t < steps; t++)
    for (int64_t c = 0; c < channels; c++) out[t * channels + c] = x[c * steps + t];
}

static void drop(const float* x, const uint8_t* mask, int64_t rows, int64_t columns, bool by_column, float scale,
                 float* y) {
  for (int64_t r = 0; r < rows; r++, x += columns, y += columns) {
    const uint8_t* kept = by_column ? mask : mask + r * columns;
    for (int64_t c = 0; c < columns; c++) y[c] = x[c] * (kept[c] ? scale : 0.0f);
  }
}

// e^x for |x| <= 87: x = n log 2 + r, |r| <= log(2) / 2, and a Taylor polynomial of r; error below 1 ulp or so.
FEDGE_INLINE V exponential(V x) {
  x = choose(x < -87.0f, all(-87.0f), choose(x > 87.0f, all(87.0f), x));
  const V magic = all(12582912.0f);  // 1.5 x 2^23: adding it rounds to a whole number
  V n = fma(x, all(1.44269504088896341f), magic) - magic;
  V r = fma(n, all(-0.693359375f), x);
  r = fma(n, all(2.12194440e-4f), r);
  V p = all(1.0f / 5040);
  p = fma(p, r, all(1.0f / 720));
  p = fma(p, r, all(1.0f / 120));
  p = fma(p, r, all(1.0f / 24));
  p = fma(p, r, all(1.0f / 6));
  p = fma(p, r, all(0.5f));
  p = fma(p, r, all(1.0f));
  p = fma(p, r, all(1.0f));
  I power = (__builtin_convertvector(n, I) + 127) << 23;
  return p * (V)power;
}

// GELU and its derivative, x Phi(x) and Phi(x) + x phi(x), Phi and phi of the normal distribution: through the
// complementary error function in double precision, whose cost is that of a few layers of a window.
static double normal_cdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }

static void gelu(const float* x, float* y, int64_t n, bool by_tanh) {
  if (!by_tanh) {
    for (int64_t i = 0; i < n; i++) y[i] = (float)(x[i] * normal_cdf(x[i]));
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    const double v = x[i], inner = 0.79788456080286535588 * (v + 0.044715 * v * v * v);
    y[i] = (float)(0.5 * v * (1 + std::tanh(inner)));
  }
}

static void gelu_back(const float* x, const float* g, float* out, int64_t n, bool by_tanh) {
  for (int64_t i = 0; i < n; i++) {
    const double v = x[i];
    double slope;
    if (by_tanh) {
      const double inner = 0.79788456080286535588 * (v + 0.044715 * v * v * v), t = std::tanh(inner);
      slope = 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * v * v);
    } else {
      slope = normal_cdf(v) + v * 0.39894228040143267794 * std::exp(-0.5 * v * v);
    }
    out[i] = (float)(g[i] * slope);
  }
}

}  // namespace FEDGE_ISA
