#include "launcher/hosts/host_reader.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

bool is_host_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_'; }

/// The name of a network interface, as it follows '%' in an IPv6 address.  Launch agents hand hosts to a shell.
bool is_zone(const std::string& text) {
  return !text.empty() && text[0] != '-' && std::all_of(text.begin(), text.end(), is_host_char);
}

}  // namespace

void HostReader::fail(std::size_t column, const std::string& what, const std::string& hint) const {
  throw Error(Code::usage, place_(column), what, hint);
}

void HostReader::skip_blanks() {
  while (peek() == ' ' || peek() == '\t' || peek() == '\r') ++i_;
}

bool HostReader::take(char c) {
  if (peek() != c) return false;
  ++i_;
  return true;
}

std::string HostReader::word() {
  const std::size_t begin = i_;
  while (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '_' || peek() == '-') ++i_;
  return std::string(line_.substr(begin, i_ - begin));
}

int HostReader::slots() {
  const std::size_t begin = i_;
  while (!at_end() && peek() != ',' && peek() != ' ' && peek() != '\t' && peek() != '\r' && peek() != '#') ++i_;
  const std::string_view text = line_.substr(begin, i_ - begin);
  const auto n = to_integer(text);
  if (text.empty()) fail(begin + 1, "the number of slots is missing", "write host:slots, for example node1:4");
  if (!n) fail(begin + 1, "'" + shortened(text, most_shown_bytes) + "' is not a number of slots", "write host:slots");
  if (*n <= 0) fail(begin + 1, "slots must be > 0", "write host:slots");
  if (*n > most_slots) fail(begin + 1, "more slots than any host has");
  return static_cast<int>(*n);
}

/// Reads the inside of "[01-04,07]"; the cursor is behind '['.
std::vector<std::string> HostReader::range() {
  std::vector<std::string> out;
  do {
    const std::size_t begin = i_;
    auto digits = [&] {
      const std::size_t first = i_;
      while (std::isdigit(static_cast<unsigned char>(peek()))) ++i_;
      if (i_ == first || i_ - first > 9)
        fail(first + 1, "a number is missing in the range", "write for example node[01-04]");
      return std::string(line_.substr(first, i_ - first));
    };
    const std::string low = digits();
    const std::string high = take('-') ? digits() : low;
    const long long from = *to_integer(low), to = *to_integer(high);
    if (to < from) fail(begin + 1, "the range runs backwards", "write the smaller number first");
    if (static_cast<std::size_t>(to - from) + out.size() >= most_hosts) fail(begin + 1, "the range has too many hosts");
    for (long long n = from; n <= to; ++n) {
      std::string text = std::to_string(n);
      if (text.size() < low.size()) text.insert(0, low.size() - text.size(), '0');
      out.push_back(std::move(text));
    }
  } while (take(','));
  if (!take(']')) fail(column(), "the range has no closing ]");
  return out;
}

std::vector<std::string> HostReader::hosts() {
  const std::size_t begin = i_;
  if (take('[')) {
    const std::size_t end = line_.find(']', i_);
    if (end == std::string_view::npos) fail(begin + 1, "the IPv6 address has no closing ]");
    const std::string address(line_.substr(i_, end - i_));
    const std::size_t percent = address.find('%');
    const std::string zone = percent == std::string::npos ? "" : address.substr(percent + 1);
    const bool has_good_zone = percent == std::string::npos || is_zone(zone);
    in6_addr parsed{};
    if (!has_good_zone || inet_pton(AF_INET6, address.substr(0, percent).c_str(), &parsed) != 1)
      fail(begin + 2, "'" + shortened(address, most_shown_bytes) + "' is not an IPv6 address", "write [address]:slots");
    i_ = end + 1;
    return {address};
  }
  std::vector<std::string> names{""};
  while (!at_end()) {
    if (is_host_char(peek())) {
      for (std::string& n : names) n += peek();
      ++i_;
      if (names[0].size() > most_host_letters)
        fail(begin + 1, formatted("a host name has more than {} characters", most_host_letters));
    } else if (take('[')) {
      const std::vector<std::string> numbers = range();
      if (names.size() * numbers.size() > most_hosts) fail(begin + 1, "the ranges make too many hosts");
      std::vector<std::string> product;
      for (const std::string& n : names)
        for (const std::string& number : numbers) product.push_back(n + number);
      names = std::move(product);
    } else {
      break;
    }
  }
  if (names[0].empty() || names[0][0] == '-')
    fail(begin + 1,
         at_end() || peek() == ',' ? "a host name is missing"
                                   : "a host name cannot begin with '" + std::string(1, line_[begin]) + "'",
         begin < line_.size() && line_[begin] == ':' ? "write an IPv6 address in brackets: [address]:slots" : "");
  return names;
}

}  // namespace hvd::launcher
