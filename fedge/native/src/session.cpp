#include "session.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace fedge {

namespace {

constexpr int64_t SLACK = 64, CACHE_LINE = 16;  // floats

int64_t row_of(int64_t batch) { return (batch + 15) / 16 * 16; }

// (rows, columns) with a given distance between rows -> (columns, rows); 16 columns at a time stay in the cache
void turn(const float* from, int64_t rows, int64_t columns, int64_t from_row, float* to, int64_t to_row) {
  for (int64_t first = 0; first < columns; first += 16) {
    const int64_t end = std::min(columns, first + 16);
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = first; c < end; c++) to[c * to_row + r] = from[r * from_row + c];
  }
}

}  // namespace

Session::Session(const int64_t* words, int64_t count, const Kernels& kernels, int64_t batch)
    : program_(words, count, kernels, batch), k_(kernels) {
  int64_t largest = 0;
  for (const Value& value : program_.values) largest = std::max(largest, value.channels * value.steps);
  aside_.assign(largest + SLACK, 0.0f);
  columns_.assign(program_.columns_floats, 0.0f);
  rows_.assign(program_.rows_floats, 0.0f);
  for (size_t i = 0; i < program_.operations.size(); i++)
    if (packs(program_.operations[i])) plan_packed((int)i);
}

void Session::rearrange(const float* from, float* to, bool inwards) const {
  for (const Parameter& p : program_.parameters) {
    const float* a = from + (inwards ? p.offset : p.place);
    float* b = to + (inwards ? p.place : p.offset);
    const int64_t out = p.sizes[0], in = p.sizes[1], last = p.sizes[2];
    if (p.kind == VECTOR) {
      std::memcpy(b, a, sizeof(float) * p.count());
      continue;
    }
    if (p.kind != CONV_WEIGHT) {  // (out, in, last) <-> (out, last, in)
      const int64_t rows = inwards ? in : last, columns = inwards ? last : in;
      for (int64_t o = 0; o < out; o++) turn(a + o * in * last, rows, columns, columns, b + o * in * last, rows);
      continue;
    }
    for (int64_t o = 0; o < out; o++)  // (out, in, last) <-> (last, in, out)
      for (int64_t i = 0; i < in; i++)
        for (int64_t j = 0; j < last; j++) {
          const int64_t outside = (o * in + i) * last + j, inside = (j * in + i) * out + o;
          b[inwards ? inside : outside] = a[inwards ? outside : inside];
        }
  }
}

void Session::begin(const float* parameters, const float* buffers, const float* correction,
                    const Settings& settings) {
  settings_ = settings;
  const size_t n = program_.places + SLACK;
  w_.assign(n, 0.0f);
  rearrange(parameters, w_.data(), true);
  buffers_.assign(buffers, buffers + program_.buffer_floats);
  if (!program_.training) {
    for (size_t i = 0; i < program_.operations.size(); i++) {
      if (program_.operations[i].kind == FIXED_NORM) norm_fixed((int)i);
      if (packs(program_.operations[i])) pack_weights((int)i);
    }
    return;
  }
  g_.assign(n, 0.0f);
  velocity_.assign(settings.momentum > 0 ? n : 0, 0.0f);
  start_ = settings.prox_mu > 0 ? w_ : Floats();
  correction_.assign(correction ? n : 0, 0.0f);
  if (correction) rearrange(correction, correction_.data(), true);
}

void Session::end(float* parameters, float* buffers) const {
  rearrange(w_.data(), parameters, false);
  std::copy(buffers_.begin(), buffers_.end(), buffers);
}

void Session::train(const float* x, const int64_t* y, const int64_t* order, int64_t windows, const uint8_t* masks,
                    double* losses) {
  std::vector<double> each(program_.batch);
  for (int64_t first = 0; first < windows; first += program_.batch) {
    const int64_t count = std::min(program_.batch, windows - first);
    carry_out({x, y, order + first, count, masks ? masks + first * program_.mask_bytes : nullptr, each.data(), nullptr});
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += each[i];
    *losses++ = sum / count;
    descend();
  }
}

void Session::evaluate(const float* x, const int64_t* y, int64_t windows, double* losses, int64_t* predictions) {
  const int64_t floats = program_.values[program_.input].channels * program_.values[program_.input].steps;
  for (int64_t first = 0; first < windows; first += program_.batch) {
    const int64_t count = std::min(program_.batch, windows - first);
    carry_out({x + first * floats, y + first, nullptr, count, nullptr, losses + first, predictions + first});
  }
}

// Runs of stages that go window by window are carried out for one window after another, so that what one stage
// makes is still in the cache for the next.
void Session::carry_out(const Batch& batch) {
  if (program_.training) {
    for (size_t i = 0; i < program_.operations.size(); i++) {
      const Operation& o = program_.operations[i];
      const bool sums = o.kind == ROW_NORM || o.kind == GROUP_NORM || o.kind == EMBED;  // over windows, one by one
      for (const int64_t p : {o.bias, o.state_bias, sums ? o.weight : -1})
        if (p >= 0) std::fill_n(gradient(p), program_.parameters[p].count(), 0.0f);
      if (o.recurrent()) turn_recurrent((int)i);
      if (o.kind == NORM) norm_begin((int)i);
      if (!program_.own[i].phases.empty()) turn_weights((int)i);
      if (o.kind == IMAGE_CONV && program_.values[o.in].needs_gradient) turn_image_weights((int)i);
      if (packs(o)) pack_weights((int)i);
    }
  }
  const std::vector<Stage>& stages = program_.stages;
  for (size_t s = 0; s < stages.size();) {
    if (stages[s].whole_batch) {
      batch_stage(stages[s++], batch);
      continue;
    }
    size_t end = s;
    while (end < stages.size() && !stages[end].whole_batch) end++;
    for (int64_t window = 0; window < batch.windows; window++)
      for (size_t t = s; t < end; t++) window_stage(stages[t], batch, window);
    s = end;
  }
}

void Session::window_stage(const Stage& stage, const Batch& batch, int64_t window) {
  if (stage.pass == GATHER) {
    const Value& input = program_.values[program_.input];
    const int64_t floats = input.channels * input.steps;
    const auto x_of = [&](int64_t w) { return batch.x + (batch.order ? batch.order[w] : w) * floats; };
    if (window + 1 < batch.windows)  // it may lie anywhere: fetch it while this one is computed on
      for (int64_t i = 0; i < floats; i += CACHE_LINE) __builtin_prefetch(x_of(window + 1) + i);
    k_.gather(x_of(window), input.channels, input.steps, input.forward.of(window));
    return;
  }
  const int i = stage.operation;
  const Operation& o = program_.operations[i];
  Value &in = program_.values[o.in], &out = program_.values[o.out];
  const Norm& norm = program_.own[i].norm;
  const int64_t g_row = out.gradient.rows == 1 && out.steps > 1 ? 0 : out.channels;
  switch (stage.pass) {
    case STATISTICS:
      k_.norm_statistics(norm, in.forward.of(window), in.steps, window * in.steps);
      break;
    case APPLY:
      k_.norm_apply(norm, in.forward.of(window), in.steps, out.forward.of(window));
      break;
    case SUMS:
      k_.norm_sums(norm, in.forward.of(window), out.gradient.of(window), g_row, in.steps);
      break;
    case BACK_APPLY:
      if (in.needs_gradient) {
        float* to = stage.adds ? aside_.data() : in.gradient.of(window);
        k_.norm_back(norm, in.forward.of(window), out.gradient.of(window), g_row, in.steps, to);
        if (stage.adds) k_.add(to, in.gradient.of(window), in.steps * in.channels);
      }
      break;
    case FORWARD:
      forward(i, batch, window);
      break;
    default:
      back(stage, batch, window);
  }
}

void Session::batch_stage(const Stage& stage, const Batch& batch) {
  const int i = stage.operation;
  switch (stage.pass) {
    case LOSS:
      loss(batch);
      break;
    case FINISH:
      norm_finish(i, batch.windows * program_.values[program_.operations[i].in].steps);
      break;
    case COEFFICIENTS:
      norm_coefficients(i, batch.windows * program_.values[program_.operations[i].in].steps);
      break;
    case FORWARD:
      if (program_.operations[i].kind == LINEAR)
        linear(i, batch.windows);
      else if (program_.operations[i].recurrent())
        recurrent(i, batch.windows);
      else
        image_conv(i, 0, batch.windows);
      break;
    default:
      if (program_.operations[i].kind == LINEAR)
        linear_back(i, stage.adds, batch.windows);
      else if (program_.operations[i].recurrent())
        recurrent_back(i, stage.adds, batch.windows);
      else
        image_conv_back(i, stage.adds, 0, batch.windows);
  }
}

Pool Session::pool_of(const Operation& o) const {
  const Value &in = program_.values[o.in], &out = program_.values[o.out];
  return {in.steps, in.channels, out.steps, o.size, o.stride, o.padding, o.relu != 0};
}

void Session::forward(int i, const Batch& batch, int64_t window) {
  const Operation& o = program_.operations[i];
  const Value &in = program_.values[o.in], &out = program_.values[o.out];
  const float* x = in.forward.of(window);
  float* y = out.forward.of(window);
  const int64_t floats = in.steps * in.channels;
  switch (o.kind) {
    case CONV:
      conv(i, window);
      break;
    case RELU:
      k_.relu(x, y, floats);
      break;
    case GELU:
      k_.gelu(x, y, floats, o.flag != 0);
      break;
    case MAX_POOL: {
      const int64_t floats_out = out.steps * out.channels;
      k_.max_pool(pool_of(o), x, y, program_.own[i].places.data() + (program_.training ? window * floats_out : 0));
      break;
    }
    case MEAN_POOL:
      k_.mean_pool(pool_of(o), x, (float)o.number, y);
      break;
    case MEAN_ALL:
      k_.mean_all(x, in.steps, in.channels, (float)o.number, y);
      break;
    case IMAGE_CONV:
      image_conv(i, window, 1);
      break;
    case IMAGE_MAX_POOL: {
      const int64_t floats_out = out.steps * out.channels;
      k_.image_max_pool(program_.own[i].image, x, o.relu != 0, y,
                        program_.own[i].places.data() + (program_.training ? window * floats_out : 0));
      break;
    }
    case IMAGE_MEAN_POOL:
      k_.image_mean_pool(program_.own[i].image, x, (float)o.number, y);
      break;
    case DROP:
      k_.drop(x, batch.masks + window * program_.mask_bytes + program_.own[i].mask, in.steps, in.channels, o.flag != 0,
              (float)o.number, y);
      break;
    case SIGMOID:
    case TANH:
    case SILU:
      k_.curve((int)(o.kind - SIGMOID), x, y, floats);
      break;
    case ROW_NORM:
      row_norm(i, window);
      break;
    case GROUP_NORM:
      group_norm(i, window);
      break;
    case EMBED:
      embed(i, window);
      break;
    case PICK:
      pick(i, window);
      break;
    case JOIN:
      join(i, window);
      break;
    default:  // ADD
      std::memcpy(y, x, sizeof(float) * floats);
      k_.add(program_.values[o.second].forward.of(window), y, floats);
  }
}

// Hands a gradient that was computed aside to where it belongs.
void Session::send(const float* result, bool adds, Store& to, int64_t window) {
  const int64_t floats = to.rows * to.columns;
  if (adds)
    k_.add(result, to.of(window), floats);
  else
    std::memcpy(to.of(window), result, sizeof(float) * floats);
}

void Session::back(const Stage& stage, const Batch& batch, int64_t window) {
  const int i = stage.operation;
  const Operation& o = program_.operations[i];
  Value &in = program_.values[o.in], &out = program_.values[o.out];
  if (o.kind == CONV) return conv_back(i, stage.adds, window, batch.windows);
  if (o.kind == IMAGE_CONV) return image_conv_back(i, stage.adds, window, 1);
  const float* g = out.gradient.of(window);
  const int64_t floats = in.steps * in.channels;
  if (o.kind == ADD) {
    if (in.needs_gradient) send(g, stage.adds, in.gradient, window);
    Value& second = program_.values[o.second];
    if (second.needs_gradient) send(g, stage.second_adds, second.gradient, window);
    return;
  }
  if (o.kind == EMBED) return embed_back(i, window);
  if (o.kind == JOIN) return join_back(stage, window);
  const bool weighted = o.kind == ROW_NORM || o.kind == GROUP_NORM;
  if (!in.needs_gradient && !weighted) return;
  if (o.kind == PICK) return pick_back(i, stage.adds, window);
  float* to = !in.needs_gradient ? nullptr : stage.adds ? aside_.data() : in.gradient.of(window);
  switch (o.kind) {
    case ROW_NORM:
      row_norm_back(i, window, to);
      break;
    case GROUP_NORM:
      group_norm_back(i, window, to);
      break;
    case SIGMOID:
    case TANH:
      k_.curve_back((int)(o.kind - SIGMOID), out.forward.of(window), g, to, floats);
      break;
    case SILU:
      k_.curve_back((int)(o.kind - SIGMOID), in.forward.of(window), g, to, floats);
      break;
    case RELU:
      k_.relu_back(out.forward.of(window), g, to, floats);
      break;
    case GELU:
      k_.gelu_back(in.forward.of(window), g, to, floats, o.flag != 0);
      break;
    case MAX_POOL:
      k_.max_pool_back(pool_of(o), g, program_.own[i].places.data() + window * out.steps * out.channels, to);
      break;
    case MEAN_POOL:
      k_.mean_pool_back(pool_of(o), g, (float)o.number, to);
      break;
    case IMAGE_MAX_POOL:
      k_.image_max_pool_back(program_.own[i].image, g, program_.own[i].places.data() + window * out.steps * out.channels,
                             to);
      break;
    case IMAGE_MEAN_POOL:
      k_.image_mean_pool_back(program_.own[i].image, g, (float)o.number, to);
      break;
    case MEAN_ALL:
      for (int64_t t = 0; t < in.gradient.rows; t++)
        for (int64_t c = 0; c < in.channels; c++) to[t * in.channels + c] = g[c] * (float)o.number;
      break;
    default:  // DROP
      k_.drop(g, batch.masks + window * program_.mask_bytes + program_.own[i].mask, in.steps, in.channels, o.flag != 0,
              (float)o.number, to);
  }
  if (stage.adds && to) k_.add(to, in.gradient.of(window), in.gradient.rows * in.channels);
}

// --- convolution ------------------------------------------------------------------------------------------
// With channels side by side, the inputs of output step t are size * channels numbers in a row, which begin stride
// steps after those of t - 1: a matrix whose rows overlap. So a convolution is one product, and nothing is copied.

Product Session::convolution(int i, int64_t window) {
  const Operation& o = program_.operations[i];
  const Value &in = program_.values[o.in], &out = program_.values[o.out];
  return {out.steps, out.channels, o.size * in.channels, in.forward.of(window) - o.padding * in.channels,
          o.stride * in.channels, 1, weight(o.weight), out.channels, out.forward.of(window), out.channels,
          o.bias < 0 ? nullptr : weight(o.bias), false, o.relu != 0};
}

Product Session::input_gradient(int i, const Phase& p, bool adds, int64_t window) {
  const Operation& o = program_.operations[i];
  Value &in = program_.values[o.in], &out = program_.values[o.out];
  return {p.count, in.channels, p.taps * out.channels, out.gradient.of(window) + p.start * out.channels, out.channels, 1,
          program_.own[i].turned.data() + p.weight, in.channels, in.gradient.of(window) + p.first * in.channels,
          o.stride * in.channels, nullptr, adds, false};
}

// Inputs of a step are one run of numbers; where taps share no packed rows, these are as many channels.
TapGradient Session::tap_gradient(int i, int64_t window, int64_t windows) {
  const Operation& o = program_.operations[i];
  Value &in = program_.values[o.in], &out = program_.values[o.out];
  const bool shares = o.stride == 1 && in.channels >= k_.width;
  const int64_t slots = program_.own[i].tap_slots, slot = window % slots;
  return {out.steps, in.channels * (shares ? 1 : o.size), shares ? o.size : 1, out.channels,
          in.forward.of(window) - o.padding * in.channels, o.stride * in.channels, out.gradient.of(window),
          gradient(o.weight), slot, slot + 1 == slots || window + 1 == windows, window >= slots};
}

bool Session::packs(const Operation& o) const { return k_.pack && o.kind == CONV; }

// Memory for an operation's packed weights, and for what is made of the other factor.
void Session::plan_packed(int i) {
  Own& own = program_.own[i];
  const Product forward = convolution(i, 0);
  int64_t packed = k_.packed_floats(forward.k, forward.n), work = k_.work_floats(forward);
  for (Phase& p : own.phases) {
    const Product back = input_gradient(i, p, false, 0);
    p.packed = packed;
    packed += k_.packed_floats(back.k, back.n);
    work = std::max(work, k_.work_floats(back));
  }
  if (program_.training) {
    const TapGradient taps = tap_gradient(i, 0, 1);
    own.tap_slots = k_.tap_slots(taps);
    own.tap_work.assign(k_.tap_work_floats(taps), 0.0f);
  }
  own.packed.assign(packed, 0.0f);
  if ((int64_t)work_.size() < work) work_.assign(work, 0.0f);
}

void Session::pack_weights(int i) {
  Own& own = program_.own[i];
  const Product forward = convolution(i, 0);
  k_.pack(forward.b, forward.b_row, forward.k, forward.n, own.packed.data());
  for (const Phase& p : own.phases) {
    const Product back = input_gradient(i, p, false, 0);
    k_.pack(back.b, back.b_row, back.k, back.n, own.packed.data() + p.packed);
  }
}

void Session::multiply(const Product& p, int i, int64_t packed) {
  if (packs(program_.operations[i]))
    k_.packed_product(p, program_.own[i].packed.data() + packed, work_.data());
  else
    k_.product(p);
}

void Session::conv(int i, int64_t window) { multiply(convolution(i, window), i, 0); }

void Session::mask_by_relu(const Operation& o, int64_t window) {
  Value& out = program_.values[o.out];
  float* g = out.gradient.of(window);
  if (o.relu) k_.relu_back(out.forward.of(window), g, g, out.steps * out.channels);
}

void Session::conv_back(int i, bool adds, int64_t window, int64_t windows) {
  const Operation& o = program_.operations[i];
  Value &in = program_.values[o.in], &out = program_.values[o.out];
  mask_by_relu(o, window);
  const float* g = out.gradient.of(window);
  if (o.bias >= 0) k_.column_sums(g, out.steps, out.channels, gradient(o.bias));
  if (packs(o))
    k_.tap_gradient(tap_gradient(i, window, windows), program_.own[i].tap_work.data());
  else
    k_.product({o.size * in.channels, out.channels, out.steps, in.forward.of(window) - o.padding * in.channels, 1,
                o.stride * in.channels, g, out.channels, gradient(o.weight), out.channels, nullptr, window > 0, false});
  if (!in.needs_gradient) return;
  for (const Phase& p : program_.own[i].phases) multiply(input_gradient(i, p, adds, window), i, p.packed);
}

// Weights of the taps of each phase, last tap first, from (in, out) to (out, in).
void Session::turn_weights(int i) {
  const Operation& o = program_.operations[i];
  const int64_t in = program_.values[o.in].channels, out = program_.values[o.out].channels;
  for (const Phase& p : program_.own[i].phases) {
    const int64_t remainder = ((p.first + o.padding) % o.stride + o.stride) % o.stride;
    for (int64_t n = 0; n < p.taps; n++) {
      const int64_t tap = remainder + o.stride * (p.taps - 1 - n);
      turn(weight(o.weight) + tap * in * out, in, out, out, program_.own[i].turned.data() + p.weight + n * in * out, in);
    }
  }
}

// --- linear layer -----------------------------------------------------------------------------------------
// Weights are (out, in), as they are needed for both gradients; forward takes the transposed input instead.

void Session::linear(int i, int64_t windows) {
  const Operation& o = program_.operations[i];
  const Value &in = program_.values[o.in], &out = program_.values[o.out];
  const int64_t features = in.channels * in.steps, row = row_of(program_.batch);
  float *turned = program_.own[i].turned.data(), *result = program_.own[i].result.data();
  turn(in.forward.of(0), windows, features, in.forward.step(), turned, row);
  k_.product({out.channels, windows, features, weight(o.weight), features, 1, turned, row, result, row, nullptr, false,
              false});
  for (int64_t window = 0; window < windows; window++) {
    float* y = out.forward.of(window);
    for (int64_t c = 0; c < out.channels; c++) y[c] = result[c * row + window];
    if (o.bias >= 0) k_.add(weight(o.bias), y, out.channels);
    if (o.relu) k_.relu(y, y, out.channels);
  }
}

void Session::linear_back(int i, bool adds, int64_t windows) {
  const Operation& o = program_.operations[i];
  Value &in = program_.values[o.in], &out = program_.values[o.out];
  const int64_t features = in.channels * in.steps;
  for (int64_t window = 0; window < windows; window++) {
    mask_by_relu(o, window);
    if (o.bias >= 0) k_.add(out.gradient.of(window), gradient(o.bias), out.channels);
  }
  const float* g = out.gradient.of(0);
  k_.product({out.channels, features, windows, g, 1, out.gradient.step(), in.forward.of(0), in.forward.step(),
              gradient(o.weight), features, nullptr, false, false});
  if (!in.needs_gradient) return;
  k_.product({windows, features, out.channels, g, out.gradient.step(), 1, weight(o.weight), features,
              in.gradient.of(0), in.gradient.step(), nullptr, adds, false});
}

// --- batch norm -------------------------------------------------------------------------------------------

void Session::norm_begin(int i) {
  std::fill(program_.own[i].sums.begin(), program_.own[i].sums.end(), 0.0);
}

void Session::norm_finish(int i, int64_t rows) {
  const Operation& o = program_.operations[i];
  const Norm& norm = program_.own[i].norm;
  for (int64_t c = 0; c < norm.channels; c++) {
    const double variance = norm.sum_m2[c] / rows, deviation = 1 / std::sqrt(variance + o.number);
    const double by = (o.weight < 0 ? 1.0f : weight(o.weight)[c]) * deviation;
    norm.mean[c] = (float)norm.sum_mean[c];
    norm.inverse[c] = (float)deviation;
    norm.scale[c] = (float)by;
    norm.shift[c] = (float)((o.bias < 0 ? 0.0f : weight(o.bias)[c]) - norm.sum_mean[c] * by);
    if (o.buffer >= 0) {
      float *running_mean = &buffers_[o.buffer + c], *running_variance = running_mean + norm.channels;
      *running_mean = (float)((1 - o.second_number) * *running_mean + o.second_number * norm.sum_mean[c]);
      *running_variance =
          (float)((1 - o.second_number) * *running_variance + o.second_number * norm.sum_m2[c] / (rows - 1));
    }
  }
}

void Session::norm_fixed(int i) {
  const Operation& o = program_.operations[i];
  const Norm& norm = program_.own[i].norm;
  for (int64_t c = 0; c < norm.channels; c++) {
    const double mean = buffers_[o.buffer + c], variance = buffers_[o.buffer + norm.channels + c];
    const double by = (o.weight < 0 ? 1.0f : weight(o.weight)[c]) / std::sqrt(variance + o.number);
    norm.scale[c] = (float)by;
    norm.shift[c] = (float)((o.bias < 0 ? 0.0f : weight(o.bias)[c]) - mean * by);
  }
}

// dx = scale (g - mean(g) - (x - mean) / deviation^2 mean(g (x - mean))), as by_g g + by_x (x - mean) + by_one
void Session::norm_coefficients(int i, int64_t rows) {
  const Operation& o = program_.operations[i];
  const Norm& norm = program_.own[i].norm;
  for (int64_t c = 0; c < norm.channels; c++) {
    const double deviation = norm.inverse[c], scale = norm.scale[c];
    const double missed = norm.sum_mean[c] - norm.mean[c];  // by the float, alike in all rows: they would not cancel
    const double sum_gx = norm.sum_gx[c] - missed * norm.sum_g[c];
    if (o.weight >= 0) gradient(o.weight)[c] = (float)(sum_gx * deviation);
    if (o.bias >= 0) gradient(o.bias)[c] = (float)norm.sum_g[c];
    const double by_x = -scale * deviation * deviation * sum_gx / rows;
    norm.by_g[c] = (float)scale;
    norm.by_x[c] = (float)by_x;
    norm.by_one[c] = (float)(-scale * norm.sum_g[c] / rows - by_x * missed);
  }
}

// --- loss and update --------------------------------------------------------------------------------------

// Cross entropy against (1 - s) of the label and s / K of each of K classes, in double precision; its gradient is of
// the mean over the batch.
void Session::loss(const Batch& batch) {
  Value& logits = program_.values[program_.logits];
  const int64_t classes = logits.channels;
  const double smoothing = program_.training ? settings_.label_smoothing : 0.0;
  for (int64_t window = 0; window < batch.windows; window++) {
    const float* z = logits.forward.of(window);
    float* g = logits.gradient.of(window);
    const int64_t label = batch.y[batch.order ? batch.order[window] : window];
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++)
      if (z[c] > z[best] || (z[c] != z[c] && z[best] == z[best])) best = c;
    double sum = 0, distance = 0;
    for (int64_t c = 0; c < classes; c++) {
      sum += std::exp((double)z[c] - z[best]);
      distance += (double)z[c] - z[best];
    }
    const double log_sum = std::log(sum);
    batch.losses[window] = (1 - smoothing) * (log_sum - ((double)z[label] - z[best])) +
                           smoothing * (log_sum - distance / classes);
    if (batch.predictions) batch.predictions[window] = best;
    if (program_.training)
      for (int64_t c = 0; c < classes; c++) {
        const double target = (c == label ? 1 - smoothing : 0.0) + smoothing / classes;
        g[c] = (float)((std::exp((double)z[c] - z[best]) / sum - target) / batch.windows);
      }
  }
}

void Session::descend() {
  float clip = 1.0f;
  if (settings_.clip_norm > 0)
    clip = (float)std::min(1.0, settings_.clip_norm / (std::sqrt(k_.squares(g_.data(), program_.trained_places)) + 1e-6));
  const Step step = {(float)settings_.lr, (float)settings_.momentum, (float)settings_.weight_decay,
                     (float)settings_.prox_mu};
  k_.descend(step, program_.trained_places, clip, g_.data(), start_.empty() ? nullptr : start_.data(),
             correction_.empty() ? nullptr : correction_.data(), velocity_.empty() ? nullptr : velocity_.data(),
             w_.data());
}

}  // namespace fedge
