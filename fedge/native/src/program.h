// A network as a list of operations on values, and where each value is kept.
//
// A value is, per window, `steps` rows of `channels` floats; of an image, those of all lines, one after another. Operations come in an order in which each finds its
// inputs; fedge/native/program.py writes them, as whole numbers, in the order in which `Program::read` takes them.
#pragma once
#include <cstdint>
#include <new>
#include <vector>

#include "kernels.h"

namespace fedge {

// Numbers that begin where a cache line does: a vector that crosses two lines is loaded twice.
template <class T>
struct OnLines {
  using value_type = T;
  OnLines() = default;
  template <class Other>
  OnLines(const OnLines<Other>&) {}
  T* allocate(std::size_t n) { return (T*)::operator new(n * sizeof(T), std::align_val_t(64)); }
  void deallocate(T* p, std::size_t) { ::operator delete(p, std::align_val_t(64)); }
  bool operator==(const OnLines&) const { return true; }
  bool operator!=(const OnLines&) const { return false; }
};
using Floats = std::vector<float, OnLines<float>>;

enum Kind : int64_t { CONV, LINEAR, NORM, FIXED_NORM, RELU, GELU, MAX_POOL, MEAN_POOL, MEAN_ALL, DROP, ADD,
                      IMAGE_CONV, IMAGE_MAX_POOL, IMAGE_MEAN_POOL, SIGMOID, TANH, SILU, ROW_NORM, GROUP_NORM, PICK,
                      JOIN, GRU, LSTM, EMBED };

// Meaning of the numbers of an operation, by kind; -1 where there is none.
struct Operation {
  int64_t kind, in, second, out;  // values; `second` of ADD and JOIN
  int64_t weight, bias;           // parameters
  // of taps over time; padding is of the front. GROUP_NORM: size groups. ROW_NORM: rows of `size` numbers. PICK: steps from
  // `size` on, channels from `stride` on. EMBED: `padding` is the row that is not trained, or -1.
  int64_t size, stride, padding;
  int64_t relu;                   // 1: ReLU after it (before it, of MAX_POOL)
  int64_t buffer;                 // of NORM: running mean, then running variance
  int64_t flag;                   // GELU: 1 for tanh; DROP: 1 for whole channels; GRU, LSTM: 1 for last step first
  double number, second_number;   // *NORM: eps (and momentum); MEAN_*: scale; DROP: scale of what is kept
  int64_t lines, line_size, line_stride, line_padding;  // IMAGE_*: lines of the input, and taps over them
  int64_t state_weight, state_bias;  // GRU, LSTM: parameters of what the step before hands on

  bool on_image() const { return IMAGE_CONV <= kind && kind <= IMAGE_MEAN_POOL; }
  bool two_branches() const { return kind == ADD || kind == JOIN; }
  bool recurrent() const { return kind == GRU || kind == LSTM; }
  bool convolves() const { return kind == CONV || kind == IMAGE_CONV; }
};

enum ParameterKind : int64_t { VECTOR, CONV_WEIGHT, LINEAR_WEIGHT };

// Weights of recurrent layers are as those of a convolution of one tap, a norm's of each number as those of a linear
// layer of one output, an embedding's as a vector of all its rows. In the network's memory: conv (out, in, size), the taps of an image line by line; linear (out, channels * steps of
// its input). Here: conv (size, in, out), linear (out, steps * channels), each from `place` on, which is the start of
// a cache line.
struct Parameter {
  int64_t kind, offset, sizes[3];
  int64_t place = 0;
  int64_t count() const;
};

// Rows of zeros before and after the rows of a window, which convolutions read; all windows of a batch, or one
// at a time where nothing outside of a run of stages asks for it.
struct Store {
  int64_t rows = 0, columns = 0, before = 0, after = 0;
  bool each_window = false;
  int64_t first_stage = -1, last_stage = -1;
  int64_t window_floats = 0;
  float* memory = nullptr;

  float* of(int64_t window) const { return memory + (each_window ? window * window_floats : 0) + before * columns; }
  int64_t step() const { return each_window ? window_floats : 0; }
};

struct Value {
  int64_t channels, steps;
  bool needs_gradient = false;
  int64_t uses = 0;
  Store forward, gradient;
};

constexpr int64_t SLACK_OF_WEIGHTS = 64;  // floats behind weights that a vector load may read

enum Pass : int { GATHER, FORWARD, STATISTICS, FINISH, APPLY, LOSS, BACK, SUMS, COEFFICIENTS, BACK_APPLY };

// What is done in one go: for the whole batch, or window by window together with its neighbours.
struct Stage {
  int operation;
  Pass pass;
  bool whole_batch;
  bool adds = false;         // to a gradient that another operation has begun
  bool second_adds = false;  // of ADD: the same for its second branch
};

// The part of an input's gradient that comes from one phase of a convolution's stride.
struct Phase {
  int64_t first, count;  // input steps first, first + stride, …
  int64_t start;         // output step that the sum of the first of them begins at; may lie before the first
  int64_t taps, weight;  // number of taps; where their transposed weights are
  int64_t packed = 0;    // where these are, packed
};

// What an operation keeps besides its value.
struct Own {
  Floats channel;                        // NORM: arrays of channels, see `norm_of`
  std::vector<double> sums;
  std::vector<uint8_t> places;            // MAX_POOL, IMAGE_MAX_POOL: of all windows in training
  Floats turned, result;                  // LINEAR: transposed input and output; convolutions: transposed weights
  Floats packed;                          // CONV: weights, then turned weights of each phase, for packed products
  Floats tap_work;                        // CONV: windows whose part of the weights' gradient is to come
  int64_t tap_slots = 1;
  std::vector<Phase> phases;
  int64_t mask = 0;                       // DROP: where its masks begin in those of a window
  Norm norm = {};
  Floats kept;                            // ROW_NORM: of each row; GRU, LSTM: of all steps, see `Memory`
  std::vector<double> moments;            // GROUP_NORM: mean and 1 / deviation of each window's groups
  Image image = {};                       // IMAGE_*
  // IMAGE_CONV: floats of a row of columns; lines, or whole windows, of which they are made in one go
  int64_t image_row = 0, image_lines = 0, image_windows = 1;
};

// Where a recurrent layer keeps what it needs of a batch of some windows, in floats; see recurrent.cpp.
struct Memory {
  int64_t weights;      // of each input
  int64_t x, gates;     // inputs; gates, four for each hidden number
  int64_t state, cell;  // before each step, and after the last
  int64_t bounded;      // LSTM: tanh of the cell after each step
  int64_t carry, cell_carry;  // gradients that a step hands to the one before it
  int64_t floats;
};

Memory memory_of(const Operation& o, const Value& in, const Value& out, int64_t windows);

class Program {
 public:
  // Throws std::invalid_argument for what is no program.
  Program(const int64_t* words, int64_t count, const Kernels& kernels, int64_t batch);

  const Kernels& kernels;
  const int64_t batch;
  bool training;
  int64_t classes, input, logits;
  int64_t trainable, floats, buffer_floats, mask_bytes;
  int64_t columns_floats = 0, rows_floats = 0;  // memory for columns of images, and for rows of several windows
  int64_t places = 0, trained_places = 0;  // numbers from the first parameter to the last, and to the last that is trained
  std::vector<Value> values;
  std::vector<Parameter> parameters;
  std::vector<Operation> operations;
  std::vector<Own> own;
  std::vector<Stage> stages;

 private:
  void read(const int64_t* words, int64_t count);
  void check() const;
  void check_image(const Operation& o) const;
  void plan_places();
  void plan_stages();
  void plan_gradient_stages();
  void plan_phases(int operation);
  void plan_images();
  void plan_image_conv(int operation);
  bool takes_batch(int operation) const;
  void plan_stores();
  void touch(Store& store, int stage);
  void touch_all(int stage);
  void make_memory();
  void make_own();
  void check_weighted(const Operation& o) const;
  void check_moved(const Operation& o) const;
  bool is_shaped(int64_t parameter, int64_t kind, int64_t a, int64_t b, int64_t c) const;
  void make_norm(int i);
  Floats arena_;
};

}  // namespace fedge
