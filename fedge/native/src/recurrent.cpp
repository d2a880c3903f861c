// GRU and LSTM, one direction of one layer: step by step, all windows of a batch at once.
//
// Inputs are put side by side step by step, so the sums of a step's gates are two products of matrices: inputs by
// weights, states by weights. Gates of a window are four for each hidden number, of GRU r, z and the two parts of n,
// of LSTM i, f, g and o. Steps are numbered as they are carried out; where the last comes first, that is backwards.
#include <algorithm>
#include <cstring>

#include "session.h"

namespace fedge {

struct Session::Steps {
  const Operation& o;
  int64_t windows, steps, inputs, hidden, weights;
  bool gru, backwards;
  float *x, *gates, *state, *cell, *bounded, *carry, *cell_carry;

  int64_t at(int64_t step) const { return backwards ? steps - 1 - step : step; }
  float* gates_of(int64_t step) const { return gates + step * windows * 4 * hidden; }
  int64_t state_floats() const { return windows * hidden; }
};

Session::Steps Session::steps_of(int i, int64_t windows) {
  const Operation& o = program_.operations[i];
  const Value &in = program_.values[o.in], &out = program_.values[o.out];
  const Memory m = memory_of(o, in, out, windows);
  float* kept = program_.own[i].kept.data();
  return {o, windows, in.steps, in.channels, out.channels, m.weights, o.kind == GRU, o.flag != 0, kept + m.x, kept + m.gates,
          kept + m.state, kept + m.cell, kept + m.bounded, kept + m.carry, kept + m.cell_carry};
}

// Weights from (inputs, gates) to (gates, inputs), for the way back.
void Session::turn_recurrent(int i) {
  const Operation& o = program_.operations[i];
  const int64_t in = program_.values[o.in].channels, hidden = program_.values[o.out].channels;
  const int64_t weights = (o.kind == GRU ? 3 : 4) * hidden;
  float* to = program_.own[i].turned.data();
  const auto turn = [&](const float* from, int64_t rows, float* into) {
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < weights; c++) into[c * rows + r] = from[r * weights + c];
  };
  turn(weight(o.state_weight), hidden, to);
  turn(weight(o.weight), in, to + hidden * weights + SLACK_OF_WEIGHTS);
}

// Biases that the sums of gates begin with: both, but for GRU's n, whose second belongs to the state's part.
const float* Session::gate_biases(int i) {
  const Operation& o = program_.operations[i];
  const int64_t hidden = program_.values[o.out].channels, weights = (o.kind == GRU ? 3 : 4) * hidden;
  float* sums = program_.own[i].channel.data();
  for (int64_t c = 0; c < weights; c++) {
    const bool both = o.kind == LSTM || c < 2 * hidden;
    sums[c] = (o.bias < 0 ? 0.0f : weight(o.bias)[c]) + (both && o.state_bias >= 0 ? weight(o.state_bias)[c] : 0.0f);
  }
  return sums;
}

void Session::recurrent(int i, int64_t windows) {
  const Steps s = steps_of(i, windows);
  const Operation& o = s.o;
  const Value &in = program_.values[o.in], &out = program_.values[o.out];
  const int64_t hidden = s.hidden, row = 4 * hidden, floats = s.state_floats();
  for (int64_t step = 0; step < s.steps; step++)
    for (int64_t n = 0; n < windows; n++)
      std::memcpy(s.x + (step * windows + n) * s.inputs, in.forward.of(n) + s.at(step) * s.inputs, sizeof(float) * s.inputs);
  std::fill_n(s.state, floats, 0.0f);
  if (!s.gru) std::fill_n(s.cell, floats, 0.0f);
  const float *biases = gate_biases(i), *by_x = weight(o.weight), *by_state = weight(o.state_weight);
  for (int64_t step = 0; step < s.steps; step++) {
    float *gates = s.gates_of(step), *before = s.state + step * floats, *after = before + floats;
    k_.product({windows, s.weights, s.inputs, s.x + step * windows * s.inputs, s.inputs, 1, by_x, s.weights, gates, row,
                biases, false, false});
    const int64_t joined = s.gru ? 2 * hidden : row;
    k_.product({windows, joined, hidden, before, hidden, 1, by_state, s.weights, gates, row, nullptr, true, false});
    if (s.gru) {
      const float* bias = o.state_bias < 0 ? nullptr : weight(o.state_bias) + 2 * hidden;
      k_.product({windows, hidden, hidden, before, hidden, 1, by_state + 2 * hidden, s.weights, gates + 3 * hidden, row,
                  bias, false, false});
      k_.gru_cell(windows, hidden, gates, before, after);
    } else {
      float* cell = s.cell + step * floats;
      k_.lstm_cell(windows, hidden, gates, cell, cell + floats, s.bounded + step * floats, after);
    }
    for (int64_t n = 0; n < windows; n++)
      std::memcpy(out.forward.of(n) + s.at(step) * hidden, after + n * hidden, sizeof(float) * hidden);
  }
}

// Gates become their gradients, last step first.
void Session::recurrent_back_steps(const Steps& s, const float* turned) {
  const Value& out = program_.values[s.o.out];
  const int64_t hidden = s.hidden, row = 4 * hidden, floats = s.state_floats();
  std::fill_n(s.carry, floats, 0.0f);
  std::fill_n(s.cell_carry, floats, 0.0f);
  for (int64_t step = s.steps - 1; step >= 0; step--) {
    float* gates = s.gates_of(step);
    for (int64_t n = 0; n < s.windows; n++)
      k_.add(out.gradient.of(n) + s.at(step) * hidden, s.carry + n * hidden, hidden);
    if (s.gru)
      k_.gru_cell_back(s.windows, hidden, gates, s.state + step * floats, s.carry);
    else
      k_.lstm_cell_back(s.windows, hidden, gates, s.cell + step * floats, s.bounded + step * floats, s.carry, s.cell_carry);
    const int64_t joined = s.gru ? 2 * hidden : row;
    k_.product({s.windows, hidden, joined, gates, row, 1, turned, hidden, s.carry, hidden, nullptr, s.gru, false});
    if (s.gru)
      k_.product({s.windows, hidden, hidden, gates + 3 * hidden, row, 1, turned + 2 * hidden * hidden, hidden, s.carry,
                  hidden, nullptr, true, false});
    if (s.o.bias >= 0) k_.column_sums_of(gates, s.windows, s.weights, row, gradient(s.o.bias));
    if (s.o.state_bias >= 0) {
      float* sums = gradient(s.o.state_bias);
      k_.column_sums_of(gates, s.windows, joined, row, sums);
      if (s.gru) k_.column_sums_of(gates + 3 * hidden, s.windows, hidden, row, sums + joined);
    }
  }
}

void Session::recurrent_back(int i, bool adds, int64_t windows) {
  const Steps s = steps_of(i, windows);
  const Operation& o = s.o;
  Value& in = program_.values[o.in];
  const int64_t hidden = s.hidden, row = 4 * hidden, rows = s.steps * windows;
  const float* turned = program_.own[i].turned.data();
  recurrent_back_steps(s, turned);
  k_.product({s.inputs, s.weights, rows, s.x, 1, s.inputs, s.gates, row, gradient(o.weight), s.weights, nullptr, false, false});
  const int64_t joined = s.gru ? 2 * hidden : row;
  float* by_state = gradient(o.state_weight);
  k_.product({hidden, joined, rows, s.state, 1, hidden, s.gates, row, by_state, s.weights, nullptr, false, false});
  if (s.gru)
    k_.product({hidden, hidden, rows, s.state, 1, hidden, s.gates + 3 * hidden, row, by_state + 2 * hidden, s.weights,
                nullptr, false, false});
  if (!in.needs_gradient) return;
  k_.product({rows, s.inputs, s.weights, s.gates, row, 1, turned + hidden * s.weights + SLACK_OF_WEIGHTS, s.inputs, s.x, s.inputs,
              nullptr, false, false});
  for (int64_t step = 0; step < s.steps; step++)
    for (int64_t n = 0; n < windows; n++) {
      const float* from = s.x + (step * windows + n) * s.inputs;
      float* to = in.gradient.of(n) + s.at(step) * s.inputs;
      if (adds)
        k_.add(from, to, s.inputs);
      else
        std::memcpy(to, from, sizeof(float) * s.inputs);
    }
}

}  // namespace fedge
