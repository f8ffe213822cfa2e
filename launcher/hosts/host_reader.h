/// @file host_reader.h — reads host names, with node[01-04] and [IPv6], and the numbers after them.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

inline constexpr std::size_t most_hosts = 65536;       ///< of one allocation
inline constexpr std::size_t most_host_letters = 253;  ///< of a name, as in DNS
inline constexpr std::size_t most_shown_bytes = 40;    ///< of a wrong word, in a message
inline constexpr int most_slots = 1 << 20;             ///< of one host

/// A cursor over one line.  Errors are thrown as Error{usage, place(column)}; columns count from 1.
class HostReader {
 public:
  using Locate = std::function<std::string(std::size_t column)>;

  HostReader(std::string_view line, Locate place) : line_(line), place_(std::move(place)) {}

  bool at_end() const { return i_ >= line_.size(); }
  char peek() const { return at_end() ? '\0' : line_[i_]; }
  std::size_t column() const { return i_ + 1; }
  void skip_blanks();
  bool take(char c);
  /// Letters, digits, '_' and '-'; may be empty.
  std::string word();
  /// One or more names: an IPv6 address in brackets, or a name with any number of [..] ranges.
  std::vector<std::string> hosts();
  /// A whole number > 0.
  int slots();

  [[noreturn]] void fail(std::size_t column, const std::string& what, const std::string& hint = {}) const;
  std::string place(std::size_t column) const { return place_(column); }

 private:
  std::vector<std::string> range();

  std::string_view line_;
  Locate place_;
  std::size_t i_ = 0;
};

}  // namespace hvd::launcher
