// Convolutions over lines and steps, as products of columns (image.h) and weights: some lines of a window in one go,
// or some windows.
#include <algorithm>
#include <cstring>

#include "session.h"

namespace fedge {

// Output positions of one go: lines of each of some windows.
struct Session::Part {
  int64_t window, windows, line, lines;
  int64_t positions, rows;  // of a window; of all
  int64_t at;               // first position of each window
};

template <class Work>
void Session::each_part(int i, int64_t window, int64_t windows, const Work& work) {
  const Own& own = program_.own[i];
  const int64_t end = window + windows;
  for (int64_t first = window; first < end; first += own.image_windows)
    for (int64_t line = 0; line < own.image.out_lines; line += own.image_lines) {
      const int64_t together = std::min(own.image_windows, end - first);
      const int64_t lines = std::min(own.image_lines, own.image.out_lines - line);
      const int64_t positions = lines * own.image.out_steps;
      work(Part{first, together, line, lines, positions, together * positions, line * own.image.out_steps});
    }
}

void Session::make_columns(int i, const Part& p) {
  const Own& own = program_.own[i];
  const Store& x = program_.values[program_.operations[i].in].forward;
  for (int64_t w = 0; w < p.windows; w++)
    k_.image_columns(own.image, x.of(p.window + w), p.line, p.lines, own.image_row,
                     columns_.data() + w * p.positions * own.image_row);
}

void Session::image_conv(int i, int64_t window, int64_t windows) {
  const Operation& o = program_.operations[i];
  const Own& own = program_.own[i];
  Value &in = program_.values[o.in], &out = program_.values[o.out];
  const int64_t taps = o.size * o.line_size * in.channels, floats = out.steps * out.channels;
  each_part(i, window, windows, [&](const Part& p) {
    make_columns(i, p);
    const bool alone = own.image_windows == 1;
    float* y = alone ? out.forward.of(p.window) + p.at * out.channels : rows_.data();
    k_.product({p.rows, out.channels, taps, columns_.data(), own.image_row, 1, weight(o.weight), out.channels, y,
                out.channels, o.bias < 0 ? nullptr : weight(o.bias), false, o.relu != 0});
    for (int64_t w = 0; w < p.windows && !alone; w++)
      std::memcpy(out.forward.of(p.window + w), y + w * floats, sizeof(float) * floats);
  });
}

// Gradients of weights are columns times gradients; that of the input is gradients times weights, added up where the
// columns came from.
void Session::image_conv_back(int i, bool adds, int64_t window, int64_t windows) {
  const Operation& o = program_.operations[i];
  const Own& own = program_.own[i];
  Value &in = program_.values[o.in], &out = program_.values[o.out];
  const int64_t taps = o.size * o.line_size * in.channels, row = own.image_row, floats = out.steps * out.channels;
  for (int64_t w = window; w < window + windows; w++) {
    mask_by_relu(o, w);
    if (o.bias >= 0) k_.column_sums(out.gradient.of(w), out.steps, out.channels, gradient(o.bias));
    if (in.needs_gradient && !adds) std::memset(in.gradient.of(w), 0, sizeof(float) * in.steps * in.channels);
  }
  each_part(i, window, windows, [&](const Part& p) {
    const bool alone = own.image_windows == 1;
    float* g = alone ? out.gradient.of(p.window) + p.at * out.channels : rows_.data();
    for (int64_t w = 0; w < p.windows && !alone; w++)
      std::memcpy(g + w * floats, out.gradient.of(p.window + w), sizeof(float) * floats);
    make_columns(i, p);
    k_.product({taps, out.channels, p.rows, columns_.data(), 1, row, g, out.channels, gradient(o.weight), out.channels,
                nullptr, p.window > 0 || p.line > 0, false});
    if (!in.needs_gradient) return;
    k_.product({p.rows, taps, out.channels, g, out.channels, 1, own.turned.data(), row, columns_.data(), row, nullptr, false,
                false});
    for (int64_t w = 0; w < p.windows; w++)
      k_.image_add_columns(own.image, columns_.data() + w * p.positions * row, p.line, p.lines, row,
                           in.gradient.of(p.window + w));
  });
}

// Weights from (taps, out) to (out, taps).
void Session::turn_image_weights(int i) {
  const Operation& o = program_.operations[i];
  Own& own = program_.own[i];
  const int64_t out = program_.values[o.out].channels, taps = o.size * o.line_size * program_.values[o.in].channels;
  const float* from = weight(o.weight);
  for (int64_t tap = 0; tap < taps; tap++)
    for (int64_t c = 0; c < out; c++) own.turned[c * own.image_row + tap] = from[tap * out + c];
}

}  // namespace fedge
