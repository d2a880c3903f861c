// The update of weights (docstring of fedge.training.sgd), and the norm that clipping asks for.
#pragma once
#include "kernels.h"
#include "vector.h"

namespace FEDGE_ISA {

// Sum of squares: vectors of 1,024 numbers in float, the rest in double.
static double squares(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t first = 0; first < n; first += 1024) {
    const int64_t end = first + 1024 < n ? first + 1024 : n;
    V partial[2] = {};
    int64_t i = first;
    for (; i + 2 * W <= end; i += 2 * W)
      FEDGE_UNROLL for (int j = 0; j < 2; j++) {
        const V v = load(x + i + j * W);
        partial[j] = fma(v, v, partial[j]);
      }
    const V both = partial[0] + partial[1];
    for (int j = 0; j < W; j++) sum += both[j];
    for (; i < end; i++) sum += (double)x[i] * x[i];
  }
  return sum;
}

static void descend(const fedge::Step& step, int64_t n, float clip, const float* g, const float* start,
                    const float* correction, float* velocity, float* w) {
  const V scale = all(clip), mu = all(step.prox_mu), decay = all(step.weight_decay);
  const V momentum = all(step.momentum), lr = all(-step.lr);
  for (int64_t i = 0; i < n; i += W) {
    const int64_t count = lanes(n - i);
    const V weight = load(w + i);
    V u = load(g + i) * scale;
    if (start) u = fma(mu, weight - load(start + i), u);
    if (correction) u += load(correction + i);
    u = fma(decay, weight, u);
    if (velocity) {
      u = fma(momentum, load(velocity + i), u);
      store_first(velocity + i, u, count);
    }
    store_first(w + i, fma(lr, u, weight), count);
  }
}

}  // namespace FEDGE_ISA
