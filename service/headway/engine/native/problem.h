// What one call of the op is, in plain data: the words that op.cpp (torch, threads) and kernel.cpp (arithmetic) share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headway {

// A tensor [tokens, heads, width] whose heads lie one after the other; the stride between tokens is in elements.
struct Rows {
  void* data;
  int64_t token_stride;
};

struct Problem {
  Rows query, key, value, output;
  void* key_pages;    // [num_pages, page_size, num_kv_heads, key_dim]
  void* value_pages;  // [num_pages, page_size, num_kv_heads, value_dim]
  const int64_t* slot_mapping;
  const int32_t* page_table;
  int64_t page_table_stride;
  const int32_t* query_start;
  const int32_t* context_lens;
  const double* sinks;  // [num_heads], or null
  int64_t num_heads, num_kv_heads, key_dim, value_dim, page_size;
  double scale, softcap;
  int64_t sliding_window;

  int64_t group_size() const { return num_heads / num_kv_heads; }
  int64_t num_new(int64_t sequence) const { return query_start[sequence + 1] - query_start[sequence]; }
  // The position of a sequence's first new token.
  int64_t num_old(int64_t sequence) const { return context_lens[sequence] - num_new(sequence); }
  int64_t first_visible(int64_t position) const {
    return sliding_window && position >= sliding_window ? position + 1 - sliding_window : 0;
  }
};

// Some new tokens of one sequence, for some key/value heads: what reads a stretch of keys and values together.
struct Tile {
  int64_t sequence;
  int64_t first_token, num_tokens;  // among the sequence's new tokens
  int64_t first_head, num_heads;    // key/value heads
  int64_t begin, end;               // the positions that any of its tokens sees
  int64_t num_splits;               // pieces of [begin, end), each a task of its own
  void* partials;                   // num_splits results to be merged; null if there is one

  // Pieces are whole steps of 16 positions, so that all but the last are whole vectors.
  int64_t split_begin(int64_t split) const {
    int64_t steps = (end - begin + 15) / 16;
    int64_t position = begin + steps * split / num_splits * 16;
    return position < end ? position : end;
  }
};

// The arithmetic for one element type. `attend` computes one split of a tile, and writes the output if it is the only
// one; `merge` puts the results of all splits together.
struct AttentionKernel {
  void (*attend)(const Problem&, const Tile&, int64_t split, void* scratch);
  void (*merge)(const Problem&, const Tile&);
  size_t (*scratch_bytes)(const Problem&, const Tile&);
  size_t (*partial_bytes)(const Problem&, const Tile&);  // of one split
};

}  // namespace headway
