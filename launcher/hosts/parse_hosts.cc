#include "launcher/hosts/parse_hosts.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "launcher/hosts/host_reader.h"

namespace hvd::launcher {

namespace {

/// Advice on user@host.  @param form  of a host
std::string user_of_ssh(const std::string& form) {
  return "write " + form + ", and the user for ssh into ~/.ssh/config: Host, User";
}

/// Reads the text behind a host in a hostfile: "slots=4 max_slots=8 # comment".
int read_keys(HostReader& line, int slots, bool have_slots) {
  int max_slots = 0;
  for (line.skip_blanks(); !line.at_end() && line.peek() != '#'; line.skip_blanks()) {
    const std::size_t column = line.column();
    const std::string key = shortened(line.word(), most_shown_bytes);
    line.skip_blanks();
    const bool is_slots = key == "slots", is_max = key == "max_slots" || key == "max-slots";
    if (key.empty())
      line.fail(column, std::string("'") + line.peek() + "' is not expected here",
                line.peek() == '@' ? user_of_ssh("host slots=n") : "write host slots=n");
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
      line.fail(value_column, formatted("slots={} is more than max_slots={}", slots, max_slots));
  }
  return slots;
}

/// The text of a file or program, without UTF-8's byte order mark at its beginning.  Throws Error{usage} at the first
/// NUL byte.
std::string_view plain_text(std::string_view text, const std::string& name) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  if (text.starts_with(mark)) text.remove_prefix(mark.size());
  const std::size_t nul = text.find('\0');
  if (nul == std::string_view::npos) return text;
  const std::string_view before = text.substr(0, nul);
  const std::size_t line = 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
  const std::size_t column = nul - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
  throw Error(Code::usage, formatted("{}:{}:{}", name, line, column), "a NUL byte is not expected here",
              "write plain text, in UTF-8");
}

}  // namespace

Allocation parse_hosts(std::string_view text) {
  Allocation allocation;
  allocation.source = "-H";
  HostReader reader(text, [](std::size_t column) { return formatted("-H:{}", column); });
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
                reader.peek() == '@' ? user_of_ssh("host:slots") : "write host:slots,host:slots");
  return allocation;
}

Allocation parse_hostfile(std::string_view text, const std::string& name) {
  Allocation allocation;
  allocation.source = "hostfile " + name;
  std::size_t number = 0;
  for (const std::string& line : split(plain_text(text, name), '\n')) {
    ++number;
    HostReader reader(line, [&](std::size_t column) { return formatted("{}:{}:{}", name, number, column); });
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
  for (const std::string& line : split(plain_text(text, name), '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    HostReader reader(line, [&](std::size_t column) { return formatted("{}:{}:{}", name, number, column); });
    reader.skip_blanks();
    const std::string where = reader.place(reader.column());
    const std::vector<std::string> names = reader.hosts();
    const int own = reader.take(':') ? reader.slots() : slots;
    reader.skip_blanks();
    if (!reader.at_end())
      reader.fail(reader.column(), std::string("'") + reader.peek() + "' is not expected here",
                  reader.peek() == '@' ? user_of_ssh("host:slots") : "print one host a line: host:slots");
    for (const std::string& host : names) add_host(allocation, host, own, where);
  }
  if (allocation.hosts.empty()) throw Error(Code::usage, name, "printed no host", "print one host a line: host:slots");
  return allocation;
}

}  // namespace hvd::launcher
