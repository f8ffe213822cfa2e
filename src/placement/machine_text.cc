#include "placement/machine_text.h"

#include <vector>

#include "base/format.h"
#include "base/text.h"

namespace hvd::placement {

namespace {

constexpr std::string_view first = "hvd machine", last = "hvd machine ends";

/// @p text as one word of a line: not empty, blanks replaced.  @param spaces  keeps spaces
std::string word(std::string text, bool spaces = false) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) <= ' ' && !(spaces && c == ' ')) c = '_';
  return text.empty() ? "-" : text;
}
std::string unword(const std::string& text) { return text == "-" ? "" : text; }

bool read_line(const std::vector<std::string>& w, Machine& machine) {
  std::vector<int> numbers;
  for (std::size_t i = 1; i < w.size(); ++i) numbers.push_back(static_cast<int>(to_integer(w[i]).value_or(-1)));
  if (w[0] == "core" && w.size() > 2) {
    for (const int n : numbers)
      if (n < 0) return false;
    machine.cores.push_back({{numbers.begin() + 1, numbers.end()}, numbers[0]});
  } else if (w[0] == "gpu" && w.size() >= 6) {
    machine.gpus.push_back(
        {unword(w[3]), unword(w[4]), unword(join({w.begin() + 5, w.end()}, " ")), numbers[0], numbers[1]});
  } else if (w[0] == "nic" && w.size() == 4) {
    machine.nics.push_back({w[3], numbers[0], numbers[1] == 1});
  } else if (w[0] == "way" && w.size() == 4) {
    machine.ways.push_back({w[1], w[2], w[3]});
  } else if (w[0] == "driver" && w.size() == 2) {
    machine.driver = w[1];
  } else if (w[0] == "nccl" && w.size() == 2) {
    machine.nccl = w[1];
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::string machine_to_text(const Machine& machine) {
  std::string out = std::string(first) + "\n";
  for (const Core& c : machine.cores) {
    out += formatted("core {}", c.node);
    for (const int cpu : c.cpus) out += formatted(" {}", cpu);
    out += "\n";
  }
  for (const GpuInfo& g : machine.gpus)
    out += formatted("gpu {} {} {} {} {}\n", g.index, g.node, word(g.pci), word(g.uuid), word(g.name, true));
  for (const Nic& n : machine.nics)
    out += formatted("nic {}{}{}\n", n.node, n.infiniband ? " 1 " : " 0 ", word(n.name));
  for (const GpuPath& way : machine.ways) out += formatted("way {} {} {}\n", word(way.a), word(way.b), word(way.name));
  if (!machine.driver.empty()) out += "driver " + word(machine.driver) + "\n";
  if (!machine.nccl.empty()) out += "nccl " + word(machine.nccl) + "\n";
  return out + std::string(last) + "\n";
}

std::optional<Machine> machine_from_text(const std::string& text) {
  std::optional<Machine> machine;
  for (const std::string& line : split(text, '\n')) {
    if (line == first) {
      machine.emplace();
    } else if (line == last) {
      return machine;
    } else if (machine) {
      const std::vector<std::string> w = words(line);
      if (w.empty() || !read_line(w, *machine)) return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace hvd::placement
