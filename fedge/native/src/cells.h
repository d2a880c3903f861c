// Steps of recurrent layers, number by number, for all windows of a batch: what comes of the gates' sums, and the way
// back. Gates of a window lie one after another, `hidden` numbers each; gradients take their places.
#pragma once
#include "pointwise.h"
#include "vector.h"

namespace FEDGE_ISA {

// Calls work(gates, number of the first of some hidden numbers in (windows, hidden), lanes).
template <class Work>
FEDGE_INLINE void each_hidden(int64_t windows, int64_t hidden, float* gates, const Work& work) {
  for (int64_t n = 0; n < windows; n++, gates += 4 * hidden)
    for (int64_t c = 0; c < hidden; c += W) work(gates + c, n * hidden + c, lanes(hidden - c));
}

// GRU (Cho et al. 2014, as PyTorch has it). Gates: sums of r and z, of the input's part of n, of the state's part of n.
//   r, z = sigma(.)   n = tanh(x part + r * state part)   state = n + z (state before - n)
static void gru_cell(int64_t windows, int64_t hidden, float* gates, const float* before, float* state) {
  each_hidden(windows, hidden, gates, [&](float* g, int64_t at, int64_t count) __attribute__((always_inline)) {
    const V r = logistic(load(g)), z = logistic(load(g + hidden));
    const V n = hyperbolic(fma(r, load(g + 3 * hidden), load(g + 2 * hidden)));
    store_first(g, r, count);
    store_first(g + hidden, z, count);
    store_first(g + 2 * hidden, n, count);
    store_first(state + at, fma(z, load(before + at) - n, n), count);
  });
}

// `carry` holds the gradient of the state after the step, then what of that of the state before it comes past the gates.
static void gru_cell_back(int64_t windows, int64_t hidden, float* gates, const float* before, float* carry) {
  const V one = all(1.0f);
  each_hidden(windows, hidden, gates, [&](float* g, int64_t at, int64_t count) __attribute__((always_inline)) {
    const V r = load(g), z = load(g + hidden), n = load(g + 2 * hidden), of_state = load(g + 3 * hidden);
    const V dh = load(carry + at);
    const V dn = dh * (one - z) * fma(-n, n, one);
    store_first(g, dn * of_state * r * (one - r), count);
    store_first(g + hidden, dh * (load(before + at) - n) * z * (one - z), count);
    store_first(g + 2 * hidden, dn, count);
    store_first(g + 3 * hidden, dn * r, count);
    store_first(carry + at, dh * z, count);
  });
}

// LSTM (Hochreiter and Schmidhuber 1997; forget gate: Gers et al. 2000). Gates: sums of i, f, g, o.
//   cell = f * cell before + i * g   state = o * tanh(cell), whose second factor is `bounded`
static void lstm_cell(int64_t windows, int64_t hidden, float* gates, const float* cell_before, float* cell, float* bounded,
                      float* state) {
  each_hidden(windows, hidden, gates, [&](float* g, int64_t at, int64_t count) __attribute__((always_inline)) {
    const V i = logistic(load(g)), f = logistic(load(g + hidden));
    const V n = hyperbolic(load(g + 2 * hidden)), o = logistic(load(g + 3 * hidden));
    const V c = fma(f, load(cell_before + at), i * n), t = hyperbolic(c);
    store_first(g, i, count);
    store_first(g + hidden, f, count);
    store_first(g + 2 * hidden, n, count);
    store_first(g + 3 * hidden, o, count);
    store_first(cell + at, c, count);
    store_first(bounded + at, t, count);
    store_first(state + at, o * t, count);
  });
}

// `carry` holds the gradient of the state after the step; `cell_carry` that of the cell after it, then of that before.
static void lstm_cell_back(int64_t windows, int64_t hidden, float* gates, const float* cell_before, const float* bounded,
                           const float* carry, float* cell_carry) {
  const V one = all(1.0f);
  each_hidden(windows, hidden, gates, [&](float* g, int64_t at, int64_t count) __attribute__((always_inline)) {
    const V i = load(g), f = load(g + hidden), n = load(g + 2 * hidden), o = load(g + 3 * hidden);
    const V t = load(bounded + at), dh = load(carry + at);
    const V dc = fma(dh * o, fma(-t, t, one), load(cell_carry + at));
    store_first(g, dc * n * i * (one - i), count);
    store_first(g + hidden, dc * load(cell_before + at) * f * (one - f), count);
    store_first(g + 2 * hidden, dc * i * fma(-n, n, one), count);
    store_first(g + 3 * hidden, dh * t * o * (one - o), count);
    store_first(cell_carry + at, dc * f, count);
  });
}

}  // namespace FEDGE_ISA
