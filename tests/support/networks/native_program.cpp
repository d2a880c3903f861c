// Trains and evaluates one network without Python, for sanitizers and for processors that are emulated.
//
//   native_program CASES RESULT KERNEL THREADS
//
// CASES are one after another; each, all of 8 bytes each but the last two lines: batch, number of words, floats, buffer floats, windows, floats of a
// window, epochs, bytes of masks; words of the training program; their number and the words of the evaluation; labels;
// order of the windows of all epochs; six settings; then float32 weights, buffers, correction, windows;
// masks. RESULT, of each: float32 weights and buffers, float64 losses of the steps and of the evaluated windows. Every
// thread does the same; the program fails if two differ in a bit, or if there is no such kernel.
// It says on standard error which case it begins with.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

extern "C" {
const char* fedge_kernel(int);
void* fedge_open(const int64_t*, int64_t, int, int64_t, char*, int64_t);
void fedge_close(void*);
int fedge_begin(void*, const float*, const float*, const float*, const double*);
int fedge_train(void*, const float*, const int64_t*, const int64_t*, int64_t, const uint8_t*, double*);
int fedge_evaluate(void*, const float*, const int64_t*, int64_t, double*, int64_t*);
void fedge_end(void*, float*, float*);
}

static FILE* input;

template <class T>
static std::vector<T> take(int64_t n) {
  std::vector<T> out(n);
  if (n && (int64_t)std::fread(out.data(), sizeof(T), n, input) != n) std::exit(3);
  return out;
}

template <class T>
static void write(const std::vector<T>& numbers, FILE* out) {
  if (!numbers.empty()) std::fwrite(numbers.data(), sizeof(T), numbers.size(), out);
}

struct Case {
  std::vector<int64_t> sizes = take<int64_t>(8), training = take<int64_t>(sizes[1]);
  std::vector<int64_t> length = take<int64_t>(1), evaluation = take<int64_t>(length[0]);
  std::vector<int64_t> y = take<int64_t>(sizes[4]), order = take<int64_t>(sizes[4] * sizes[6]);
  std::vector<double> settings = take<double>(6);
  std::vector<float> weights = take<float>(sizes[2]), buffers = take<float>(sizes[3]), correction = take<float>(sizes[2]);
  std::vector<float> x = take<float>(sizes[4] * sizes[5]);
  std::vector<uint8_t> masks = take<uint8_t>(sizes[7]);
};

struct Result {
  std::vector<float> weights, buffers;
  std::vector<double> losses, evaluated;
  bool operator!=(const Result& o) const {
    return differ(weights, o.weights) || differ(buffers, o.buffers) || differ(losses, o.losses) ||
           differ(evaluated, o.evaluated);
  }

 private:
  template <class T>
  static bool differ(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() != b.size() || (!a.empty() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)));
  }
};

static void* open_or_fail(const std::vector<int64_t>& words, int kernel, int64_t batch) {
  char message[256];
  void* session = fedge_open(words.data(), words.size(), kernel, batch, message, sizeof message);
  if (!session) {
    std::fprintf(stderr, "%s\n", message);
    std::exit(4);
  }
  return session;
}

static void carry_out(const Case& c, int kernel, Result& r) {
  const int64_t windows = c.sizes[4], epochs = c.sizes[6], steps = (windows + c.sizes[0] - 1) / c.sizes[0];
  r.weights = c.weights, r.buffers = c.buffers;
  r.losses.resize(steps * epochs), r.evaluated.resize(windows);
  void* session = open_or_fail(c.training, kernel, c.sizes[0]);
  if (fedge_begin(session, c.weights.data(), c.buffers.data(), c.correction.data(), c.settings.data())) std::exit(5);
  for (int64_t e = 0; e < epochs; e++)
    if (fedge_train(session, c.x.data(), c.y.data(), c.order.data() + e * windows, windows,
                    c.masks.empty() ? nullptr : c.masks.data(), r.losses.data() + e * steps))
      std::exit(5);
  fedge_end(session, r.weights.data(), r.buffers.data());
  fedge_close(session);
  session = open_or_fail(c.evaluation, kernel, 7);
  const std::vector<double> none(6);
  std::vector<int64_t> classes(windows);
  if (fedge_begin(session, r.weights.data(), r.buffers.data(), nullptr, none.data())) std::exit(5);
  if (fedge_evaluate(session, c.x.data(), c.y.data(), windows, r.evaluated.data(), classes.data())) std::exit(5);
  fedge_close(session);
}

static int carry_out_all(int kernel, int threads, FILE* out) {
  for (int number = 0, next; (next = std::fgetc(input)) != EOF; number++) {
    std::ungetc(next, input);
    std::fprintf(stderr, "case %d\n", number);
    const Case c;
    std::vector<Result> results(threads);
    std::vector<std::thread> running;
    for (Result& r : results) running.emplace_back([&c, &r, kernel] { carry_out(c, kernel, r); });
    for (std::thread& t : running) t.join();
    for (const Result& r : results)
      if (r != results[0]) return 7;
    const Result& r = results[0];
    write(r.weights, out);
    write(r.buffers, out);
    write(r.losses, out);
    write(r.evaluated, out);
  }
  return 0;
}

int main(int count, char** words) {
  if (count != 5 || !(input = std::fopen(words[1], "rb"))) return 2;
  int kernel = 0;
  while (fedge_kernel(kernel) && std::string(fedge_kernel(kernel)) != words[3]) kernel++;
  if (!fedge_kernel(kernel)) return 6;
  FILE* out = std::fopen(words[2], "wb");
  if (!out) return 2;
  const int code = carry_out_all(kernel, std::atoi(words[4]), out);
  std::fclose(input);
  return std::fclose(out) ? 2 : code;
}
