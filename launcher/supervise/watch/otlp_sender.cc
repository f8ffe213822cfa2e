#include "launcher/supervise/watch/otlp_sender.h"

#include <chrono>
#include <utility>
#include <vector>

#include "base/files/own_file.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds request_limit = 5s;  // then hvdrun ends curl; curl gives up a second earlier

}  // namespace

OtlpSender::OtlpSender(std::string curl, OtlpTarget target, std::string file)
    : curl_(std::move(curl)), target_(std::move(target)), file_(std::move(file)) {
  replace_own_file(file_, curl_configuration(target_), 0600);
}

bool OtlpSender::is_due(double now_seconds) const {
  return now_seconds >= next_seconds_ && (!under_way_.valid() || under_way_.wait_for(0s) == std::future_status::ready);
}

void OtlpSender::send(const std::string& body, double now_seconds) {
  next_seconds_ = now_seconds + every_seconds;
  // The environment names proxies and certificates.  The user's .curlrc is not read.
  std::vector<std::string> command{curl_, "--disable", "--silent", "--show-error", "--fail", "--globoff"};
  for (const char* word : {"--proto", "=http,https", "--output", "/dev/null", "--max-time", "4", "--data-binary", "@-"})
    command.emplace_back(word);
  command.insert(command.end(), {"--config", file_});
  under_way_ = std::async(std::launch::async,
                          [command = std::move(command), body] { return capture(command, body, request_limit); });
}

std::string OtlpSender::trouble() {
  if (!under_way_.valid() || under_way_.wait_for(0s) != std::future_status::ready) return "";
  const CaptureResult done = under_way_.get();
  if (done.ok()) {
    complained_ = false;
    return "";
  }
  if (std::exchange(complained_, true)) return "";
  const std::string said(trim(done.err));
  return "the metrics do not reach " + target_.url + ": " +
         (done.timed_out ? std::string("no answer")
          : said.empty() ? formatted("curl ended with {}", done.code)
                         : said);
}

void OtlpSender::finish() {
  if (under_way_.valid()) under_way_.wait();
}

void OtlpSender::drop() { under_way_ = {}; }

}  // namespace hvd::launcher
