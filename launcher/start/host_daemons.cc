#include "launcher/start/host_daemons.h"

#include "base/text.h"

namespace hvd::launcher {

std::vector<std::string> daemon_command(const std::string& rank_program, const std::vector<int>& ranks) {
  std::vector<std::string> texts;
  for (const int rank : ranks) texts.push_back(std::to_string(rank));
  return {rank_program, "--daemon", join(texts, ",")};
}

}  // namespace hvd::launcher
