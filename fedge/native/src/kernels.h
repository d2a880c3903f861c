// What one instruction set offers: a table of functions, one per kernel, chosen at run time.
//
// An activation of one window is a matrix, rows of time by channels, channels side by side ("channels last"):
// `steps` rows of `channels` floats. A vector of features is one row.
#pragma once
#include <cstdint>

namespace fedge {

// C (m x n) = A (m x k) B (k x n), or C += A B.
// A(i, j) = a[i * a_row + j * a_step], B(j, l) = b[j * b_row + l], C(i, l) = c[i * c_row + l].
struct Product {
  int64_t m, n, k;
  const float* a;
  int64_t a_row, a_step;
  const float* b;
  int64_t b_row;
  float* c;
  int64_t c_row;
  const float* bias;  // n numbers that the sums begin with, or null; not where they are added to C
  bool add;           // to what C holds
  bool relu;
};

// Gradient of a convolution's weights: C (size * channels x columns) = or += the sum over windows and steps t of
// x[(t + tap) * x_row + channel] g[t * columns + column]. Windows are handed over one by one, `slots` of them are
// multiplied in one go.
struct TapGradient {
  int64_t steps, channels, size, columns;
  const float* x;
  int64_t x_row;
  const float* g;
  float* c;
  int64_t slot;  // of this window
  bool last;     // multiply the windows in slots 0 to `slot`
  bool add;      // to what C holds
};

struct Pool {
  int64_t steps, channels, out_steps, size, stride, padding;
  bool relu;  // before pooling
};

// Taps over an image, lines first: of a convolution or a pool. Channels are those of what it reads.
struct Image {
  int64_t channels, lines, steps, out_lines, out_steps;
  int64_t size[2], stride[2], padding[2];
};

// BatchNorm of one layer; arrays of `channels` numbers.
struct Norm {
  int64_t channels;
  float *scale, *shift;         // y = scale x + shift
  float *mean, *inverse;        // of the batch; 1 / its standard deviation
  double *sum_mean, *sum_m2;    // mean and squared distance from it of the rows seen so far
  double *sum_g, *sum_gx;       // of gradients, and of gradients times (x - mean)
  float *by_g, *by_x, *by_one;  // dx = by_g g + by_x (x - mean) + by_one
  bool relu;                    // after it
};

struct Step {
  float lr, momentum, weight_decay, prox_mu;
};

struct Kernels {
  const char* name;
  int width;
  void (*product)(const Product&);
  void (*column_sums)(const float* x, int64_t rows, int64_t columns, float* sums);  // adds to sums
  void (*column_sums_of)(const float* x, int64_t rows, int64_t columns, int64_t row, float* sums);  // rows lie `row` apart
  void (*gather)(const float* x, int64_t channels, int64_t steps, float* out);
  void (*relu)(const float* x, float* y, int64_t n);
  void (*relu_back)(const float* y, const float* g, float* out, int64_t n);
  void (*gelu)(const float* x, float* y, int64_t n, bool by_tanh);
  void (*gelu_back)(const float* x, const float* g, float* out, int64_t n, bool by_tanh);
  void (*add)(const float* x, float* sum, int64_t n);
  void (*drop)(const float* x, const uint8_t* mask, int64_t rows, int64_t columns, bool by_column, float scale, float* y);
  void (*max_pool)(const Pool&, const float* x, float* y, uint8_t* place);
  void (*max_pool_back)(const Pool&, const float* g, const uint8_t* place, float* out);
  void (*mean_pool)(const Pool&, const float* x, float scale, float* y);
  void (*mean_pool_back)(const Pool&, const float* g, float scale, float* out);
  void (*mean_all)(const float* x, int64_t steps, int64_t channels, float scale, float* y);
  void (*norm_statistics)(const Norm&, const float* x, int64_t steps, int64_t rows_before);
  void (*norm_apply)(const Norm&, const float* x, int64_t steps, float* y);
  // a gradient whose rows are all the same is given once, with g_row 0
  void (*norm_sums)(const Norm&, const float* x, const float* g, int64_t g_row, int64_t steps);
  void (*norm_back)(const Norm&, const float* x, const float* g, int64_t g_row, int64_t steps, float* out);
  double (*squares)(const float* x, int64_t n);
  void (*descend)(const Step&, int64_t n, float clip, const float* g, const float* start, const float* correction,
                  float* velocity, float* w);
  double (*multiply_add)(int64_t rounds, float* sum);
  // what `lines` output lines are made of, a row for each position, `row` floats apart; and the way back, which adds
  void (*image_columns)(const Image&, const float* x, int64_t first_line, int64_t lines, int64_t row, float* columns);
  void (*image_add_columns)(const Image&, const float* columns, int64_t first_line, int64_t lines, int64_t row, float* x);
  void (*image_max_pool)(const Image&, const float* x, bool relu, float* y, uint8_t* place);
  void (*image_max_pool_back)(const Image&, const float* g, const uint8_t* place, float* out);
  void (*image_mean_pool)(const Image&, const float* x, float scale, float* y);
  void (*image_mean_pool_back)(const Image&, const float* g, float scale, float* out);
  // kind: 0 sigmoid, 1 tanh, 2 SiLU; the way back is from what the first two gave, and from what the third was given
  void (*curve)(int kind, const float* x, float* y, int64_t n);
  void (*curve_back)(int kind, const float* from, const float* g, float* out, int64_t n);
  void (*row_norm)(int64_t rows, int64_t length, double eps, const float* x, const float* weight, const float* bias,
                   float* y, float* kept);
  void (*row_norm_back)(int64_t rows, int64_t length, const float* x, const float* g, const float* weight,
                        const float* kept, float* by_weight, float* by_bias, float* out);
  void (*gru_cell)(int64_t windows, int64_t hidden, float* gates, const float* before, float* state);
  void (*gru_cell_back)(int64_t windows, int64_t hidden, float* gates, const float* before, float* carry);
  void (*lstm_cell)(int64_t windows, int64_t hidden, float* gates, const float* cell_before, float* cell, float* bounded,
                    float* state);
  void (*lstm_cell_back)(int64_t windows, int64_t hidden, float* gates, const float* cell_before, const float* bounded,
                         const float* carry, float* cell_carry);

  // Products whose second factor is packed beforehand; null where there are none. `work` is memory of at least as many
  // floats as the function before it says; a_step must be 1.
  int64_t (*packed_floats)(int64_t k, int64_t n) = nullptr;
  void (*pack)(const float* b, int64_t b_row, int64_t k, int64_t n, float* packed) = nullptr;
  int64_t (*work_floats)(const Product&) = nullptr;
  void (*packed_product)(const Product&, const float* packed, float* work) = nullptr;
  int64_t (*tap_slots)(const TapGradient&) = nullptr;
  int64_t (*tap_work_floats)(const TapGradient&) = nullptr;
  void (*tap_gradient)(const TapGradient&, float* work) = nullptr;
};

extern const Kernels kernels_plain;
#if defined(__x86_64__)
extern const Kernels kernels_avx2, kernels_avx512;
#elif defined(__aarch64__)
extern const Kernels kernels_neon;
#endif

}  // namespace fedge
