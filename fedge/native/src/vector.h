// One name for the vectors of every instruction set: V holds W floats.
//
// This header and those that include it are compiled once per instruction set (kernels.cpp), each time in a
// namespace of its own, FEDGE_ISA. They use no templates of the standard library: the linker would keep one
// copy of each for all instruction sets, and a processor would meet instructions that it does not have.
//
// A load may read past the end of a row, up to W - 1 floats: every buffer here has that much slack behind it,
// and what is read there is never stored.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(FEDGE_AVX512) || defined(FEDGE_AVX2)
#include <immintrin.h>
#elif defined(FEDGE_NEON)
#include <arm_neon.h>
#endif

#define FEDGE_INLINE static inline __attribute__((always_inline))
#define FEDGE_UNROLL _Pragma("GCC unroll 24")

namespace FEDGE_ISA {

#if defined(FEDGE_AVX512)
constexpr int W = 16, REGISTERS = 32;
#elif defined(FEDGE_AVX2)
constexpr int W = 8, REGISTERS = 16;
#elif defined(FEDGE_NEON)
constexpr int W = 4, REGISTERS = 32;
#else
constexpr int W = 4, REGISTERS = 16;
#endif

typedef float V __attribute__((vector_size(4 * W)));
typedef int32_t I __attribute__((vector_size(4 * W)));  // what comparing two V gives: -1 or 0 per lane
typedef uint8_t B __attribute__((vector_size(W)));

FEDGE_INLINE V load(const float* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

FEDGE_INLINE void store(float* p, V v) { std::memcpy(p, &v, sizeof v); }

FEDGE_INLINE V all(float x) {
#if defined(FEDGE_AVX512)
  return (V)_mm512_set1_ps(x);
#elif defined(FEDGE_AVX2)
  return (V)_mm256_set1_ps(x);
#else
  return V{x, x, x, x};
#endif
}

// Stores the first n lanes, 0 < n <= W.
FEDGE_INLINE void store_first(float* p, V v, int64_t n) {
  if (n == W) {
    store(p, v);
    return;
  }
#if defined(FEDGE_AVX512)
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
#else
  for (int64_t i = 0; i < n; i++) p[i] = v[i];
#endif
}

// a * b + c, rounded once where the instruction set has that; nothing else is ever contracted.
FEDGE_INLINE V fma(V a, V b, V c) {
#if defined(FEDGE_AVX512)
  return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(FEDGE_AVX2)
  return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(FEDGE_NEON)
  return (V)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

// Bytes as words and back; compilers take such vectors apart, number by number.
FEDGE_INLINE I widened(B bytes) {
#if defined(FEDGE_AVX512)
  return (I)_mm512_cvtepu8_epi32((__m128i)bytes);
#elif defined(FEDGE_AVX2)
  return (I)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)bytes));
#else
  return __builtin_convertvector(bytes, I);
#endif
}

FEDGE_INLINE B narrowed(I words) {
#if defined(FEDGE_AVX512)
  return (B)_mm512_cvtepi32_epi8((__m512i)words);
#else
  return __builtin_convertvector(words, B);
#endif
}

FEDGE_INLINE V choose(I where, V yes, V no) { return where ? yes : no; }

// ReLU, which lets NaN through as PyTorch's does.
FEDGE_INLINE V relu(V x) { return choose(x < 0.0f, all(0.0f), x); }

FEDGE_INLINE int64_t lanes(int64_t left) { return left < W ? left : W; }

}  // namespace FEDGE_ISA
