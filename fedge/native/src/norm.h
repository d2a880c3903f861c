// BatchNorm over windows and time (Ioffe and Szegedy 2015), window by window, so that each is still in the cache.
//
// Statistics: mean and squared distance of a window, in two passes of which the second corrects the first's mean, are
// merged with those of the windows before it (Chan, Golub and LeVeque 1983), in double precision.
#pragma once
#include "kernels.h"
#include "vector.h"

namespace FEDGE_ISA {

constexpr int SUMS = 4;  // that take turns, so that additions need not wait for each other

FEDGE_INLINE V total(const V (&sum)[SUMS]) { return (sum[0] + sum[1]) + (sum[2] + sum[3]); }

static void norm_statistics(const fedge::Norm& norm, const float* x, int64_t steps, int64_t rows_before) {
  const double n = (double)rows_before + (double)steps, share = steps / n, between = rows_before * share;
  for (int64_t c = 0; c < norm.channels; c += W) {
    V sum[SUMS] = {}, squares[SUMS] = {};
    int64_t t = 0;
    for (; t + SUMS <= steps; t += SUMS)
      FEDGE_UNROLL for (int i = 0; i < SUMS; i++) sum[i] += load(x + (t + i) * norm.channels + c);
    for (; t < steps; t++) sum[0] += load(x + t * norm.channels + c);
    const V mean = total(sum) * all((float)(1.0 / steps));
    V rest[SUMS] = {};
    for (t = 0; t + SUMS <= steps; t += SUMS)
      FEDGE_UNROLL for (int i = 0; i < SUMS; i++) {
        const V d = load(x + (t + i) * norm.channels + c) - mean;
        rest[i] += d;
        squares[i] = fma(d, d, squares[i]);
      }
    for (; t < steps; t++) {
      const V d = load(x + t * norm.channels + c) - mean;
      rest[0] += d;
      squares[0] = fma(d, d, squares[0]);
    }
    // The float mean is some last bits off; where a channel hardly varies those are all that (x - mean) would be,
    // alike in every row, and what multiplies x would no longer sum to zero.
    const V off = total(rest), m2 = total(squares);
    for (int64_t i = 0; i < lanes(norm.channels - c); i++) {
      const double missed = (double)off[i] / steps, d = (double)mean[i] + missed - norm.sum_mean[c + i];
      norm.sum_mean[c + i] += d * share;
      const double about_mean = (double)m2[i] - missed * off[i];
      norm.sum_m2[c + i] += (about_mean < 0 ? 0 : about_mean) + d * d * between;
    }
  }
}

static void norm_apply(const fedge::Norm& norm, const float* x, int64_t steps, float* y) {
  const int64_t channels = norm.channels;
  for (int64_t t = 0; t < steps; t++, x += channels, y += channels)
    for (int64_t c = 0; c < channels; c += W) {
      V out = fma(load(x + c), load(norm.scale + c), load(norm.shift + c));
      if (norm.relu) out = relu(out);
      store_first(y + c, out, lanes(channels - c));
    }
}

// Sums of gradients, and of gradients times (x - mean); where ReLU follows, only of what it let through.
static void norm_sums(const fedge::Norm& norm, const float* x, const float* g, int64_t g_row, int64_t steps) {
  const int64_t channels = norm.channels;
  const V zero = all(0.0f);
  for (int64_t c = 0; c < channels; c += W) {
    const V scale = load(norm.scale + c), shift = load(norm.shift + c), mean = load(norm.mean + c);
    V sum[SUMS] = {}, products[SUMS] = {};
    auto row = [&](int64_t t, int i) __attribute__((always_inline)) {
      const V in = load(x + t * channels + c);
      V gradient = load(g + t * g_row + c);
      if (norm.relu) gradient = choose(fma(in, scale, shift) > 0.0f, gradient, zero);
      sum[i] += gradient;
      products[i] = fma(gradient, in - mean, products[i]);
    };
    int64_t t = 0;
    for (; t + SUMS <= steps; t += SUMS) FEDGE_UNROLL for (int i = 0; i < SUMS; i++) row(t + i, i);
    for (; t < steps; t++) row(t, 0);
    const V sums = total(sum), weighted = total(products);
    for (int64_t i = 0; i < lanes(channels - c); i++) {
      norm.sum_g[c + i] += sums[i];
      norm.sum_gx[c + i] += weighted[i];
    }
  }
}

static void norm_back(const fedge::Norm& norm, const float* x, const float* g, int64_t g_row, int64_t steps,
                      float* out) {
  const int64_t channels = norm.channels;
  for (int64_t t = 0; t < steps; t++, x += channels, g += g_row, out += channels)
    for (int64_t c = 0; c < channels; c += W) {
      const V in = load(x + c);
      V gradient = load(g + c);
      if (norm.relu)
        gradient = choose(fma(in, load(norm.scale + c), load(norm.shift + c)) > 0.0f, gradient, all(0.0f));
      // from the mean, not from zero: where a channel hardly varies, the rest would be rounding, alike in all rows
      const V rest = fma(in - load(norm.mean + c), load(norm.by_x + c), load(norm.by_one + c));
      store_first(out + c, fma(gradient, load(norm.by_g + c), rest), lanes(channels - c));
    }
}

}  // namespace FEDGE_ISA
