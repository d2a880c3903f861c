// What is done number by number: activations, dropout, sums of two branches; and the way of a window in.
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
  for (int64_t first = 0; first < channels; first += 4)  // few rows at a time: more would not stay in the cache
    for (int64_t c = first; c < first + 4 && c < channels; c++)
      for (int64_t t = 0; t < steps; t++) out[t * channels + c] = x[c * steps + t];
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

// Phi(x) and e^(-x^2 / 2) of the normal distribution. With z = |x| / sqrt 2, Phi(-|x|) = e^(-z^2) P(t) / 2 for
// t = 1 / (1 + z / 2), P a polynomial fitted to e^(z^2) erfc(z) at Chebyshev's points of 0 <= z <= 10; relative error
// 2e-7, which float's rounding makes.
struct Normal {
  V phi, power;
};

FEDGE_INLINE Normal normal(V x) {
  const float coefficient[] = {0.0348394263f, -0.249991472f, 0.739632345f, -1.10656438f, 0.809521051f, -0.326097173f,
                               0.314592486f,  0.215788917f,  0.286536259f, 0.281729433f, 1.31065555e-05f};
  const V z = choose(x < 0.0f, -x, x) * all(0.70710678118654752440f);
  const V t = all(1.0f) / fma(all(0.5f), z, all(1.0f));
  V p = all(coefficient[0]);
  FEDGE_UNROLL for (int i = 1; i < 11; i++) p = fma(p, t, all(coefficient[i]));
  const V power = exponential(-(z * z)), tail = all(0.5f) * power * p;
  return {choose(x < 0.0f, tail, choose(x == x, all(1.0f) - tail, x)), power};
}

// tanh, from e^(2 x)
FEDGE_INLINE V tangent(V x) {
  const V bounded = choose(x < -20.0f, all(-20.0f), choose(x > 20.0f, all(20.0f), x));
  return all(1.0f) - all(2.0f) / (exponential(bounded + bounded) + all(1.0f));
}

// 1 / (1 + e^-x)
FEDGE_INLINE V logistic(V x) { return all(1.0f) / (all(1.0f) + exponential(-x)); }

// tanh, exact near zero, too: for |x| < 5 / 8 by the polynomial of Cephes' tanhf (Moshier 1989)
FEDGE_INLINE V hyperbolic(V x) {
  const V z = x * x, size = choose(x < 0.0f, -x, x);
  V p = fma(all(-5.70498872745e-3f), z, all(2.06390887954e-2f));
  p = fma(p, z, all(-5.37397155531e-2f));
  p = fma(p, z, all(1.33314422036e-1f));
  p = fma(p, z, all(-3.33332819422e-1f));
  const V outer = all(1.0f) - all(2.0f) / (exponential(size + size) + all(1.0f));
  return choose(size < 0.625f, fma(p * z, x, x), choose(x < 0.0f, -outer, outer));
}

enum Curve : int { LOGISTIC, HYPERBOLIC, SWISH };

static void curve(int kind, const float* x, float* y, int64_t n) {
  each(n, [&](int64_t i, int64_t count) {
    const V v = load(x + i);
    store_first(y + i, kind == HYPERBOLIC ? hyperbolic(v) : kind == SWISH ? v * logistic(v) : logistic(v), count);
  });
}

// From what the curve gave; of x sigma(x) (SiLU; Elfwing et al. 2018), from x.
static void curve_back(int kind, const float* from, const float* g, float* out, int64_t n) {
  const V one = all(1.0f);
  each(n, [&](int64_t i, int64_t count) {
    const V v = load(from + i);
    V slope = kind == HYPERBOLIC ? fma(-v, v, one) : v * (one - v);
    if (kind == SWISH) {
      const V s = logistic(v);
      slope = s * fma(v, one - s, one);
    }
    store_first(out + i, load(g + i) * slope, count);
  });
}

constexpr float ROOT = 0.79788456080286535588f, CUBE = 0.044715f;  // sqrt(2 / pi), of GELU by tanh

// GELU, x Phi(x), or x (1 + tanh(ROOT (x + CUBE x^3))) / 2 (Hendrycks and Gimpel 2016)
static void gelu(const float* x, float* y, int64_t n, bool by_tanh) {
  each(n, [&](int64_t i, int64_t count) {
    const V v = load(x + i);
    V share = by_tanh ? all(0.5f) * (all(1.0f) + tangent(all(ROOT) * fma(all(CUBE) * v * v, v, v))) : normal(v).phi;
    store_first(y + i, v * share, count);
  });
}

static void gelu_back(const float* x, const float* g, float* out, int64_t n, bool by_tanh) {
  each(n, [&](int64_t i, int64_t count) {
    const V v = load(x + i), half = all(0.5f), one = all(1.0f);
    V slope;
    if (by_tanh) {
      const V t = tangent(all(ROOT) * fma(all(CUBE) * v * v, v, v));
      const V inner = all(ROOT) * fma(all(3 * CUBE) * v, v, one);
      slope = fma(half * v * fma(-t, t, one), inner, half * (one + t));
    } else {
      const Normal at = normal(v);
      slope = fma(v * all(0.39894228040143267794f), at.power, at.phi);
    }
    store_first(out + i, load(g + i) * slope, count);
  });
}

}  // namespace FEDGE_ISA
