// What a core can do at best: fused multiplications and additions in registers, with nothing to wait for.
#pragma once
#include "vector.h"

namespace FEDGE_ISA {

constexpr int CHAINS = REGISTERS == 32 ? 24 : 12;  // sums that take turns; more than a multiplier's latency needs

// Carries out many; returns how many multiplications and additions of numbers they were, and adds to `sum`, so that
// nobody leaves them out.
static double multiply_add(int64_t rounds, float* sum) {
  const V a = all(*sum), b = all(*sum * 0.001f);
  V chain[CHAINS];
  FEDGE_UNROLL for (int i = 0; i < CHAINS; i++) chain[i] = a * all((float)i);
  for (int64_t r = 0; r < rounds; r++) {
    FEDGE_UNROLL for (int i = 0; i < CHAINS; i++) chain[i] = fma(a, b, chain[i]);
  }
  V total = all(0.0f);
  FEDGE_UNROLL for (int i = 0; i < CHAINS; i++) total += chain[i];
  for (int i = 0; i < W; i++) *sum += total[i];
  return 2.0 * W * CHAINS * rounds;
}

}  // namespace FEDGE_ISA
