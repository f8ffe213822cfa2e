/// @file name_entry.h — what this rank knows about the operation of one name.
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

/// Lives in a NameTable, or in a StandIn.  Under the mutex of its process set, but for what is said otherwise.  A known
/// tensor needs the first line only.
struct alignas(64) NameEntry {
  Operation* operation = nullptr;           ///< the one in flight
  std::uint32_t id = negotiate::no_slot;    ///< none until the coordinator assigns one
  std::uint32_t slot = negotiate::no_slot;  ///< offset of its eager slots
  std::size_t bytes = 0;                    ///< of the tensor, by its signature, like the next four
  std::size_t elements = 0;
  ops::ReduceFn reduce = nullptr;      ///< allreduce only
  std::uint32_t group_size = 0;        ///< 0: not grouped
  bool fills = true;                   ///< its slot: an input of this rank's is needed
  std::atomic<bool> in_flight{false};  ///< becomes false on the drive side, without the mutex
  std::uint8_t round = 0;              ///< parity of the next submit
  NameEntry* after = nullptr;          ///< submitted after this one last time; void unless after_epoch is the table's
  std::uint64_t after_epoch = 0;
  std::string name;
  std::uint64_t submitted_at = 0;  ///< commands that had been carried out
  std::uint64_t recorded_at = 0;   ///< the name, in the recorder's memory; 0: nowhere
  ops::Scale scale;                ///< by the signature
  trace::Track track;              ///< zeroed when the signature changes
  Signature signature;             ///< last: its unused dimensions are never touched

  NameEntry() { signature.kind = num_kinds; }  // is no operation's
  /// It is what ranks agree on from now on.  @p rank: this one, of @p size.
  void describe(const Signature& s, int rank, int size);
};

}  // namespace hvd::core
