// Pooling over time, channel by channel. Padding is of steps that no maximum comes from, and that count as zeros
// in a mean.
#pragma once
#include "kernels.h"
#include "vector.h"

namespace FEDGE_ISA {

constexpr uint8_t NOWHERE = 255;  // the place of a maximum that ReLU has cut off: no gradient goes there

// First and last tap (exclusive) of an output step that lie on steps that there are.
struct Taps {
  int64_t begin, end, first_step;
};

FEDGE_INLINE Taps taps(const fedge::Pool& p, int64_t out_step) {
  const int64_t at = out_step * p.stride - p.padding;
  const int64_t begin = at < 0 ? -at : 0, end = at + p.size > p.steps ? p.steps - at : p.size;
  return {begin, end, at};
}

FEDGE_INLINE void store_places(uint8_t* p, I place, int64_t n) {
  const B bytes = narrowed(place);
  if (n == W) {
    std::memcpy(p, &bytes, W);
    return;
  }
  for (int64_t i = 0; i < n; i++) p[i] = bytes[i];
}

FEDGE_INLINE I load_places(const uint8_t* p) {
  B bytes;
  std::memcpy(&bytes, p, W);
  return widened(bytes);
}

// Whether each step belongs to one output, or to none behind the last.
FEDGE_INLINE bool apart(const fedge::Pool& p) { return p.stride == p.size && p.padding == 0; }

// `max_pool` of a size that is known beforehand, taps apart.
template <int SIZE>
static void max_pool_of(const fedge::Pool& p, const float* x, float* y, uint8_t* place) {
  const int64_t channels = p.channels;
  for (int64_t o = 0; o < p.out_steps; o++, x += SIZE * channels, y += channels, place += channels)
    for (int64_t c = 0; c < channels; c += W) {
      V best = load(x + c);
      I at = {};
      FEDGE_UNROLL for (int j = 1; j < SIZE; j++) {
        const V next = load(x + j * channels + c);
        const I better = (next > best) | (next != next);
        best = choose(better, next, best);
        at = better ? I{} + j : at;
      }
      if (p.relu) {
        at = best > 0.0f ? at : I{} + (int32_t)NOWHERE;
        best = relu(best);
      }
      const int64_t n = lanes(channels - c);
      store_first(y + c, best, n);
      store_places(place + c, at, n);
    }
}

template <int SIZE>
static void max_pool_back_of(const fedge::Pool& p, const float* g, const uint8_t* place, float* out) {
  const int64_t channels = p.channels, covered = SIZE * p.out_steps;
  if (covered < p.steps) std::memset(out + covered * channels, 0, sizeof(float) * (p.steps - covered) * channels);
  for (int64_t o = 0; o < p.out_steps; o++, g += channels, place += channels, out += SIZE * channels)
    for (int64_t c = 0; c < channels; c += W) {
      const int64_t n = lanes(channels - c);
      const V gradient = load(g + c);
      const I at = load_places(place + c);
      FEDGE_UNROLL for (int j = 0; j < SIZE; j++)
        store_first(out + j * channels + c, choose(at == I{} + j, gradient, all(0.0f)), n);
    }
}

// The first of equal maxima counts, as in PyTorch; NaN wins.
static void max_pool(const fedge::Pool& p, const float* x, float* y, uint8_t* place) {
  if (apart(p) && p.size == 2) return max_pool_of<2>(p, x, y, place);
  if (apart(p) && p.size == 4) return max_pool_of<4>(p, x, y, place);
  for (int64_t o = 0; o < p.out_steps; o++, y += p.channels, place += p.channels) {
    const Taps t = taps(p, o);
    for (int64_t c = 0; c < p.channels; c += W) {
      const float* in = x + (t.first_step + t.begin) * p.channels + c;
      V best = load(in);
      I at = I{} + (int32_t)t.begin;
      for (int64_t j = t.begin + 1; j < t.end; j++) {
        in += p.channels;
        const V next = load(in);
        const I better = (next > best) | (next != next);
        best = choose(better, next, best);
        at = better ? I{} + (int32_t)j : at;
      }
      if (p.relu) {
        at = best > 0.0f ? at : I{} + (int32_t)NOWHERE;
        best = relu(best);
      }
      const int64_t n = lanes(p.channels - c);
      store_first(y + c, best, n);
      store_places(place + c, at, n);
    }
  }
}

static void max_pool_back(const fedge::Pool& p, const float* g, const uint8_t* place, float* out) {
  if (apart(p) && p.size == 2) return max_pool_back_of<2>(p, g, place, out);
  if (apart(p) && p.size == 4) return max_pool_back_of<4>(p, g, place, out);
  const bool alone = p.stride >= p.size && p.padding == 0;
  if (!alone || p.stride > p.size || p.out_steps * p.stride < p.steps)
    std::memset(out, 0, sizeof(float) * p.steps * p.channels);
  for (int64_t o = 0; o < p.out_steps; o++, g += p.channels, place += p.channels) {
    const Taps t = taps(p, o);
    for (int64_t c = 0; c < p.channels; c += W) {
      const int64_t n = lanes(p.channels - c);
      const V gradient = load(g + c);
      const I at = load_places(place + c);
      float* to = out + (t.first_step + t.begin) * p.channels + c;
      for (int64_t j = t.begin; j < t.end; j++, to += p.channels) {
        V share = choose(at == I{} + (int32_t)j, gradient, all(0.0f));
        if (!alone) share += load(to);
        store_first(to, share, n);
      }
    }
  }
}

static void mean_pool(const fedge::Pool& p, const float* x, float scale, float* y) {
  for (int64_t o = 0; o < p.out_steps; o++, y += p.channels) {
    const Taps t = taps(p, o);
    for (int64_t c = 0; c < p.channels; c += W) {
      const float* in = x + (t.first_step + t.begin) * p.channels + c;
      V sum = all(0.0f);
      for (int64_t j = t.begin; j < t.end; j++, in += p.channels) sum += load(in);
      store_first(y + c, sum * all(scale), lanes(p.channels - c));
    }
  }
}

static void mean_pool_back(const fedge::Pool& p, const float* g, float scale, float* out) {
  std::memset(out, 0, sizeof(float) * p.steps * p.channels);
  for (int64_t o = 0; o < p.out_steps; o++, g += p.channels) {
    const Taps t = taps(p, o);
    for (int64_t c = 0; c < p.channels; c += W) {
      const V share = load(g + c) * all(scale);
      float* to = out + (t.first_step + t.begin) * p.channels + c;
      for (int64_t j = t.begin; j < t.end; j++, to += p.channels)
        store_first(to, load(to) + share, lanes(p.channels - c));
    }
  }
}

// Sum over all steps times `scale`, in four sums that take turns.
static void mean_all(const float* x, int64_t steps, int64_t channels, float scale, float* y) {
  for (int64_t c = 0; c < channels; c += W) {
    V sum[4] = {all(0.0f), all(0.0f), all(0.0f), all(0.0f)};
    int64_t t = 0;
    for (; t + 4 <= steps; t += 4)
      FEDGE_UNROLL for (int i = 0; i < 4; i++) sum[i] += load(x + (t + i) * channels + c);
    for (; t < steps; t++) sum[0] += load(x + t * channels + c);
    store_first(y + c, ((sum[0] + sum[1]) + (sum[2] + sum[3])) * all(scale), lanes(channels - c));
  }
}

// Adds the sum over rows, which lie `row` numbers apart, of each column to `sums`.
static void column_sums_of(const float* x, int64_t rows, int64_t columns, int64_t row, float* sums) {
  for (int64_t c = 0; c < columns; c += W) {
    V sum[4] = {all(0.0f), all(0.0f), all(0.0f), all(0.0f)};
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
      FEDGE_UNROLL for (int i = 0; i < 4; i++) sum[i] += load(x + (r + i) * row + c);
    for (; r < rows; r++) sum[0] += load(x + r * row + c);
    store_first(sums + c, load(sums + c) + ((sum[0] + sum[1]) + (sum[2] + sum[3])), lanes(columns - c));
  }
}

static void column_sums(const float* x, int64_t rows, int64_t columns, float* sums) {
  column_sums_of(x, rows, columns, columns, sums);
}

}  // namespace FEDGE_ISA
