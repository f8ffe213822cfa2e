#include "recorder/steps/operation_recorder.h"

#include <algorithm>
#include <cstring>

namespace hvd::recorder {

std::uint64_t OperationRecorder::keep(std::string_view name) {
  const std::lock_guard lock(mutex_);
  wire::OperationNames& names = operations_->names;
  const std::size_t length = std::min(name.size(), names.longest);
  std::uint64_t at = names.written.load(std::memory_order_relaxed);
  if (at == 0) at = 1;                                                                // 0 means no name
  if (at % names.size + length + 1 > names.size) at += names.size - at % names.size;  // a name never crosses the end
  names.written.store(at + length + 1, std::memory_order_release);                    // first: old names become invalid
  std::memcpy(&names.text[at % names.size], name.data(), length);
  names.text[at % names.size + length] = '\0';
  return at;
}

}  // namespace hvd::recorder
