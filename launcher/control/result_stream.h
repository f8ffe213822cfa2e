/// @file result_stream.h — the ranks' results, on their way to who asked for them: hvd.run(), hvd.spark.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "wire/death.h"

namespace hvd::launcher {

/// Passes pieces on as they come, so that no result is held here.  What is written, little endian, is records: u32
/// rank, u32 zero, u64 length, bytes.  First one of rank 0xfffffffe without bytes: hvdrun has read its files.  Then the
/// ranks' pieces, mixed; a rank's result is its pieces one behind the other.  After a failure last one of rank
/// 0xffffffff, whose bytes are the first cause as JSON (death.h).
class Results {
 public:
  /// @param where  a file to append to, or the number of a descriptor that we inherited.  Throws Error{unavailable}.
  explicit Results(const std::string& where);

  /// A program waits for them, and will tell its user how the first rank failed.
  bool for_program() const { return for_program_; }
  void put(int rank, std::string_view piece) { record(static_cast<std::uint32_t>(rank), piece); }
  /// What waits for a pipe's reader.
  std::size_t pending_bytes() const { return pending_.size() - written_; }
  int fd() const { return fd_.get(); }
  /// Writes what can be written without waiting.
  void flush_ready();
  /// The rest, while somebody reads.  Throws Error{unavailable} where not all could be written.
  void finish(const std::optional<wire::DeathRecord>& first_cause);

 private:
  void record(std::uint32_t rank, std::string_view bytes);

  bool for_program_;
  std::string where_;
  Fd fd_;
  std::string pending_;
  std::size_t written_ = 0;  ///< of pending_
  int error_ = 0;            ///< errno of the write that failed; what comes later is dropped
};

}  // namespace hvd::launcher
