/// @file error_file.h — the file in which a script of torch says what ended it: TORCHELASTIC_ERROR_FILE.
#pragma once
#include <string>

#include "base/file.h"

namespace hvd::rank {

inline constexpr const char* error_file_variable = "TORCHELASTIC_ERROR_FILE";

/// The traceback in what torch.distributed.elastic's @record wrote, else its message; "" where @p text is no such
/// thing.
std::string recorded_error(const std::string& text);

/// One rank's file, in this process's memory.  The same user's processes can open it while this process lives.
class ErrorFile {
 public:
  /// Where there is no memory for it: path() is "".
  ErrorFile();
  /// "/proc/PID/fd/N".
  std::string path() const;
  /// recorded_error() of what lies there, of which 64 KiB are read.
  std::string read() const;

 private:
  Fd fd_;
};

}  // namespace hvd::rank
