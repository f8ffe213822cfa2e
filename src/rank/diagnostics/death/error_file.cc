#include "rank/diagnostics/death/error_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "wire/json.h"

namespace hvd::rank {
namespace {

constexpr std::size_t most_bytes = 64u << 10;

std::string text_in(const wire::Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

}  // namespace

std::string recorded_error(const std::string& text) {
  wire::Json file;
  try {
    file = wire::parse_object(text, "error file");
  } catch (const Error&) { return ""; }
  const auto message = file.find("message");
  if (message == file.end() || !message->is_object()) return text_in(file, "message");
  const auto extra = message->find("extraInfo");
  const std::string stack = extra != message->end() && extra->is_object() ? text_in(*extra, "py_callstack") : "";
  return stack.empty() ? text_in(*message, "message") : stack;
}

ErrorFile::ErrorFile() : fd_(memfd_create("hvd-error", MFD_CLOEXEC)) {}

std::string ErrorFile::path() const { return fd_ ? formatted("/proc/{}/fd/{}", getpid(), fd_.get()) : ""; }

std::string ErrorFile::read() const {
  std::string text(most_bytes, '\0');
  const ssize_t n = fd_ ? pread(fd_.get(), text.data(), text.size(), 0) : 0;
  if (n <= 0) return "";
  text.resize(static_cast<std::size_t>(n));
  return recorded_error(text);
}

}  // namespace hvd::rank
