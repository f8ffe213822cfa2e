/// @file trace_record.h — the records of a rank's collectives, in as few bytes as possible.
///
/// The body of a Type::trace frame (message.h) is: u8 version, u8 zero, then sections {u16 stream, u32 bytes, bytes}.
/// A stream is an endless sequence of records, written by one thread (or under one lock).  A section may end in the
/// middle of a record; the next section of that stream continues the record.
///
/// Times and track numbers are differences to the stream's previous value, at first to zero.  So a tensor costs about
/// six bytes for each operation.  The size matters: each byte passes three processes, and the ranks are busy.
///
/// Stream 0 holds names and clocks, stream 1 the engine's records.  Streams from 2 on belong to submitting threads.  A
/// writer sends names first, then submissions, then the engine's records.  A record therefore refers only to earlier
/// records.
///
/// Integers are LEB128 varints unless marked.  "time" and "track" fields are zig-zag differences.
#pragma once
#include <cstddef>
#include <cstdint>

#include "hvd/hvd.h"

namespace hvd::trace {

inline constexpr std::uint8_t trace_version = 3;
/// Largest body.  With its header it fits one buffer of a Unix socket, so the kernel never cuts or interleaves frames.
inline constexpr std::size_t trace_frame_bytes = (32u << 10) - 64;
inline constexpr std::size_t trace_name_bytes = 1024;  ///< longer tensor names are cut
inline constexpr std::size_t trace_max_dims = 64;
inline constexpr std::size_t trace_section_header_bytes = 6;
inline constexpr std::uint16_t trace_control_stream = 0;
inline constexpr std::uint16_t trace_engine_stream = 1;

enum class TraceTag : std::uint8_t {
  nop = 0,
  clock = 1,         ///< u64 ticks, i64 ns (both fixed, little endian): one moment in both clocks; control stream
  name = 2,          ///< id, u8 op, u8 dtype, home rank, u8 ndim, dims…, length, bytes; control stream
  submitted = 3,     ///< time, track: this rank has the tensor ready
  batch_begin = 4,   ///< time, batch: the negotiation of the tensors in the next records ends, their operation begins
  batch_tensor = 5,  ///< track: a tensor of the batch that began last
  phase_begin = 6,   ///< time, batch, u8 phase
  phase_end = 7,     ///< time, batch, u8 phase
  batch_end = 8,     ///< time, batch
  failed = 9,        ///< time, track: negotiation ended in an error
  cycle = 10,        ///< time: CYCLE_START
  lost = 11,         ///< count: records that a full ring dropped here
  ran = 13,          ///< time, batch, u8 phase, duration: work of a device.  The record comes late.  Its time is a
                     ///< difference to the stream's previous time, but later records ignore it
  ran_all = 14,      ///< time, batch: the end of the batch on the device; the time is as in `ran`
  step = 15,   ///< time, zigzag number: the previous step has ended, and this step begins; negative: no step begins
  part = 16,   ///< time, u8 part, u8: 1 the part begins, 0 the part ends
  reset = 12,  ///< differences start at zero again; records of a stream before its first reset are ignored.
               ///< In the control stream: recording starts or restarts, all streams and tracks begin again
};

/// The operation of a track: the numbers of hvd_kind, and adasum after them.  A new hvd_kind changes adasum's number:
/// raise trace_version then.
#define HVD_WORD(enumerator, number, word, ...) word = number,
enum class TraceOp : std::uint8_t { HVD_KINDS(HVD_WORD) adasum };
#undef HVD_WORD
inline constexpr std::uint8_t trace_ops = static_cast<std::uint8_t>(TraceOp::adasum) + 1;

/// Phases of an operation; names in trace_names.h.  Append only.
enum class Phase : std::uint8_t {
  queue = 0,
  wait_for_data,
  wait_for_other_tensor_data,
  init_fusion_buffer,
  memcpy_in_fusion_buffer,
  memcpy_out_fusion_buffer,
  allocate_output,
  mpi,  ///< the names of mpi, nccl and shm contain the batch's operation: MPI_<OP>
  nccl,
  shm,
  init_nccl,
};
inline constexpr std::uint8_t trace_phases = 11;

/// Parts of a step that are not the program's own work and not operations.  Append only.
enum class TracedPart : std::uint8_t { input = 0, collect, save };
inline constexpr std::uint8_t traced_parts = 3;

inline constexpr std::size_t varint_max_bytes = 10;

/// Writes @p value at @p to, where at least varint_max_bytes bytes are free.  Returns the address after the last byte.
inline std::uint8_t* put_varint(std::uint8_t* to, std::uint64_t value) {
  while (value >= 0x80) {
    *to++ = static_cast<std::uint8_t>(value | 0x80);
    value >>= 7;
  }
  *to++ = static_cast<std::uint8_t>(value);
  return to;
}

inline constexpr std::uint64_t zigzag(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
inline constexpr std::int64_t unzigzag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

}  // namespace hvd::trace
