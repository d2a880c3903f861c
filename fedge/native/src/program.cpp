#include "program.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace fedge {

namespace {

constexpr int64_t SLACK = 64;  // floats that a vector load may read past the end

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

class Words {
 public:
  Words(const int64_t* words, int64_t count) : words_(words), left_(count) {}
  int64_t next() {
    require(left_-- > 0, "the program ends too early");
    return *words_++;
  }
  double number() {
    const int64_t bits = next();
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  int64_t count() {
    const int64_t n = next();
    require(0 <= n && n <= 1 << 20, "a count is out of range");
    return n;
  }
  bool done() const { return left_ == 0; }

 private:
  const int64_t* words_;
  int64_t left_;
};

int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

int64_t Parameter::count() const { return sizes[0] * sizes[1] * sizes[2]; }

Program::Program(const int64_t* words, int64_t count, const Kernels& chosen, int64_t most_windows)
    : kernels(chosen), batch(most_windows) {
  require(batch > 0, "a batch must have a window");
  read(words, count);
  check();
  own.resize(operations.size());
  plan_images();
  plan_places();
  plan_stages();
  plan_stores();
  make_memory();
  make_own();
}

void Program::read(const int64_t* words, int64_t count) {
  Words in(words, count);
  training = in.next() != 0;
  input = in.next(), logits = in.next();
  trainable = in.next(), floats = in.next(), buffer_floats = in.next(), mask_bytes = in.next();
  values.resize(in.count());
  for (Value& value : values) value.channels = in.next(), value.steps = in.next();
  parameters.resize(in.count());
  for (Parameter& p : parameters) {
    p.kind = in.next(), p.offset = in.next();
    for (int64_t& size : p.sizes) size = in.next();
  }
  operations.resize(in.count());
  for (Operation& o : operations) {
    o.kind = in.next(), o.in = in.next(), o.second = in.next(), o.out = in.next();
    o.weight = in.next(), o.bias = in.next();
    o.size = in.next(), o.stride = in.next(), o.padding = in.next();
    o.relu = in.next(), o.buffer = in.next(), o.flag = in.next();
    o.number = in.number(), o.second_number = in.number();
    o.lines = in.next(), o.line_size = in.next(), o.line_stride = in.next(), o.line_padding = in.next();
    o.state_weight = in.next(), o.state_bias = in.next();
  }
  require(in.done(), "the program is too long");
}

void Program::check() const {
  const int64_t n = (int64_t)values.size();
  auto is_value = [&](int64_t v) { return 0 <= v && v < n; };
  require(is_value(input) && is_value(logits) && values[logits].steps == 1, "input or logits are no values");
  for (const Value& value : values) require(value.channels > 0 && value.steps > 0, "a value is empty");
  for (const Parameter& p : parameters)
    require(p.offset >= 0 && p.count() > 0 && p.offset + p.count() <= floats, "a parameter lies outside");
  for (const Operation& o : operations) {
    require(CONV <= o.kind && o.kind <= EMBED && is_value(o.in) && is_value(o.out), "an operation is unknown");
    require(!o.two_branches() || (is_value(o.second) && o.second != o.in), "a sum must have two branches");
    require(o.kind != (training ? FIXED_NORM : NORM), "a batch norm is not of this kind of program");
    for (const int64_t p : {o.weight, o.bias, o.state_weight, o.state_bias})
      require(-1 <= p && p < (int64_t)parameters.size(), "an operation's parameters are unknown");
    require((!o.convolves() && o.kind != LINEAR) || o.weight >= 0, "a layer has no weights");
    const bool tapped = o.kind == CONV || o.kind == MAX_POOL || o.kind == MEAN_POOL || o.on_image();
    require(!tapped || (o.size > 0 && o.stride > 0 && o.padding >= 0), "taps are out of range");
    require(o.kind != MAX_POOL || o.size < 255, "a pool is too wide");
    if (o.on_image()) check_image(o);
    if (o.recurrent() || o.kind == ROW_NORM || o.kind == GROUP_NORM || o.kind == EMBED) check_weighted(o);
    if (o.kind == PICK || o.kind == JOIN || (SIGMOID <= o.kind && o.kind <= SILU)) check_moved(o);
  }
}

// Whether an operation's parameter is of a kind and of these sizes.
bool Program::is_shaped(int64_t number, int64_t kind, int64_t a, int64_t b, int64_t c) const {
  if (number < 0 || number >= (int64_t)parameters.size()) return false;
  const Parameter& p = parameters[number];
  return p.kind == kind && p.sizes[0] == a && p.sizes[1] == b && p.sizes[2] == c;
}

void Program::check_weighted(const Operation& o) const {
  const Value &in = values[o.in], &out = values[o.out];
  const auto vector_or_none = [&](int64_t number, int64_t n) { return number == -1 || is_shaped(number, VECTOR, n, 1, 1); };
  if (o.recurrent()) {
    const int64_t gates = (o.kind == GRU ? 3 : 4) * out.channels;
    require(in.steps == out.steps && is_shaped(o.weight, CONV_WEIGHT, gates, in.channels, 1) &&
                is_shaped(o.state_weight, CONV_WEIGHT, gates, out.channels, 1) && vector_or_none(o.bias, gates) &&
                vector_or_none(o.state_bias, gates),
            "a recurrent layer's weights do not fit");
  } else if (o.kind == EMBED) {
    require(in.channels == 1 && in.steps == out.steps && o.weight >= 0 && o.weight < (int64_t)parameters.size() &&
                parameters[o.weight].kind == VECTOR && parameters[o.weight].sizes[1] == out.channels &&
                parameters[o.weight].sizes[2] == 1,
            "an embedding's rows do not fit");
  } else {
    require(in.channels == out.channels && in.steps == out.steps && o.size > 0, "a norm changes sizes");
    const bool whole = o.kind == ROW_NORM && o.size == in.channels * in.steps && in.steps > 1;
    require(o.kind == GROUP_NORM ? in.channels % o.size == 0 : whole || o.size == in.channels, "a norm's groups do not fit");
    for (const int64_t number : {o.weight, o.bias})
      require(number == -1 || (whole ? is_shaped(number, LINEAR_WEIGHT, 1, in.channels, in.steps)
                                     : is_shaped(number, VECTOR, in.channels, 1, 1)),
              "a norm's weights do not fit");
  }
}

// Operations that move numbers about, or change each by itself.
void Program::check_moved(const Operation& o) const {
  const Value &in = values[o.in], &out = values[o.out];
  if (o.kind == PICK)
    require(o.size >= 0 && o.stride >= 0 && o.size + out.steps <= in.steps && o.stride + out.channels <= in.channels,
            "a part lies outside");
  else if (o.kind == JOIN)
    require(in.steps == out.steps && values[o.second].steps == out.steps &&
                in.channels + values[o.second].channels == out.channels,
            "two parts are not what they make together");
  else
    require(in.steps == out.steps && in.channels == out.channels, "an operation changes sizes");
}

// Taps that all lie in the padding would be none: a position would have no maximum, and no row of columns.
void Program::check_image(const Operation& o) const {
  const Value &in = values[o.in], &out = values[o.out];
  const auto small = [](int64_t n) { return 0 < n && n < 1 << 15; };
  require(small(o.size) && small(o.stride) && small(o.line_size) && small(o.line_stride), "taps are out of range");
  require(0 <= o.padding && o.padding < o.size && 0 <= o.line_padding && o.line_padding < o.line_size,
          "an image has more padding than taps");
  require(o.lines > 0 && in.steps % o.lines == 0, "an image's lines do not fit");
  const int64_t down = o.lines + 2 * o.line_padding - o.line_size, along = in.steps / o.lines + 2 * o.padding - o.size;
  require(down >= 0 && along >= 0 && out.steps == (down / o.line_stride + 1) * (along / o.stride + 1),
          "an image's lines do not fit");
  require(o.kind != IMAGE_MAX_POOL || o.size * o.line_size < 255, "a pool is too wide");
  require(o.kind == IMAGE_CONV || in.channels == out.channels, "a pool changes channels");
  if (o.kind != IMAGE_CONV) return;
  const Parameter& weight = parameters[o.weight];
  require(weight.kind == CONV_WEIGHT && weight.sizes[0] == out.channels && weight.sizes[1] == in.channels &&
              weight.sizes[2] == o.size * o.line_size,
          "a layer's weights do not fit");
}

// Parameters in the order in which they come, those that are trained first.
void Program::plan_places() {
  std::vector<Parameter*> ordered;
  for (Parameter& p : parameters) ordered.push_back(&p);
  std::sort(ordered.begin(), ordered.end(), [](const Parameter* a, const Parameter* b) { return a->offset < b->offset; });
  for (Parameter* p : ordered) {
    p->place = places;
    places += rounded_up(p->count(), 16);
    if (p->offset < trainable) trained_places = places;
  }
}

void Program::plan_stages() {
  stages.push_back({-1, GATHER, false});
  for (int i = 0; i < (int)operations.size(); i++) {
    const Operation& o = operations[i];
    if (o.kind == NORM) {
      stages.push_back({i, STATISTICS, false});
      stages.push_back({i, FINISH, true});
      stages.push_back({i, APPLY, false});
    } else if (o.kind == FIXED_NORM) {
      stages.push_back({i, APPLY, false});
    } else {
      stages.push_back({i, FORWARD, takes_batch(i)});
    }
    const bool weighted = o.weight >= 0 || o.bias >= 0;
    values[o.in].uses++;
    if (o.two_branches()) values[o.second].uses++;
    values[o.out].needs_gradient =
        weighted || values[o.in].needs_gradient || (o.two_branches() && values[o.second].needs_gradient);
  }
  stages.push_back({-1, LOSS, true});
  if (training) plan_gradient_stages();
}

void Program::plan_gradient_stages() {
  std::vector<bool> begun(values.size(), false);
  for (int i = (int)operations.size() - 1; i >= 0; i--) {
    const Operation& o = operations[i];
    if (!values[o.out].needs_gradient) continue;
    const bool adds = begun[o.in];
    if (o.kind == NORM) {
      stages.push_back({i, SUMS, false});
      stages.push_back({i, COEFFICIENTS, true});
      stages.push_back({i, BACK_APPLY, false, adds});
    } else {
      stages.push_back({i, BACK, takes_batch(i), adds, o.two_branches() && begun[o.second]});
    }
    begun[o.in] = true;
    if (o.two_branches()) begun[o.second] = true;
    if (o.kind == CONV) plan_phases(i);
  }
}

// Input step p gets dY[u] W[j] for all u, j with p + padding = stride u + j. For p of one remainder r of
// (p + padding) / stride, the taps are j = r, r + stride, …, and u falls by one from each to the next.
void Program::plan_phases(int i) {
  const Operation& o = operations[i];
  if (!values[o.in].needs_gradient) return;
  const int64_t steps = values[o.in].steps;
  int64_t weight = 0;
  for (int64_t r = 0; r < o.stride; r++) {
    Phase phase;
    phase.first = ((r - o.padding) % o.stride + o.stride) % o.stride;
    phase.count = phase.first < steps ? (steps - phase.first + o.stride - 1) / o.stride : 0;
    phase.taps = r < o.size ? (o.size - r + o.stride - 1) / o.stride : 0;
    phase.start = (phase.first + o.padding - r) / o.stride - (phase.taps - 1);
    phase.weight = weight;
    weight += phase.taps * values[o.out].channels * values[o.in].channels;
    if (phase.count > 0) own[i].phases.push_back(phase);
  }
  own[i].turned.resize(weight + SLACK);
}

void Program::plan_images() {
  for (size_t i = 0; i < operations.size(); i++) {
    const Operation& o = operations[i];
    if (!o.on_image()) continue;
    const Value &in = values[o.in], &out = values[o.out];
    const int64_t out_lines = (o.lines + 2 * o.line_padding - o.line_size) / o.line_stride + 1;
    own[i].image = {in.channels, o.lines, in.steps / o.lines, out_lines, out.steps / out_lines,
                    {o.line_size, o.size}, {o.line_stride, o.stride}, {o.line_padding, o.padding}};
    if (o.kind == IMAGE_CONV) plan_image_conv((int)i);
  }
  if (columns_floats) columns_floats += SLACK;
}

// Columns of as many lines as stay in the second cache. Where the weights do not stay there, of several windows, so
// that weights are fetched once for all of these.
void Program::plan_image_conv(int i) {
  constexpr int64_t MOST_FLOATS = 1 << 15, MANY_WEIGHTS = 1 << 16, ROWS = 256;
  const Operation& o = operations[i];
  Own& at = own[i];
  const int64_t out = values[o.out].channels, taps = o.line_size * o.size * values[o.in].channels;
  at.image_row = rounded_up(taps, 16);
  if (at.image_row % 256 == 0) at.image_row += 16;  // rows share no cache lines' places
  at.turned.assign(out * at.image_row + SLACK, 0.0f);
  const int64_t line_floats = at.image_row * at.image.out_steps, positions = values[o.out].steps;
  if (taps * out > MANY_WEIGHTS && positions < ROWS) {
    at.image_windows = std::min(batch, (ROWS + positions - 1) / positions);
    at.image_lines = at.image.out_lines;
    rows_floats = std::max(rows_floats, at.image_windows * positions * out + SLACK);
  } else {
    at.image_lines = std::min(at.image.out_lines, std::max<int64_t>(1, MOST_FLOATS / line_floats));
  }
  columns_floats = std::max(columns_floats, at.image_windows * at.image_lines * line_floats);
}

// Whether an operation is carried out for all windows of a batch in one go.
bool Program::takes_batch(int i) const {
  return operations[i].kind == LINEAR || operations[i].recurrent() || own[i].image_windows > 1;
}

void Program::touch(Store& store, int stage) {
  if (store.first_stage < 0) store.first_stage = stage;
  store.last_stage = stage;
}

// Which values and gradients a stage reads or writes.
void Program::touch_all(int s) {
  const Stage& stage = stages[s];
  if (stage.pass == GATHER) return touch(values[input].forward, s);
  if (stage.pass == LOSS) {
    touch(values[logits].forward, s);
    touch(values[logits].gradient, s);
    return;
  }
  const Operation& o = operations[stage.operation];
  Value &in = values[o.in], &out = values[o.out];
  const bool gradients = stage.pass == BACK || stage.pass == BACK_APPLY;
  switch (stage.pass) {
    case FORWARD:
    case APPLY:
      touch(in.forward, s);
      touch(out.forward, s);
      if (o.two_branches()) touch(values[o.second].forward, s);
      break;
    case STATISTICS:
      touch(in.forward, s);
      break;
    case SUMS:
    case BACK_APPLY:
      touch(in.forward, s);
      touch(out.gradient, s);
      break;
    case BACK:
      touch(out.gradient, s);
      if (o.convolves() || o.kind == LINEAR || o.kind == GELU || o.kind == SILU || o.kind == ROW_NORM ||
          o.kind == GROUP_NORM || o.kind == EMBED)
        touch(in.forward, s);
      if (o.kind == RELU || o.kind == SIGMOID || o.kind == TANH || ((o.convolves() || o.kind == LINEAR) && o.relu)) touch(out.forward, s);
      break;
    default:
      break;
  }
  if (gradients) {
    if (in.needs_gradient) touch(in.gradient, s);
    if (o.two_branches() && values[o.second].needs_gradient) touch(values[o.second].gradient, s);
  }
}

void Program::plan_stores() {
  std::vector<int> run(stages.size());  // number of the run of neighbouring stages that go window by window
  for (int s = 0, number = 0; s < (int)stages.size(); s++) {
    if (s > 0 && (stages[s].whole_batch || stages[s - 1].whole_batch)) number++;
    run[s] = number;
  }
  for (Value& value : values) {
    value.forward.rows = value.gradient.rows = value.steps;
    value.forward.columns = value.gradient.columns = value.channels;
  }
  for (const Operation& o : operations) {
    Value &in = values[o.in], &out = values[o.out];
    if (o.kind == CONV) {
      in.forward.before = std::max(in.forward.before, o.padding);
      const int64_t last = (out.steps - 1) * o.stride + o.size - o.padding;
      in.forward.after = std::max(in.forward.after, last - in.steps);
      for (const Phase& p : own[&o - operations.data()].phases) {
        out.gradient.before = std::max(out.gradient.before, -p.start);
        out.gradient.after = std::max(out.gradient.after, p.start + p.count - 1 + p.taps - out.steps);
      }
    }
  }
  if (training)  // a gradient that is the same at all steps is kept once, where BatchNorm is to take it
    for (const Operation& o : operations)
      if (o.kind == MEAN_ALL && values[o.in].uses == 1)
        for (const Operation& before : operations)
          if (before.kind == NORM && before.out == o.in) values[o.in].gradient.rows = 1;
  for (int s = 0; s < (int)stages.size(); s++) touch_all(s);
  for (Value& value : values)
    for (Store* store : {&value.forward, &value.gradient}) {
      if (store->first_stage < 0) continue;
      store->each_window = stages[store->first_stage].whole_batch || run[store->first_stage] != run[store->last_stage];
      store->window_floats = rounded_up((store->before + store->rows + store->after) * store->columns, 16);
      if (store->window_floats % 1024 == 0) store->window_floats += 16;  // windows that share no cache lines' places
    }
}

void Program::make_memory() {
  int64_t total = 0;
  std::vector<Store*> stores;
  for (Value& value : values)
    for (Store* store : {&value.forward, &value.gradient})
      if (store->first_stage >= 0) {
        stores.push_back(store);
        total += store->window_floats * (store->each_window ? batch : 1) + SLACK;
      }
  arena_.assign(total, 0.0f);
  float* next = arena_.data();
  for (Store* store : stores) {
    store->memory = next;
    next += store->window_floats * (store->each_window ? batch : 1) + SLACK;
  }
}

void Program::make_norm(int i) {
  const Operation& o = operations[i];
  const int64_t channels = values[o.in].channels, width = rounded_up(channels, 16) + 16;
  own[i].channel.assign(7 * width, 0.0f);
  own[i].sums.assign(4 * width, 0.0);
  Norm& norm = own[i].norm;
  float* c = own[i].channel.data();
  for (float** array : {&norm.scale, &norm.shift, &norm.mean, &norm.inverse, &norm.by_g, &norm.by_x, &norm.by_one})
    *array = c, c += width;
  double* d = own[i].sums.data();
  for (double** array : {&norm.sum_mean, &norm.sum_m2, &norm.sum_g, &norm.sum_gx}) *array = d, d += width;
  norm.channels = channels;
  norm.relu = o.relu != 0;
}

// Of all steps, in the order in which they are carried out, and of all windows of each.
Memory memory_of(const Operation& o, const Value& in, const Value& out, int64_t windows) {
  const int64_t rows = out.steps * windows, hidden = out.channels;
  Memory m;
  m.weights = (o.kind == GRU ? 3 : 4) * hidden;
  m.x = 0;
  m.gates = rows * in.channels;
  m.state = m.gates + rows * 4 * hidden;
  m.cell = m.state + (rows + windows) * hidden;
  m.bounded = m.cell + (o.kind == LSTM ? (rows + windows) * hidden : 0);
  m.carry = m.bounded + (o.kind == LSTM ? rows * hidden : 0);
  m.cell_carry = m.carry + windows * hidden;
  m.floats = m.cell_carry + windows * hidden;
  return m;
}

void Program::make_own() {
  int64_t mask = 0;
  for (size_t i = 0; i < operations.size(); i++) {
    const Operation& o = operations[i];
    const Value &in = values[o.in], &out = values[o.out];
    if (o.kind == NORM || o.kind == FIXED_NORM) {
      make_norm((int)i);
    } else if (o.kind == MAX_POOL || o.kind == IMAGE_MAX_POOL) {
      own[i].places.assign((training ? batch : 1) * out.steps * out.channels + SLACK, 0);
    } else if (o.kind == LINEAR) {
      const int64_t row = rounded_up(batch, 16);
      own[i].turned.assign(in.channels * in.steps * row + SLACK, 0.0f);
      own[i].result.assign(out.channels * row + SLACK, 0.0f);
    } else if (o.kind == ROW_NORM) {
      own[i].kept.assign((training ? batch : 1) * 3 * (in.channels * in.steps / o.size), 0.0f);
      own[i].result.assign(2 * (o.size + SLACK), 0.0f);
    } else if (o.kind == GROUP_NORM) {
      make_norm((int)i);
      own[i].moments.assign((training ? batch : 1) * 2 * o.size, 0.0);
    } else if (o.recurrent()) {
      const Memory memory = memory_of(o, in, out, batch);
      own[i].kept.assign(memory.floats + SLACK, 0.0f);
      own[i].turned.assign((in.channels + out.channels) * memory.weights + 2 * SLACK_OF_WEIGHTS, 0.0f);
      own[i].channel.assign(4 * out.channels + SLACK, 0.0f);
    } else if (o.kind == DROP) {
      own[i].mask = mask;
      mask += o.flag ? in.channels : in.channels * in.steps;
    }
  }
  if (mask != mask_bytes) throw std::invalid_argument("masks of dropout do not fit");
}

}  // namespace fedge
