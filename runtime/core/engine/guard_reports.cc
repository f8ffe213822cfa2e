#include "core/engine/guard_reports.h"

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "wire/messages/link.h"

namespace hvd::core {
namespace {

constexpr std::int64_t tell_after_ns = 1'000'000'000;  ///< first report of a wait, and interval of later reports

}  // namespace

void GuardReports::failure(const wire::Failure& failure) const {
  if (!linked()) return;
  const std::string body = wire::pack(failure);
  for (int tries = 0; tries < 50; ++tries) {
    if (wire::link::send(link_, wire::Type::failure, body.data(), body.size(), false) != EAGAIN) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void GuardReports::stalls(std::vector<StallReport> waits, std::int64_t now_ns) {
  if (!linked()) return;
  if (waits.empty() ? stalls_told_ns_ == 0 : now_ns - stalls_told_ns_ < tell_after_ns) return;
  const bool none = waits.empty();
  const std::string body = wire::to_json(merge_stalls(std::move(waits)));
  if (wire::link::send(link_, wire::Type::stall, body.data(), body.size(), false) == 0)
    stalls_told_ns_ = none ? 0 : now_ns;
}

bool GuardReports::finding(const wire::AgreementFinding& found) const {
  if (!linked()) return false;
  const std::string body = wire::to_json(found);
  wire::link::send(link_, wire::Type::finding, body.data(), body.size(), false);
  return true;
}

bool GuardReports::waits(std::uint64_t progress, std::int64_t now_ns) {
  if (progress != std::exchange(progress_, progress) || since_ns_ == 0) {
    since_ns_ = now_ns;
    status_.goes_on();
    return false;
  }
  if (now_ns - since_ns_ < tell_after_ns || now_ns - page_told_ns_ < tell_after_ns) return false;
  page_told_ns_ = now_ns;
  return true;
}

void GuardReports::goes_on() {
  since_ns_ = 0;
  status_.goes_on();
}

}  // namespace hvd::core
