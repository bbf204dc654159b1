// What stands between the matrix products, a row at a time and in one pass: norms, gates, rotary positions.
//
// Plain torch runs each formula as five to ten operators that read and write all elements, convert them, and start and
// stop the threads each time. Here a row is read once, computed in float and written once. Where the model's own code
// rounds to the element type in between, so does this, so that results are the same to the last bit wherever the order of a
// sum does not matter.
#pragma once

#include <limits>

#include "plain_math.h"
#include "pointwise_problem.h"

namespace headway {
namespace {

constexpr int64_t FLOATS = lanes<float>;

typedef uint16_t HalfVector __attribute__((vector_size(32)));

// How elements of T become 16 floats and back; `count` of them, if a row ends there (the rest are 0).
template <class T>
struct Elements;

template <>
struct Elements<float> {
  static Vector<float> read(const float* from) { return load(from); }
  static void write(float* to, Vector<float> numbers) { store(to, numbers); }
  static Vector<float> round(Vector<float> numbers) { return numbers; }
};

template <>
struct Elements<BFloat16> {
  static Vector<float> read(const BFloat16* from) {
    HalfVector bits;
    std::memcpy(&bits, from, sizeof(bits));
    return (Vector<float>)(__builtin_convertvector(bits, Vector<uint32_t>) << 16);
  }
  static void write(BFloat16* to, Vector<float> numbers) {
    HalfVector bits = __builtin_convertvector(rounded_lanes(numbers), HalfVector);
    std::memcpy(to, &bits, sizeof(bits));
  }
  static Vector<float> round(Vector<float> numbers) { return (Vector<float>)(rounded_lanes(numbers) << 16); }
};

template <class T>
inline Vector<float> read_some(const T* from, int64_t count) {
  if (count >= FLOATS) return Elements<T>::read(from);
  T whole[FLOATS] = {};
  std::memcpy(whole, from, count * sizeof(T));
  return Elements<T>::read(whole);
}

template <class T>
inline void write_some(T* to, Vector<float> numbers, int64_t count) {
  if (count >= FLOATS) return Elements<T>::write(to, numbers);
  T whole[FLOATS];
  Elements<T>::write(whole, numbers);
  std::memcpy(to, whole, count * sizeof(T));
}

template <class T>
inline const T* row_of(const StridedRows& rows, int64_t row) {
  int64_t outer = row / rows.num_inner, inner = row % rows.num_inner;
  return static_cast<const T*>(rows.data) + outer * rows.outer_stride + inner * rows.inner_stride;
}

template <class T>
inline float sum_of_squares(const T* from, int64_t width) {
  Vector<float> sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * FLOATS <= width; i += 4 * FLOATS)
    for (int part = 0; part < 4; ++part) {
      Vector<float> numbers = Elements<T>::read(from + i + part * FLOATS);
      sums[part] += numbers * numbers;
    }
  for (; i < width; i += FLOATS) {
    Vector<float> numbers = read_some(from + i, width - i);
    sums[0] += numbers * numbers;
  }
  return reduce_lanes<float>((sums[0] + sums[1]) + (sums[2] + sums[3]), [](auto a, auto b) { return a + b; });
}

template <class T>
void norm_rows(const NormProblem& problem, int64_t begin, int64_t end) {
  int64_t width = problem.width;
  for (int64_t row = begin; row < end; ++row) {
    const T* from = row_of<T>(problem.input, row);
    T* to = static_cast<T*>(problem.output) + row * width;
    float scale = 1 / std::sqrt(sum_of_squares(from, width) / float(width) + float(problem.epsilon));
    for (int64_t i = 0; i < width; i += FLOATS) {
      Vector<float> numbers = read_some(from + i, width - i) * scale;
      if (problem.rounds_first) numbers = Elements<T>::round(numbers);
      write_some(to + i, numbers * read_some(problem.weight + i, width - i), width - i);
    }
  }
}

inline Vector<float> exponential(Vector<float> x) { return power_of_two(x * float(LOG2_E)); }

// x / (1 + e^-y), by the exponential of a negative number whatever the sign.
inline Vector<float> times_sigmoid(Vector<float> x, Vector<float> y) {
  Vector<float> small = exponential(y < 0 ? y : -y);
  return x * (y < 0 ? small : 1.0f + Vector<float>{}) / (1 + small);
}

inline Vector<float> silu(Vector<float> x) { return times_sigmoid(x, x); }

// The usual x / 2 · (1 + tanh z) is x / (1 + e^-2z), which loses nothing where tanh is close to -1.
inline Vector<float> gelu_tanh(Vector<float> x) {
  return times_sigmoid(x, 1.5957691216057308f * (x + 0.044715f * x * x * x));
}

template <class T, class Activation>
void gate_rows_by(const GateProblem& problem, int64_t begin, int64_t end, Activation activation) {
  int64_t width = problem.width;
  for (int64_t row = begin; row < end; ++row) {
    const T *gate = row_of<T>(problem.gate, row), *up = row_of<T>(problem.up, row);
    T* to = static_cast<T*>(problem.output) + row * width;
    for (int64_t i = 0; i < width; i += FLOATS) {
      Vector<float> open = Elements<T>::round(activation(read_some(gate + i, width - i)));
      write_some(to + i, open * read_some(up + i, width - i), width - i);
    }
  }
}

template <class T>
void gate_rows(const GateProblem& problem, int64_t begin, int64_t end) {
  if (problem.activation == 0)
    gate_rows_by<T>(problem, begin, end, silu);
  else
    gate_rows_by<T>(problem, begin, end, gelu_tanh);
}

// Element i and i + width / 2 of a head are turned together (Su et al., RoFormer, 2021, in the halves' order of GPT-NeoX).
template <class T>
void rotate_rows(const RotaryProblem& problem, int64_t begin, int64_t end) {
  using E = Elements<T>;
  int64_t width = problem.width, half = width / 2;
  for (int64_t row = begin; row < end; ++row) {
    const T* from = row_of<T>(problem.input, row);
    T* to = static_cast<T*>(problem.output) + row * width;
    int64_t token = row / problem.input.num_inner;
    const T *cosine = row_of<T>(problem.cosine, token), *sine = row_of<T>(problem.sine, token);
    for (int64_t i = 0; i < half; i += FLOATS) {
      int64_t left = half - i;
      Vector<float> low = read_some(from + i, left), high = read_some(from + half + i, left);
      auto turned = [&](Vector<float> own, Vector<float> other, int64_t at) {
        return E::round(own * read_some(cosine + at, left)) + E::round(other * read_some(sine + at, left));
      };
      write_some(to + i, turned(low, -high, i), left);
      write_some(to + half + i, turned(high, low, half + i), left);
    }
  }
}

// Each lane keeps the first of its largest numbers; the first of the lanes' is the row's. A NaN, which is larger than
// nothing, is found by itself.
template <class T>
int64_t largest_of(const T* row, int64_t width) {
  Vector<float> largest = Vector<float>{} - std::numeric_limits<float>::infinity();
  Vector<int32_t> at = Vector<int32_t>{} - 1, is_nan = {};
  auto take = [&](Vector<float> numbers, Vector<int32_t> index) {
    at = numbers > largest ? index : at;
    largest = numbers > largest ? numbers : largest;
    is_nan |= numbers != numbers;
  };
  Vector<int32_t> index;
  for (int32_t i = 0; i < FLOATS; ++i) index[i] = i;
  int64_t i = 0;
  for (; i + FLOATS <= width; i += FLOATS, index += int32_t(FLOATS)) take(Elements<T>::read(row + i), index);
  if (i < width) {  // once more the row's last elements: none is new twice, the first stays
    T whole[FLOATS];
    for (int64_t j = 0; j < FLOATS; ++j) whole[j] = row[minimum(i + j, width - 1)];
    take(Elements<T>::read(whole), index);
  }
  int64_t best = -1;
  for (int lane = 0; lane < FLOATS; ++lane) {
    if (is_nan[lane] || largest[lane] > std::numeric_limits<float>::max()) return -1;
    bool is_first = best < 0 || largest[lane] > largest[best] || (largest[lane] == largest[best] && at[lane] < at[best]);
    if (at[lane] >= 0 && is_first) best = lane;
  }
  return best < 0 ? -1 : at[best];
}

template <class T>
void choose_rows(const GreedyProblem& problem, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    problem.tokens[row] = largest_of(row_of<T>(problem.logits, row), problem.width);
}

template <class T>
constexpr PointwiseKernels pointwise = {norm_rows<T>, gate_rows<T>, rotate_rows<T>, choose_rows<T>};

}  // namespace
}  // namespace headway
