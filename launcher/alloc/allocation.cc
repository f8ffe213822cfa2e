#include "launcher/alloc/allocation.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "base/trust.h"
#include "launcher/alloc/host_reader.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_hostfile_bytes = 16u << 20;
constexpr std::size_t most_names = 4u << 20;  ///< a resource manager may write one for each slot

/// "slots=4 max_slots=8 # comment", what may follow a host in a hostfile.
int read_keys(HostReader& line, int slots, bool have_slots) {
  int max_slots = 0;
  for (line.skip_blanks(); !line.at_end() && line.peek() != '#'; line.skip_blanks()) {
    const std::size_t column = line.column();
    const std::string key = line.word();
    line.skip_blanks();
    const bool is_slots = key == "slots", is_max = key == "max_slots" || key == "max-slots";
    if (key.empty()) line.fail(column, std::string("'") + line.peek() + "' is not expected here", "write host slots=n");
    if (!is_slots && !is_max) line.fail(column, "'" + key + "' is not a key", "write host slots=n max_slots=n");
    if (!line.take('=')) line.fail(line.column(), "= is missing after " + key, "write " + key + "=n");
    line.skip_blanks();
    const std::size_t value_column = line.column();
    const int n = line.slots();
    if (is_max) {
      max_slots = n;
    } else {
      if (have_slots) line.fail(column, "the slots are given twice");
      slots = n, have_slots = true;
    }
    if (max_slots && slots > max_slots)
      line.fail(value_column,
                "slots=" + std::to_string(slots) + " is more than max_slots=" + std::to_string(max_slots));
  }
  return slots;
}

}  // namespace

long long Allocation::total_slots() const {
  long long total = 0;
  for (const HostSlots& h : hosts) total += h.slots;
  return total;
}

void add_host(Allocation& allocation, const std::string& host, int slots, const std::string& where) {
  if (++allocation.named > most_names)
    throw Error(Code::usage, where, "hosts are named more than " + std::to_string(most_names) + " times");
  const auto [place, is_new] = allocation.places.try_emplace(host, allocation.hosts.size());
  if (is_new) {
    if (allocation.hosts.size() == most_hosts)
      throw Error(Code::usage, where, "there are more than " + std::to_string(most_hosts) + " hosts");
    allocation.hosts.push_back({host, slots, where});
    return;
  }
  int& sum = allocation.hosts[place->second].slots;
  if (sum > most_slots - slots) throw Error(Code::usage, where, "'" + host + "' has more slots than any host has");
  sum += slots;
}

Allocation parse_hosts(std::string_view text) {
  Allocation allocation;
  allocation.source = "-H";
  HostReader reader(text, [](std::size_t column) { return "-H:" + std::to_string(column); });
  do {
    reader.skip_blanks();
    const std::string where = reader.place(reader.column());
    const std::vector<std::string> names = reader.hosts();
    const int slots = reader.take(':') ? reader.slots() : 1;
    for (const std::string& name : names) add_host(allocation, name, slots, where);
    reader.skip_blanks();
  } while (reader.take(','));
  if (!reader.at_end())
    reader.fail(reader.column(), std::string("'") + reader.peek() + "' is not expected here",
                "write host:slots,host:slots");
  return allocation;
}

Allocation parse_hostfile(std::string_view text, const std::string& name) {
  Allocation allocation;
  allocation.source = "hostfile " + name;
  std::size_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    HostReader reader(
        line, [&](std::size_t column) { return name + ":" + std::to_string(number) + ":" + std::to_string(column); });
    reader.skip_blanks();
    if (reader.at_end() || reader.peek() == '#') continue;
    const std::string where = reader.place(reader.column());
    const std::vector<std::string> names = reader.hosts();
    const bool colon = reader.take(':');
    int slots = colon ? reader.slots() : 1;
    slots = read_keys(reader, slots, colon);
    for (const std::string& host : names) add_host(allocation, host, slots, where);
  }
  if (allocation.hosts.empty()) throw Error(Code::usage, name, "names no host", "write one a line: host slots=n");
  return allocation;
}

Allocation parse_discovered(std::string_view text, int slots, const std::string& name) {
  Allocation allocation;
  allocation.source = "host discovery script " + name;
  std::size_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    HostReader reader(
        line, [&](std::size_t column) { return name + ":" + std::to_string(number) + ":" + std::to_string(column); });
    reader.skip_blanks();
    const std::string where = reader.place(reader.column());
    const std::vector<std::string> names = reader.hosts();
    const int own = reader.take(':') ? reader.slots() : slots;
    reader.skip_blanks();
    if (!reader.at_end())
      reader.fail(reader.column(), std::string("'") + reader.peek() + "' is not expected here",
                  "print one host a line: host:slots");
    for (const std::string& host : names) add_host(allocation, host, own, where);
  }
  if (allocation.hosts.empty()) throw Error(Code::usage, name, "printed no host", "print one host a line: host:slots");
  return allocation;
}

Wanted decide_allocation(const Sources& from) {
  if (from.np && *from.np < 1)
    throw Error(Code::usage, "-np", "there must be at least 1 rank, not " + std::to_string(*from.np),
                "write for example -np 2");
  Wanted wanted;
  const bool given = !from.hosts.empty() || !from.hostfile.empty() || from.explicitly;
  if (given) {
    wanted.allocation =
        !from.hosts.empty() ? parse_hosts(from.hosts)
        : !from.hostfile.empty()
            ? parse_hostfile(read_trusted(from.hostfile, most_hostfile_bytes, from.by_anybody), from.hostfile)
            : *from.explicitly;
    wanted.why = "given";
    if (from.found) wanted.why += "; " + from.found->source + " is there too, but given beats found";
  } else if (from.found) {
    wanted.allocation = *from.found;
    wanted.why = "found in the environment; no hosts were given";
  } else {
    const int slots = from.np.value_or(std::max(1, from.gpus));
    wanted.allocation = {{{"localhost", slots, "default"}}, "localhost (default)", {}};
    wanted.why = from.np         ? "no hosts were given, and no allocation was found"
                 : from.gpus > 0 ? "neither ranks nor hosts were given: one rank for each GPU"
                                 : "neither ranks nor hosts were given, and there is no GPU: one rank";
  }
  const long long slots = wanted.allocation.total_slots();
  wanted.np = from.np.value_or(static_cast<int>(std::min(slots, 1LL << 20)));
  if (wanted.np > slots)
    throw Error(Code::usage, "-np",
                count_of(wanted.np, "rank") + " asked for, but " + wanted.allocation.source + " has only " +
                    count_of(slots, "slot"),
                given ? "give more slots (host:" + std::to_string(wanted.np) + ") or a smaller -np"
                      : "ask for more there, or give a smaller -np or hosts of your own (-H)");
  return wanted;
}

}  // namespace hvd::launcher
