#include "launcher/control/result_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files/own_file.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

constexpr std::uint32_t files_read_record = 0xfffffffe, failure_record = 0xffffffff, end_record = 0xfffffffd,
                        verdict_record = 0xfffffffc, ranks_record = 0xfffffffb;
constexpr int reader_may_rest_ms = 60000;

std::string header(std::uint32_t rank, std::uint64_t bytes) {
  std::string out(16, '\0');
  std::memcpy(out.data(), &rank, 4);
  std::memcpy(out.data() + 8, &bytes, 8);
  return out;
}

int opened(const std::string& where) {
  if (const auto number = to_integer(where)) return static_cast<int>(*number);
  return open_own_file(where, WriteMode::append, 0600).release();
}

}  // namespace

Results::Results(const std::string& where)
    : for_program_(to_integer(where).has_value()), where_(for_program_ ? "the results" : where), fd_(opened(where)) {
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  // No other process uses this end of the pipe, so its flags may be changed.
  if (flags < 0 || ::fcntl(fd_.get(), F_SETFD, FD_CLOEXEC) != 0 || ::fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    throw Error(Code::unavailable, where_, "cannot be written: " + errno_text(errno));
  record(files_read_record, {});
  flush_ready();
}

void Results::begin(std::size_t ranks) {
  record(ranks_record, std::to_string(ranks));
  flush_ready();
}

void Results::record(std::uint32_t rank, std::string_view bytes) {
  if (error_) return;
  pending_ += header(rank, bytes.size());
  pending_ += bytes;
}

void Results::flush_ready() {
  while (pending_bytes() && !error_) {
    const ssize_t n = ::write(fd_.get(), pending_.data() + written_, pending_bytes());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) error_ = errno;
    if (n > 0) written_ += static_cast<std::size_t>(n);
  }
  if (error_ || written_ > (1u << 20) || written_ == pending_.size()) {
    pending_.erase(0, error_ ? pending_.size() : written_);
    written_ = 0;
  }
}

void Results::finish(const std::optional<wire::DeathRecord>& first_cause, const std::string& verdict, int exit_code) {
  if (first_cause) record(failure_record, to_json(*first_cause));
  if (exit_code != 0) record(verdict_record, verdict);
  record(end_record, std::to_string(exit_code));
  flush_ready();
  while (pending_bytes() && !error_) {
    pollfd ready{fd_.get(), POLLOUT, 0};
    if (::poll(&ready, 1, reader_may_rest_ms) == 0) error_ = ETIMEDOUT;
    flush_ready();
  }
  if (error_) throw Error(Code::unavailable, where_, "cannot be written: " + errno_text(error_));
}

}  // namespace hvd::launcher
