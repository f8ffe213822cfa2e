/// @file error_file.h — TORCHELASTIC_ERROR_FILE: the file into which a torch script writes its last error.
#pragma once
#include <string>

#include "base/file.h"

namespace hvd::rank {

inline constexpr const char* error_file_variable = "TORCHELASTIC_ERROR_FILE";

/// The traceback in a file of torch.distributed.elastic's @record, else the message; "" where @p text has neither.
std::string recorded_error(const std::string& text);

/// One rank's file, in this process's memory.  The same user's processes can open it while this process lives.
class ErrorFile {
 public:
  /// Makes the file.  If there is no memory for it, path() is "".
  ErrorFile();
  /// "/proc/PID/fd/N".
  std::string path() const;
  /// recorded_error() of the first 64 KiB.
  std::string read() const;

 private:
  Fd fd_;
};

}  // namespace hvd::rank
