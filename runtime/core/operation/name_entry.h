/// @file name_entry.h — the data of one operation name on this rank.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/signature.h"
#include "negotiate/command.h"
#include "ops/kernels/cpu_kernels.h"
#include "recorder/trace/tracer.h"

namespace hvd::core {

struct Operation;

/// Lives in a NameTable, or in a StandIn.  The mutex of the process set protects all members, except where a comment
/// says otherwise.  Submitting a known tensor touches the first three cache lines, running it the first and `scale`.
struct alignas(64) NameEntry {
  Operation* operation = nullptr;           ///< the operation in flight
  std::uint32_t id = negotiate::no_slot;    ///< none until the coordinator assigns one
  std::uint32_t slot = negotiate::no_slot;  ///< offset of its eager slots
  std::size_t bytes = 0;                    ///< of the tensor; follows from the signature, like the next four
  std::size_t elements = 0;
  ops::ReduceFn reduce = nullptr;      ///< allreduce only
  std::uint32_t group_size = 0;        ///< 0: not grouped
  bool fills = true;                   ///< this rank's input must be copied to the slot
  std::atomic<bool> in_flight{false};  ///< becomes false on the drive side, without the mutex
  std::uint8_t round = 0;              ///< parity of the next submit
  bool has_id = false;                 ///< the coordinator's id has not been released; `id` may be none by then
  NameEntry* after = nullptr;          ///< submitted next the last time; invalid unless after_epoch is the table's
  std::uint64_t after_epoch = 0;
  std::string name;
  std::uint64_t submitted_at = 0;  ///< how many commands had been carried out
  std::uint64_t recorded_at = 0;   ///< where the name is in the recorder's memory; 0: nowhere
  const void* ahead = nullptr;     ///< the entry submitted read_ahead later the last time, for fetch(); it may be gone
  const void* ahead_name = nullptr;  ///< the text of its name
  Signature signature;               ///< its unused dimensions are never touched
  ops::Scale scale;                  ///< follows from the signature
  trace::Track track;                ///< zeroed when the signature changes

  NameEntry() { signature.kind = num_kinds; }  // no operation has this kind
  /// Takes over the signature on which the ranks have agreed, for rank @p rank of @p size.
  void describe(const Signature& s, int rank, int size);
};

}  // namespace hvd::core
