// LayerNorm and GroupNorm (Wu and He 2018), window by window, and embeddings.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "session.h"

namespace fedge {

void Session::row_norm(int i, int64_t window) {
  const Operation& o = program_.operations[i];
  const Value &in = program_.values[o.in], &out = program_.values[o.out];
  const int64_t rows = in.channels * in.steps / o.size;
  k_.row_norm(rows, o.size, o.number, in.forward.of(window), o.weight < 0 ? nullptr : weight(o.weight),
              o.bias < 0 ? nullptr : weight(o.bias), out.forward.of(window),
              program_.own[i].kept.data() + (program_.training ? window * 3 * rows : 0));
}

// A window's part of the gradients of weights is added up by itself first: a sum of many rows is more exact so.
void Session::row_norm_back(int i, int64_t window, float* to) {
  const Operation& o = program_.operations[i];
  Own& own = program_.own[i];
  const Value &in = program_.values[o.in], &out = program_.values[o.out];
  const int64_t rows = in.channels * in.steps / o.size;
  float *by_weight = own.result.data(), *by_bias = by_weight + own.result.size() / 2;
  std::fill(own.result.begin(), own.result.end(), 0.0f);
  k_.row_norm_back(rows, o.size, in.forward.of(window), out.gradient.of(window), o.weight < 0 ? nullptr : weight(o.weight),
                   own.kept.data() + window * 3 * rows, by_weight, by_bias, to);
  if (o.weight >= 0) k_.add(by_weight, gradient(o.weight), o.size);
  if (o.bias >= 0) k_.add(by_bias, gradient(o.bias), o.size);
}

// Means and deviations of a window's groups, from those of its channels (Chan, Golub and LeVeque 1983).
void Session::group_moments(int i, int64_t window) {
  const Operation& o = program_.operations[i];
  Own& own = program_.own[i];
  const Value& in = program_.values[o.in];
  const Norm& norm = own.norm;
  const int64_t wide = norm.channels / o.size;
  std::fill(own.sums.begin(), own.sums.end(), 0.0);
  k_.norm_statistics(norm, in.forward.of(window), in.steps, 0);
  double* kept = own.moments.data() + (program_.training ? window * 2 * o.size : 0);
  for (int64_t group = 0; group < o.size; group++) {
    const double *means = norm.sum_mean + group * wide, *m2 = norm.sum_m2 + group * wide;
    double mean = 0, squares = 0;
    for (int64_t c = 0; c < wide; c++) mean += means[c];
    mean /= wide;
    for (int64_t c = 0; c < wide; c++) squares += m2[c] + in.steps * (means[c] - mean) * (means[c] - mean);
    kept[2 * group] = mean;
    kept[2 * group + 1] = 1.0 / std::sqrt(squares / (double)(wide * in.steps) + o.number);
  }
}

// Scales and shifts of a window's channels, from its groups' moments.
const double* Session::group_scales(int i, int64_t window) {
  const Operation& o = program_.operations[i];
  Own& own = program_.own[i];
  const Norm& norm = own.norm;
  const int64_t wide = norm.channels / o.size;
  const double* kept = own.moments.data() + (program_.training ? window * 2 * o.size : 0);
  for (int64_t c = 0; c < norm.channels; c++) {
    const double mean = kept[2 * (c / wide)], inverse = kept[2 * (c / wide) + 1];
    const double by = (o.weight < 0 ? 1.0 : weight(o.weight)[c]) * inverse;
    norm.mean[c] = (float)mean;
    norm.scale[c] = (float)by;
    norm.shift[c] = (float)((o.bias < 0 ? 0.0 : weight(o.bias)[c]) - mean * by);
  }
  return kept;
}

void Session::group_norm(int i, int64_t window) {
  const Operation& o = program_.operations[i];
  const Value &in = program_.values[o.in], &out = program_.values[o.out];
  group_moments(i, window);
  group_scales(i, window);
  k_.norm_apply(program_.own[i].norm, in.forward.of(window), in.steps, out.forward.of(window));
}

// As of a BatchNorm (session.cpp), but that weights differ within what has one mean.
void Session::group_norm_back(int i, int64_t window, float* to) {
  const Operation& o = program_.operations[i];
  Own& own = program_.own[i];
  const Value &in = program_.values[o.in], &out = program_.values[o.out];
  const Norm& norm = own.norm;
  const int64_t wide = norm.channels / o.size, count = wide * in.steps;
  const double* kept = group_scales(i, window);
  std::fill(own.sums.begin(), own.sums.end(), 0.0);
  k_.norm_sums(norm, in.forward.of(window), out.gradient.of(window), norm.channels, in.steps);
  for (int64_t group = 0; group < o.size; group++) {
    const double mean = kept[2 * group], inverse = kept[2 * group + 1];
    double sum = 0, along = 0;
    for (int64_t c = group * wide; c < (group + 1) * wide; c++) {
      const double missed = mean - norm.mean[c], of_x = norm.sum_gx[c] - missed * norm.sum_g[c];
      const double w = o.weight < 0 ? 1.0 : weight(o.weight)[c];
      if (o.weight >= 0) gradient(o.weight)[c] += (float)(of_x * inverse);
      if (o.bias >= 0) gradient(o.bias)[c] += (float)norm.sum_g[c];
      sum += w * norm.sum_g[c], along += w * of_x;
    }
    const double by_x = -inverse * inverse * inverse * along / count;
    for (int64_t c = group * wide; c < (group + 1) * wide; c++) {
      norm.by_g[c] = norm.scale[c];
      norm.by_x[c] = (float)by_x;
      norm.by_one[c] = (float)(-inverse * sum / count - by_x * (mean - norm.mean[c]));
    }
  }
  if (to) k_.norm_back(norm, in.forward.of(window), out.gradient.of(window), norm.channels, in.steps, to);
}

namespace {

// The row of a token; Python has refused those that have none, so that nothing is read outside.
int64_t row_of(float token, int64_t rows) {
  return token >= 0 && token < (float)rows ? std::min((int64_t)token, rows - 1) : 0;
}

}  // namespace

void Session::embed(int i, int64_t window) {
  const Operation& o = program_.operations[i];
  const Value &in = program_.values[o.in], &out = program_.values[o.out];
  const int64_t rows = program_.parameters[o.weight].sizes[0], wide = out.channels;
  const float* tokens = in.forward.of(window);
  for (int64_t t = 0; t < in.steps; t++)
    std::memcpy(out.forward.of(window) + t * wide, weight(o.weight) + row_of(tokens[t], rows) * wide, sizeof(float) * wide);
}

void Session::embed_back(int i, int64_t window) {
  const Operation& o = program_.operations[i];
  const Value &in = program_.values[o.in], &out = program_.values[o.out];
  const int64_t rows = program_.parameters[o.weight].sizes[0], wide = out.channels;
  const float* tokens = in.forward.of(window);
  for (int64_t t = 0; t < in.steps; t++) {
    const int64_t row = row_of(tokens[t], rows);
    if (row != o.padding) k_.add(out.gradient.of(window) + t * wide, gradient(o.weight) + row * wide, wide);
  }
}

// --- parts ------------------------------------------------------------------------------------------------

// Some steps and channels of a value.
void Session::pick(int i, int64_t window) {
  const Operation& o = program_.operations[i];
  const Value &in = program_.values[o.in], &out = program_.values[o.out];
  for (int64_t t = 0; t < out.steps; t++)
    std::memcpy(out.forward.of(window) + t * out.channels, in.forward.of(window) + (o.size + t) * in.channels + o.stride,
                sizeof(float) * out.channels);
}

void Session::pick_back(int i, bool adds, int64_t window) {
  const Operation& o = program_.operations[i];
  Value &in = program_.values[o.in], &out = program_.values[o.out];
  float* to = in.gradient.of(window);
  if (!adds) std::fill_n(to, in.steps * in.channels, 0.0f);
  for (int64_t t = 0; t < out.steps; t++)
    k_.add(out.gradient.of(window) + t * out.channels, to + (o.size + t) * in.channels + o.stride, out.channels);
}

// Channels of two values side by side.
void Session::join(int i, int64_t window) {
  const Operation& o = program_.operations[i];
  const Value& out = program_.values[o.out];
  int64_t at = 0;
  for (const int64_t v : {o.in, o.second}) {
    const Value& part = program_.values[v];
    for (int64_t t = 0; t < out.steps; t++)
      std::memcpy(out.forward.of(window) + t * out.channels + at, part.forward.of(window) + t * part.channels,
                  sizeof(float) * part.channels);
    at += part.channels;
  }
}

void Session::join_back(const Stage& stage, int64_t window) {
  const Operation& o = program_.operations[stage.operation];
  const Value& out = program_.values[o.out];
  int64_t at = 0;
  for (const int64_t v : {o.in, o.second}) {
    Value& part = program_.values[v];
    const bool adds = v == o.in ? stage.adds : stage.second_adds;
    for (int64_t t = 0; t < out.steps && part.needs_gradient; t++) {
      const float* from = out.gradient.of(window) + t * out.channels + at;
      float* to = part.gradient.of(window) + t * part.channels;
      if (adds)
        k_.add(from, to, part.channels);
      else
        std::memcpy(to, from, sizeof(float) * part.channels);
    }
    at += part.channels;
  }
}

}  // namespace fedge
