// Images: pooling over lines and steps, and what makes a convolution over both one product of matrices.
//
// An image is lines of steps of channels, one line after another. What an output position is made of, tap by tap and
// line by line, is one row of `image_columns`; rows lie `row` floats apart. Padding is of zeros.
#pragma once
#include "kernels.h"
#include "pool.h"
#include "vector.h"

namespace FEDGE_ISA {

// Taps of an output position along one axis that lie on positions that there are.
FEDGE_INLINE Taps taps_along(const fedge::Image& im, int axis, int64_t out) {
  const int64_t at = out * im.stride[axis] - im.padding[axis], there = axis ? im.steps : im.lines;
  const int64_t begin = at < 0 ? -at : 0, end = at + im.size[axis] > there ? there - at : im.size[axis];
  return {begin, end < begin ? begin : end, at};
}

// n floats in whole vectors: what is written too far is written over by what comes next, or lies in the slack.
FEDGE_INLINE float* copy_on(const float* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; i += W) store(to + i, load(from + i));
  return to + n;
}

FEDGE_INLINE float* zeros_on(int64_t n, float* to) {
  for (int64_t i = 0; i < n; i += W) store(to + i, all(0.0f));
  return to + n;
}

static void image_columns(const fedge::Image& im, const float* x, int64_t first_line, int64_t lines, int64_t row,
                          float* columns) {
  const int64_t c = im.channels, run = im.size[1] * c;
  for (int64_t line = first_line; line < first_line + lines; line++) {
    const Taps down = taps_along(im, 0, line);
    for (int64_t step = 0; step < im.out_steps; step++, columns += row) {
      const Taps along = taps_along(im, 1, step);
      float* to = zeros_on(down.begin * run, columns);
      for (int64_t tap = down.begin; tap < down.end; tap++) {
        const float* from = x + ((down.first_step + tap) * im.steps + along.first_step + along.begin) * c;
        to = zeros_on(along.begin * c, to);
        to = copy_on(from, (along.end - along.begin) * c, to);
        to = zeros_on((im.size[1] - along.end) * c, to);
      }
      zeros_on((im.size[0] - down.end) * run, to);
    }
  }
}

// Adds each row to what it was made of.
static void image_add_columns(const fedge::Image& im, const float* columns, int64_t first_line, int64_t lines, int64_t row,
                              float* x) {
  const int64_t c = im.channels, run = im.size[1] * c;
  for (int64_t line = first_line; line < first_line + lines; line++) {
    const Taps down = taps_along(im, 0, line);
    for (int64_t step = 0; step < im.out_steps; step++, columns += row) {
      const Taps along = taps_along(im, 1, step);
      const int64_t n = (along.end - along.begin) * c;
      for (int64_t tap = down.begin; tap < down.end; tap++) {
        float* to = x + ((down.first_step + tap) * im.steps + along.first_step + along.begin) * c;
        const float* from = columns + tap * run + along.begin * c;
        for (int64_t i = 0; i < n; i += W) store_first(to + i, load(to + i) + load(from + i), lanes(n - i));
      }
    }
  }
}

// The first of equal maxima counts, line by line, as in PyTorch; NaN wins. ReLU comes before where `with_relu`.
static void image_max_pool(const fedge::Image& im, const float* x, bool with_relu, float* y, uint8_t* place) {
  const int64_t channels = im.channels;
  for (int64_t line = 0; line < im.out_lines; line++) {
    const Taps down = taps_along(im, 0, line);
    for (int64_t step = 0; step < im.out_steps; step++, y += channels, place += channels) {
      const Taps along = taps_along(im, 1, step);
      for (int64_t c = 0; c < channels; c += W) {
        V best = {};
        I at = {};
        bool begun = false;
        for (int64_t i = down.begin; i < down.end; i++) {
          const float* in = x + ((down.first_step + i) * im.steps + along.first_step + along.begin) * channels + c;
          for (int64_t j = along.begin; j < along.end; j++, in += channels) {
            const V next = load(in);
            const I tap = I{} + (int32_t)(i * im.size[1] + j);
            const I better = begun ? (next > best) | (next != next) : ~I{};
            best = choose(better, next, best);
            at = better ? tap : at;
            begun = true;
          }
        }
        if (with_relu) {
          at = best > 0.0f ? at : I{} + (int32_t)NOWHERE;
          best = relu(best);
        }
        const int64_t n = lanes(channels - c);
        store_first(y + c, best, n);
        store_places(place + c, at, n);
      }
    }
  }
}

static void image_max_pool_back(const fedge::Image& im, const float* g, const uint8_t* place, float* out) {
  const int64_t channels = im.channels;
  std::memset(out, 0, sizeof(float) * im.lines * im.steps * channels);
  for (int64_t line = 0; line < im.out_lines; line++) {
    const Taps down = taps_along(im, 0, line);
    for (int64_t step = 0; step < im.out_steps; step++, g += channels, place += channels) {
      const Taps along = taps_along(im, 1, step);
      for (int64_t c = 0; c < channels; c += W) {
        const int64_t n = lanes(channels - c);
        const V gradient = load(g + c);
        const I at = load_places(place + c);
        for (int64_t i = down.begin; i < down.end; i++) {
          float* to = out + ((down.first_step + i) * im.steps + along.first_step + along.begin) * channels + c;
          for (int64_t j = along.begin; j < along.end; j++, to += channels) {
            const V share = choose(at == I{} + (int32_t)(i * im.size[1] + j), gradient, all(0.0f));
            store_first(to, load(to) + share, n);
          }
        }
      }
    }
  }
}

static void image_mean_pool(const fedge::Image& im, const float* x, float scale, float* y) {
  const int64_t channels = im.channels;
  for (int64_t line = 0; line < im.out_lines; line++) {
    const Taps down = taps_along(im, 0, line);
    for (int64_t step = 0; step < im.out_steps; step++, y += channels) {
      const Taps along = taps_along(im, 1, step);
      for (int64_t c = 0; c < channels; c += W) {
        V sum = all(0.0f);
        for (int64_t i = down.begin; i < down.end; i++) {
          const float* in = x + ((down.first_step + i) * im.steps + along.first_step + along.begin) * channels + c;
          for (int64_t j = along.begin; j < along.end; j++, in += channels) sum += load(in);
        }
        store_first(y + c, sum * all(scale), lanes(channels - c));
      }
    }
  }
}

static void image_mean_pool_back(const fedge::Image& im, const float* g, float scale, float* out) {
  const int64_t channels = im.channels;
  std::memset(out, 0, sizeof(float) * im.lines * im.steps * channels);
  for (int64_t line = 0; line < im.out_lines; line++) {
    const Taps down = taps_along(im, 0, line);
    for (int64_t step = 0; step < im.out_steps; step++, g += channels) {
      const Taps along = taps_along(im, 1, step);
      for (int64_t c = 0; c < channels; c += W) {
        const V share = load(g + c) * all(scale);
        for (int64_t i = down.begin; i < down.end; i++) {
          float* to = out + ((down.first_step + i) * im.steps + along.first_step + along.begin) * channels + c;
          for (int64_t j = along.begin; j < along.end; j++, to += channels)
            store_first(to, load(to) + share, lanes(channels - c));
        }
      }
    }
  }
}

}  // namespace FEDGE_ISA
