#include "launcher/doctor/gpus.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace hvd::launcher {

namespace {

/// nvidia-smi's word for the way between two GPUs, explained.
std::string in_words(const std::string& way) {
  static constexpr std::pair<std::string_view, std::string_view> ways[] = {{"PIX", "one PCIe switch"},
                                                                           {"PXB", "several PCIe switches"},
                                                                           {"PHB", "the CPU's PCIe host bridge"},
                                                                           {"NODE", "PCIe within a NUMA node"},
                                                                           {"SYS", "the link between NUMA nodes"}};
  if (way.starts_with("NV")) return "NVLink, " + way.substr(2) + " links";
  for (const auto& [name, text] : ways)
    if (way == name) return std::string(text);
  return way;
}

}  // namespace

// Its first line names the columns, with escapes that underline them; each GPU's row follows.
std::string gpu_question() {
  return "command -v nvidia-smi >/dev/null && echo links $(timeout 20 nvidia-smi topo -m 2>/dev/null | awk '"
         "{gsub(/\\033\\[[0-9;]*m/,\"\")} "
         "!n && $1==\"GPU0\" && $2!=\"X\" {for(i=1;i<=NF;i++) if($i ~ /^GPU[0-9]+$/) n++; next} "
         "n && $1 ~ /^GPU[0-9]+$/ {r++; for(i=r+2;i<=n+1;i++) c[$i]++} "
         "END {for(k in c) print k\":\"c[k]}' | sort)\n";
}

std::string nccl_question() {
  return "from importlib.metadata import distributions\n"
         "for d in distributions():\n"
         "    if (d.metadata['Name'] or '').startswith('nvidia-nccl-cu'): print('nccl',d.version)\n";
}

std::string gpu_lines(const std::vector<Answers>& all) {
  std::vector<std::pair<std::string, std::string>> lines;  // what is there, and the hosts that have it
  for (const Answers& a : all) {
    std::string text;
    for (const std::string& one : words(value(a, "links"))) {
      const std::size_t colon = one.rfind(':');
      if (colon == std::string::npos) continue;
      const std::string pairs = one.substr(colon + 1);
      text += (text.empty() ? "" : "; ") + pairs + (pairs == "1" ? " pair by " : " pairs by ") +
              in_words(one.substr(0, colon));
    }
    const bool any = !value(a, "gpus").empty() && value(a, "gpus") != "0";
    if (const std::string nccl = value(a, "nccl"); !nccl.empty() && (any || !text.empty()))
      text += (text.empty() ? "" : "; ") + ("NCCL " + nccl);
    if (text.empty()) continue;
    const auto known = std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l.first == text; });
    if (known == lines.end())
      lines.emplace_back(text, a.host);
    else
      known->second += ", " + a.host;
  }
  std::string out;
  for (const auto& [text, hosts] : lines) out += "GPUs of " + hosts + ": " + text + "\n";
  return out;
}

void check_gpus(const Answers& a, const std::string& usual_nccl, std::vector<Problem>& out) {
  const std::string nccl = value(a, "nccl");
  if (nccl == usual_nccl || nccl.empty() || value(a, "gpus") == "0") return;
  out.push_back({a.host, "has NCCL " + nccl + ", others have " + usual_nccl,
                 "tensors on GPUs would go through host memory: install the same torch everywhere", false});
}

}  // namespace hvd::launcher
