/// @file cpu_kernels.cc — the choice of the instruction set, and copies that bypass the caches.
#include "ops/kernels/cpu_kernels.h"

#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace hvd::ops {

ReduceFn reducer_baseline(DType, Reduce);
WideReduce wide_reducer_baseline(DType, Reduce);
DotsFn dots_baseline(DType);
FirstNotFiniteFn first_not_finite_baseline(DType);
HashBlocksFn hash_blocks_baseline();
#ifdef HVD_WITH_AVX2
ReduceFn reducer_avx2(DType, Reduce);
WideReduce wide_reducer_avx2(DType, Reduce);
DotsFn dots_avx2(DType);
FirstNotFiniteFn first_not_finite_avx2(DType);
HashBlocksFn hash_blocks_avx2();

namespace {
bool has_avx2() {
  static const bool yes = [] {
    __builtin_cpu_init();
    unsigned f16c = 0;
    asm volatile("cpuid" : "=c"(f16c) : "a"(1), "c"(0) : "ebx", "edx");
    return __builtin_cpu_supports("avx2") && (f16c >> 29 & 1u);
  }();
  return yes;
}
}  // namespace

ReduceFn reducer(DType d, Reduce r) { return has_avx2() ? reducer_avx2(d, r) : reducer_baseline(d, r); }
WideReduce wide_reducer(DType d, Reduce r) {
  return has_avx2() ? wide_reducer_avx2(d, r) : wide_reducer_baseline(d, r);
}
DotsFn dots(DType d) { return has_avx2() ? dots_avx2(d) : dots_baseline(d); }
FirstNotFiniteFn first_not_finite(DType d) {
  return has_avx2() ? first_not_finite_avx2(d) : first_not_finite_baseline(d);
}
HashBlocksFn hash_blocks() { return has_avx2() ? hash_blocks_avx2() : hash_blocks_baseline(); }
#else
ReduceFn reducer(DType d, Reduce r) { return reducer_baseline(d, r); }
WideReduce wide_reducer(DType d, Reduce r) { return wide_reducer_baseline(d, r); }
DotsFn dots(DType d) { return dots_baseline(d); }
FirstNotFiniteFn first_not_finite(DType d) { return first_not_finite_baseline(d); }
HashBlocksFn hash_blocks() { return hash_blocks_baseline(); }
#endif

#if defined(__x86_64__)
void copy_streaming(void* dst, const void* src, std::size_t bytes) {
  auto* d = static_cast<unsigned char*>(dst);
  auto* s = static_cast<const unsigned char*>(src);
  // Streams whole lines only: a partly written line costs more time than it saves.
  const std::size_t head = (64 - reinterpret_cast<std::uintptr_t>(d) % 64) % 64;
  if (bytes < head + 64) {
    std::memcpy(d, s, bytes);
    return;
  }
  std::memcpy(d, s, head);
  d += head, s += head, bytes -= head;
  for (; bytes >= 64; bytes -= 64, d += 64, s += 64) {
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(s));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(s + 16));
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(s + 32));
    const __m128i e = _mm_loadu_si128(reinterpret_cast<const __m128i*>(s + 48));
    _mm_stream_si128(reinterpret_cast<__m128i*>(d), a);
    _mm_stream_si128(reinterpret_cast<__m128i*>(d + 16), b);
    _mm_stream_si128(reinterpret_cast<__m128i*>(d + 32), c);
    _mm_stream_si128(reinterpret_cast<__m128i*>(d + 48), e);
  }
  std::memcpy(d, s, bytes);
}
void store_fence() { _mm_sfence(); }
#else
void copy_streaming(void* dst, const void* src, std::size_t bytes) { std::memcpy(dst, src, bytes); }
void store_fence() {}
#endif

}  // namespace hvd::ops
