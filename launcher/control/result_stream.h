/// @file result_stream.h — the ranks' results, on their way to the program that asked for them: hvd.run(), hvd.spark.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "wire/messages/death.h"

namespace hvd::launcher {

/// Pieces are passed on as they arrive: hvdrun keeps no result.  The output is a sequence of records, little endian:
/// u32 rank, u32 zero, u64 length, bytes.
/// - The first record has rank 0xfffffffe and no bytes.  The record means that hvdrun has read its files.
/// - A record has rank 0xfffffffb.  Its bytes are the number of ranks at the start, in decimal.
/// - The pieces of all ranks follow, in any order between ranks.  The pieces of one rank, joined, are its result.
/// - After a failure, a record has rank 0xffffffff.  Its bytes are the first cause as JSON (wire/messages/death.h).
/// - If the job did not end well, a record has rank 0xfffffffc.  Its bytes are the verdict (hvdrun-verdict(5)).
/// - The last record has rank 0xfffffffd.  Its bytes are hvdrun's exit code in decimal.  A program that ignores SIGCHLD
///   learns the code only here.
class Results {
 public:
  /// @param where  a file to append to, or the number of an inherited descriptor.  Throws Error{unavailable}.
  explicit Results(const std::string& where);

  /// True: a program reads the results, and tells its user how the first rank failed.  False: they go to a file.
  bool for_program() const { return for_program_; }
  /// Tells the number of ranks, before any piece.
  void begin(std::size_t ranks);
  void put(int rank, std::string_view piece) { record(static_cast<std::uint32_t>(rank), piece); }
  /// Bytes that wait for the reader of a pipe.
  std::size_t pending_bytes() const { return pending_.size() - written_; }
  int fd() const { return fd_.get(); }
  /// Writes as much as the reader takes without waiting.
  void flush_ready();
  /// Writes the rest while the reader reads.  Throws Error{unavailable} when not all could be written.
  void finish(const std::optional<wire::DeathRecord>& first_cause, const std::string& verdict, int exit_code);

 private:
  void record(std::uint32_t rank, std::string_view bytes);

  bool for_program_;
  std::string where_;
  Fd fd_;
  std::string pending_;
  std::size_t written_ = 0;  ///< bytes of pending_ that are written
  int error_ = 0;            ///< errno of the write that failed; later records are dropped
};

}  // namespace hvd::launcher
