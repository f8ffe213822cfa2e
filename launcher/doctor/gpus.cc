#include "launcher/doctor/gpus.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "launcher/mapping/gpu_ways.h"

namespace hvd::launcher {

namespace {

constexpr long long most_pairs = 1 << 16;

}  // namespace

std::string gpu_question(const std::string& rank_program) {
  return shell_quote(rank_program) +
         " --machine 2>/dev/null </dev/null | awk '$1==\"driver\" {print} $1==\"way\" {n[$4]++} "
         "END {printf \"links\"; for(k in n) printf \" %s:%d\",k,n[k]; print \"\"}'\n";
}

std::string aware_question(const std::string& mpirun) {
  // A parameter may switch off built-in support, as conda's package does.  Open MPI 5 has no such parameter.
  return "\"$(dirname \"$(command -v " + shell_quote(mpirun) +
         ")\")/ompi_info\" --parsable --all 2>/dev/null </dev/null | awk -F: "
         "'$6==\"value\" && $5==\"opal_built_with_cuda_support\" {built=$7} "
         "$6==\"value\" && $5==\"opal_cuda_support\" {on=$7} "
         "END {if (built!=\"\") print \"aware\", built==\"true\" && on!=\"false\" ? \"yes\" : \"no\"}'\n";
}

std::vector<std::pair<std::string, long long>> pairs_by_way(const Answers& a) {
  std::vector<std::pair<std::string, long long>> ways;
  for (const std::string& one : words(value(a, "links"))) {
    const std::size_t colon = std::min(one.rfind(':'), one.size());
    const long long pairs = to_integer(std::string_view(one).substr(std::min(colon + 1, one.size()))).value_or(0);
    if (pairs > 0) ways.emplace_back(one.substr(0, colon), std::min(pairs, most_pairs));
  }
  return ways;
}

std::string gpu_lines(const std::vector<Answers>& all) {
  std::vector<std::pair<std::string, std::string>> lines;  // a finding, and the hosts that share it
  for (const Answers& a : all) {
    if (value(a, "gpus").empty() || value(a, "gpus") == "0") continue;
    std::vector<std::string> names;  // of the ways, one for each pair
    for (const auto& [way, pairs] : pairs_by_way(a)) names.insert(names.end(), static_cast<std::size_t>(pairs), way);
    placement::Machine machine;
    machine.driver = value(a, "driver"), machine.nccl = value(a, "nccl");
    std::string text = versions_text(machine);
    if (const std::string aware = value(a, "aware"); !aware.empty())
      text += formatted("{}MPI takes {}device memory", text.empty() ? "" : "; ", aware == "yes" ? "" : "no ");
    if (!names.empty()) text += (text.empty() ? "" : "; ") + count_ways(names);
    if (text.empty()) continue;
    const auto known = std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l.first == text; });
    if (known == lines.end())
      lines.emplace_back(text, a.host);
    else
      known->second += ", " + a.host;
  }
  std::string out;
  for (const auto& [text, hosts] : lines) out += formatted("GPUs of {}: {}\n", hosts, text);
  return out;
}

void check_gpus(const Answers& a, const std::string& usual_nccl, std::vector<Problem>& out) {
  const std::string nccl = value(a, "nccl");
  if (nccl == usual_nccl || nccl.empty() || value(a, "gpus") == "0") return;
  out.push_back({a.host, formatted("has NCCL {}, others have {}", nccl, usual_nccl),
                 "tensors on GPUs would go through host memory: install the same torch everywhere", false});
}

}  // namespace hvd::launcher
