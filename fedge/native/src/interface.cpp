// What Python calls, through ctypes: plain C, no exception leaves it.
#include <cstring>
#include <exception>
#include <stdexcept>

#include "amx.h"
#include "rounded.h"
#include "session.h"

namespace {

// Best first; those that this processor cannot run are left out. Behind them, in the same order, those that round
// factors to bf16.
const fedge::Kernels* kernels_here(int number) {
  const fedge::Kernels* found[8];
  int count = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  const fedge::Kernels* tiles = has_512 ? fedge::amx_kernels(false) : nullptr;
  if (tiles) found[count++] = tiles;
  if (has_512) found[count++] = &fedge::kernels_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found[count++] = &fedge::kernels_avx2;
#elif defined(__aarch64__)
  const fedge::Kernels* tiles = nullptr;
  found[count++] = &fedge::kernels_neon;
#else
  const fedge::Kernels* tiles = nullptr;
#endif
  found[count++] = &fedge::kernels_plain;
  const int exact = count;
  for (int i = 0; i < exact; i++)
    found[count++] = found[i] == tiles ? fedge::amx_kernels(true) : fedge::rounded_kernels(found[i]);
  return 0 <= number && number < count ? found[number] : nullptr;
}

void tell(const std::exception& error, char* message, int64_t room) {
  std::strncpy(message, error.what(), room - 1);
  message[room - 1] = 0;
}

}  // namespace

#define FEDGE_API extern "C" __attribute__((visibility("default")))

FEDGE_API const char* fedge_sources() { return FEDGE_SOURCES; }

// Name of a kernel that this processor can run, the best being number 0; null behind the last.
FEDGE_API const char* fedge_kernel(int number) {
  const fedge::Kernels* kernels = kernels_here(number);
  return kernels ? kernels->name : nullptr;
}

// A session, or null, with a message.
FEDGE_API void* fedge_open(const int64_t* words, int64_t count, int kernel, int64_t batch, char* message,
                           int64_t room) {
  try {
    const fedge::Kernels* kernels = kernels_here(kernel);
    if (!kernels) throw std::invalid_argument("there is no such kernel");
    return new fedge::Session(words, count, *kernels, batch);
  } catch (const std::exception& error) {
    tell(error, message, room);
    return nullptr;
  }
}

FEDGE_API void fedge_close(void* session) { delete (fedge::Session*)session; }

// `settings`: the six numbers of fedge::Settings. Returns 0, or 1 where there is no memory.
FEDGE_API int fedge_begin(void* session, const float* parameters, const float* buffers, const float* correction,
                          const double* settings) {
  try {
    fedge::Settings s;
    std::memcpy(&s, settings, sizeof s);
    ((fedge::Session*)session)->begin(parameters, buffers, correction, s);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

FEDGE_API int fedge_train(void* session, const float* x, const int64_t* y, const int64_t* order, int64_t windows,
                          const uint8_t* masks, double* losses) {
  try {
    ((fedge::Session*)session)->train(x, y, order, windows, masks, losses);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

FEDGE_API int fedge_evaluate(void* session, const float* x, const int64_t* y, int64_t windows, double* losses,
                             int64_t* predictions) {
  try {
    ((fedge::Session*)session)->evaluate(x, y, windows, losses, predictions);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

FEDGE_API void fedge_end(void* session, float* parameters, float* buffers) {
  ((fedge::Session*)session)->end(parameters, buffers);
}

// Carries out multiplications and additions in registers; returns how many they were, 0 where there is no such kernel.
FEDGE_API double fedge_multiply_add(int kernel, int64_t rounds) {
  const fedge::Kernels* kernels = kernels_here(kernel);
  static volatile float start = 0.5f;
  float sum = start;
  const double done = kernels ? kernels->multiply_add(rounds, &sum) : 0.0;
  return sum == 0.1234f ? 0.0 : done;
}
