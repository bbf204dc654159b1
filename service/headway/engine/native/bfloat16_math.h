// bfloat16 with AVX-512's dot product of pairs: one instruction multiplies 32 pairs and adds both products of each lane
// to a float. So operands are packed in pairs along the summed dimension: two elements of a key, two positions' values.
#pragma once

#include <immintrin.h>

#include "plain_math.h"

namespace headway {
namespace {

// A 16 x 16 matrix of 32-bit lanes, mirrored: first the lanes within pairs and fours of rows, then the quarters.
inline void transpose(__m512i* rows) {
  __m512i pairs[16], fours[16];
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int half = 0; half < 2; ++half) {
      fours[i + 2 * half] = _mm512_unpacklo_epi64(pairs[i + half], pairs[i + half + 2]);
      fours[i + 2 * half + 1] = _mm512_unpackhi_epi64(pairs[i + half], pairs[i + half + 2]);
    }
  for (int i = 0; i < 4; ++i) {  // fours[4 * j + i]: lanes i, i + 4, i + 8, i + 12 of rows 4 * j to 4 * j + 3
    __m512i low = _mm512_shuffle_i32x4(fours[i], fours[4 + i], 0x88);
    __m512i high = _mm512_shuffle_i32x4(fours[i], fours[4 + i], 0xDD);
    __m512i low2 = _mm512_shuffle_i32x4(fours[8 + i], fours[12 + i], 0x88);
    __m512i high2 = _mm512_shuffle_i32x4(fours[8 + i], fours[12 + i], 0xDD);
    rows[i] = _mm512_shuffle_i32x4(low, low2, 0x88);
    rows[8 + i] = _mm512_shuffle_i32x4(low, low2, 0xDD);
    rows[4 + i] = _mm512_shuffle_i32x4(high, high2, 0x88);
    rows[12 + i] = _mm512_shuffle_i32x4(high, high2, 0xDD);
  }
}

// A mask for the elements that are left, at most 32.
inline __mmask32 first_elements(int64_t count) {
  return _cvtu32_mask32(count >= 32 ? ~uint32_t(0) : (uint32_t(1) << count) - 1);
}

// For _mm512_permutex2var_epi16: 16 elements from `half` on of two rows in turn.
inline __m512i interleaving(int half) {
  alignas(64) int16_t index[32];
  for (int i = 0; i < 16; ++i) index[2 * i] = int16_t(half + i), index[2 * i + 1] = int16_t(32 + half + i);
  return _mm512_load_si512(index);
}

struct BFloat16Math {
  using Stored = BFloat16;
  using Packed = uint32_t;  // the element with the lower index in the lower half
  using Number = float;

  static int64_t packed(int64_t count) { return (count + 1) / 2; }
  static Stored round(Number number) { return rounded<BFloat16>(number); }
  static Vector<float> multiply_add(Vector<float> sum, uint32_t left, Vector<uint32_t> right) {
    return (Vector<float>)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(int(left)), (__m512bh)right);
  }

  static void pack_row(Packed* to, const Stored* from, int64_t dim) {
    to[packed(dim) - 1] = 0;
    std::memcpy(to, from, dim * sizeof(Stored));
  }
  static void pack_weights(Packed* to, const Number* weights) {
    for (int64_t i = 0; i < 64; i += 32) {
      __m512bh pair = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(weights + i + 16), _mm512_loadu_ps(weights + i));
      _mm512_storeu_si512(to + i / 2, (__m512i)pair);
    }
  }

  // to [packed(dim), stride]: column i holds the pairs of row i.
  static void pack_keys(Packed* to, int64_t stride, const Source<Stored>& keys, int64_t dim) {
    for (int64_t first = 0; first < keys.count; first += 16)
      for (int64_t k = 0; k < dim; k += 32) {
        __mmask32 mask = first_elements(dim - k);
        __m512i columns[16];
        for (int64_t i = 0; i < 16; ++i) columns[i] = _mm512_maskz_loadu_epi16(mask, keys.read(first + i, k));
        transpose(columns);
        int64_t num_pairs = packed(dim - k) < 16 ? packed(dim - k) : 16;
        Packed* column = to + k / 2 * stride + first;
        if (num_pairs == 16)
          for (int64_t i = 0; i < 16; ++i) _mm512_storeu_si512(column + i * stride, columns[i]);
        else
          for (int64_t i = 0; i < num_pairs; ++i) _mm512_storeu_si512(column + i * stride, columns[i]);
      }
  }

  // to [packed(count), stride]: row i holds rows 2 * i and 2 * i + 1 in turn; columns beyond dim are 0.
  static void pack_values(Packed* to, int64_t stride, const Source<Stored>& values, int64_t dim) {
    const __m512i low = interleaving(0), high = interleaving(16);
    for (int64_t k = 0; k < dim; k += 32) {
      __mmask32 mask = first_elements(dim - k);
      for (int64_t i = 0; i < values.count; i += 2) {
        __m512i first = _mm512_maskz_loadu_epi16(mask, values.read(i, k));
        __m512i second = _mm512_maskz_loadu_epi16(mask, values.read(i + 1, k));
        Packed* row = to + i / 2 * stride + k;
        _mm512_storeu_si512(row, _mm512_permutex2var_epi16(first, low, second));
        if (k + 16 < stride) _mm512_storeu_si512(row + 16, _mm512_permutex2var_epi16(first, high, second));
      }
    }
  }
};

}  // namespace
}  // namespace headway
