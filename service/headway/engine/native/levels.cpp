// Chooses the arithmetic by what the CPU has, when the library is loaded.
#include "levels.h"

#include <string>

namespace headway {

#if defined(__x86_64__)
extern const Kernels kernels_avx512_bf16, kernels_avx512_vnni, kernels_avx512, kernels_avx2;
#endif
extern const Kernels kernels_portable;

namespace {

#if defined(__x86_64__)
bool has_vnni() { return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw"); }
#endif

const Level LEVELS[] = {
// Best first.
#if defined(__x86_64__)
    {"avx512_bf16", &kernels_avx512_bf16,
     [] { return __builtin_cpu_supports("avx512bf16") && has_vnni(); }},
    {"avx512_vnni", &kernels_avx512_vnni, has_vnni},
    {"avx512", &kernels_avx512, [] { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"); }},
    {"avx2", &kernels_avx2,
     [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"); }},
#endif
    {"portable", &kernels_portable, [] { return true; }},
};

const Level* best_level() {
  for (const Level& level : LEVELS)
    if (level.is_supported()) return &level;
  return nullptr;
}

const Level* level_in_use = best_level();

}  // namespace

const Kernels& kernels_in_use() { return *level_in_use->kernels; }

}  // namespace headway

// The names of the instruction sets that were compiled and that this CPU has, best first, one per line.
extern "C" __attribute__((visibility("default"))) const char* headway_levels() {
  static const std::string names = [] {
    std::string text;
    for (const auto& level : headway::LEVELS)
      if (level.is_supported()) text += (text.empty() ? "" : "\n") + std::string(level.name);
    return text;
  }();
  return names.c_str();
}

// Use that instruction set from now on; false if there is none of the name. For tests and measurements.
extern "C" __attribute__((visibility("default"))) bool headway_use_level(const char* name) {
  for (const auto& level : headway::LEVELS)
    if (level.is_supported() && level.name == std::string(name)) return headway::level_in_use = &level, true;
  return false;
}
