// Training or evaluating one client's network: weights, velocities, and the carrying out of a program's stages.
#pragma once
#include <cstdint>
#include <vector>

#include "program.h"

namespace fedge {

// As fedge.training.settings.LocalTraining has them.
struct Settings {
  double lr, momentum, weight_decay, clip_norm, label_smoothing, prox_mu;
};

class Session {
 public:
  Session(const int64_t* words, int64_t count, const Kernels& kernels, int64_t batch);

  // Takes parameters and buffers in, both as the network has them, one after another. `correction` may be null.
  void begin(const float* parameters, const float* buffers, const float* correction, const Settings& settings);
  // One step per batch of `order`, numbers of windows of x (., channels, steps). `masks` of `order`'s windows, of
  // dropout; `losses` gets the mean loss of each batch.
  void train(const float* x, const int64_t* y, const int64_t* order, int64_t windows, const uint8_t* masks,
             double* losses);
  // Loss and most likely class of each window.
  void evaluate(const float* x, const int64_t* y, int64_t windows, double* losses, int64_t* predictions);
  void end(float* parameters, float* buffers) const;

 private:
  // what the windows of the batch at hand are
  struct Batch {
    const float* x;
    const int64_t *y, *order;  // `order` may be null: one after another
    int64_t windows;
    const uint8_t* masks;
    double* losses;        // of each window
    int64_t* predictions;  // of each window, or null
  };

  void carry_out(const Batch& batch);
  void window_stage(const Stage& stage, const Batch& batch, int64_t window);
  void batch_stage(const Stage& stage, const Batch& batch);
  void forward(int i, const Batch& batch, int64_t window);
  void back(const Stage& stage, const Batch& batch, int64_t window);
  void conv(int i, int64_t window);
  void conv_back(int i, bool adds, int64_t window, int64_t windows);
  void turn_weights(int i);
  bool packs(const Operation& o) const;
  void plan_packed(int i);
  void pack_weights(int i);
  Product convolution(int i, int64_t window);
  Product input_gradient(int i, const Phase& phase, bool adds, int64_t window);
  TapGradient tap_gradient(int i, int64_t window, int64_t windows);
  void multiply(const Product& p, int i, int64_t packed);
  struct Part;
  template <class Work>
  void each_part(int i, int64_t window, int64_t windows, const Work& work);
  void make_columns(int i, const Part& part);
  void image_conv(int i, int64_t window, int64_t windows);
  void image_conv_back(int i, bool adds, int64_t window, int64_t windows);
  void turn_image_weights(int i);
  void row_norm(int i, int64_t window);
  void row_norm_back(int i, int64_t window, float* to);
  void group_moments(int i, int64_t window);
  const double* group_scales(int i, int64_t window);
  void group_norm(int i, int64_t window);
  void group_norm_back(int i, int64_t window, float* to);
  void embed(int i, int64_t window);
  void embed_back(int i, int64_t window);
  void pick(int i, int64_t window);
  void pick_back(int i, bool adds, int64_t window);
  void join(int i, int64_t window);
  void join_back(const Stage& stage, int64_t window);
  struct Steps;
  Steps steps_of(int i, int64_t windows);
  void turn_recurrent(int i);
  const float* gate_biases(int i);
  void recurrent(int i, int64_t windows);
  void recurrent_back(int i, bool adds, int64_t windows);
  void recurrent_back_steps(const Steps& steps, const float* turned);
  void linear(int i, int64_t windows);
  void linear_back(int i, bool adds, int64_t windows);
  void mask_by_relu(const Operation& o, int64_t window);
  Pool pool_of(const Operation& o) const;
  void norm_begin(int i);
  void norm_finish(int i, int64_t rows);
  void norm_fixed(int i);
  void norm_coefficients(int i, int64_t rows);
  void loss(const Batch& batch);
  void descend();
  void send(const float* result, bool adds, Store& to, int64_t window);
  float* weight(int64_t parameter) { return w_.data() + program_.parameters[parameter].place; }
  float* gradient(int64_t parameter) { return g_.data() + program_.parameters[parameter].place; }
  void rearrange(const float* from, float* to, bool inwards) const;

  Program program_;
  const Kernels& k_;
  Settings settings_ = {};
  Floats w_, g_, velocity_, start_, correction_, buffers_, aside_, work_, columns_, rows_;
};

}  // namespace fedge
