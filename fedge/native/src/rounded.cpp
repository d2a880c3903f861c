// Kernels whose products of convolutions take factors that are rounded to bf16, on processors that have no instructions
// for it: as exact as those that have, and no faster than without rounding. What `amx_bf16` computes can so be studied
// on any processor; sums run in another order.
#include "rounded.h"

#include <cstring>

namespace fedge {

namespace {

constexpr int64_t SLACK = 64;  // floats that a vector load may read past the end

// To the nearest number with 8 bits, ties to even; NaN stays NaN.
float rounded(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = x == x ? (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u : bits | 0x00400000u;
  std::memcpy(&x, &bits, sizeof bits);
  return x;
}

void round_all(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i++) out[i] = rounded(x[i]);
}

int64_t packed_floats(int64_t k, int64_t n) { return k * n + SLACK; }

void pack(const float* b, int64_t b_row, int64_t k, int64_t n, float* packed) {
  for (int64_t i = 0; i < k; i++) round_all(b + i * b_row, n, packed + i * n);
}

int64_t region(const Product& p) { return (p.m - 1) * p.a_row + p.k; }

int64_t work_floats(const Product& p) { return region(p) + SLACK; }

template <const Kernels& BASE>
void packed_product(const Product& p, const float* packed, float* work) {
  round_all(p.a, region(p), work);
  Product q = p;
  q.a = work, q.b = packed, q.b_row = p.n;
  BASE.product(q);
}

int64_t region(const TapGradient& t) { return (t.steps - 1) * t.x_row + t.size * t.channels; }

int64_t tap_slots(const TapGradient&) { return 1; }

int64_t tap_work_floats(const TapGradient& t) { return region(t) + t.steps * t.columns + 2 * SLACK; }

template <const Kernels& BASE>
void tap_gradient(const TapGradient& t, float* work) {
  float* g = work + region(t) + SLACK;
  round_all(t.x, region(t), work);
  round_all(t.g, t.steps * t.columns, g);
  BASE.product({t.size * t.channels, t.columns, t.steps, work, 1, t.x_row, g, t.columns, t.c, t.columns, nullptr, t.add,
                false});
}

template <const Kernels& BASE>
const Kernels* rounding(const char* name) {
  static const Kernels found = [name] {
    Kernels kernels = BASE;
    kernels.name = name;
    kernels.packed_floats = packed_floats;
    kernels.pack = pack;
    kernels.work_floats = work_floats;
    kernels.packed_product = packed_product<BASE>;
    kernels.tap_slots = tap_slots;
    kernels.tap_work_floats = tap_work_floats;
    kernels.tap_gradient = tap_gradient<BASE>;
    return kernels;
  }();
  return &found;
}

}  // namespace

const Kernels* rounded_kernels(const Kernels* exact) {
  if (exact == &kernels_plain) return rounding<kernels_plain>("plain_bf16");
#if defined(__x86_64__)
  if (exact == &kernels_avx2) return rounding<kernels_avx2>("avx2_bf16");
  if (exact == &kernels_avx512) return rounding<kernels_avx512>("avx512_bf16");
#elif defined(__aarch64__)
  if (exact == &kernels_neon) return rounding<kernels_neon>("neon_bf16");
#endif
  return nullptr;
}

}  // namespace fedge
