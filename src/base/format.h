/// @file format.h — formatted("rank {} on {}", rank, host): the part of std::format that our messages need.
///
/// A pattern holds `{}`, or `{:SPEC}` for a number; SPEC is `[+][0][width][.precision][x|f|g]`.  A floating-point
/// number must have a SPEC that ends in f or g.  There is no `{{`, so a pattern cannot contain braces.  The compiler
/// refuses a pattern that does not fit its values.
///
/// The oldest supported compiler is gcc 12, and std::format comes with gcc 13.  std::format can read the same patterns.
/// fmt costs more.  As headers, fmt adds 137 % to the compile time of five files of hvdrun.  As a library, fmt adds 7
/// %, and each host must have the library (Debian packages no static one).
#pragma once
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace hvd {

/// A value of formatted(): text, an integer or a floating-point number.  Does not own the text.
class FormatValue {
 public:
  FormatValue(const std::string& text) : text_(text) {}
  FormatValue(std::string_view text) : text_(text) {}
  FormatValue(const char* text) : text_(text) {}
  template <std::signed_integral T>
  requires(!std::same_as<T, char>) FormatValue(T number) : kind_(Kind::integer), integer_(number) {}
  template <std::unsigned_integral T>
  requires(!std::same_as<T, char> && !std::same_as<T, bool>) FormatValue(T number)
      : kind_(Kind::natural), natural_(number) {}
  template <std::floating_point T>
  FormatValue(T number) : kind_(Kind::floating), floating_(number) {}

  void append_to(std::string& out, std::string_view spec) const;

 private:
  enum class Kind : unsigned char { text, integer, natural, floating };
  Kind kind_ = Kind::text;
  union {
    std::string_view text_;
    long long integer_;
    unsigned long long natural_;
    double floating_;
  };
};

/// A string literal.  The compiler checks its holes against the types of the values.
template <class... Values>
class FormatPattern {
 public:
  template <std::size_t N>
  consteval FormatPattern(const char (&literal)[N]) : text(literal, N - 1) {
    constexpr bool is_floating[] = {std::is_floating_point_v<Values>..., false};
    constexpr bool is_number[] = {std::is_arithmetic_v<Values>..., false};
    std::size_t holes = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '}') throw "a } that closes nothing";
      if (text[i] != '{') continue;
      if (holes == sizeof...(Values)) throw "more {} than values";
      const std::size_t end = text.find('}', i);
      if (end == std::string_view::npos) throw "a { that nothing closes";
      const std::string_view spec = text.substr(i + 1, end - i - 1);
      if (!spec.empty() && (spec[0] != ':' || spec.size() > 8)) throw "{} or {:SPEC}";
      if (!spec.empty() && !is_number[holes]) throw "a SPEC is for numbers";
      if (spec.find_first_not_of(":+0123456789.xfg") != std::string_view::npos)
        throw "a SPEC is [+][0][width][.precision][x|f|g]";
      if (is_floating[holes] != (!spec.empty() && (spec.back() == 'f' || spec.back() == 'g')))
        throw "f or g is for floating-point numbers, and they need it";
      ++holes;
      i = end;
    }
    if (holes != sizeof...(Values)) throw "fewer {} than values";
  }
  const std::string_view text;
};

std::string format_values(std::string_view pattern, std::initializer_list<FormatValue> values);

/// @p pattern, with each hole replaced by the value of the same position.
template <class... Values>
std::string formatted(std::type_identity_t<FormatPattern<Values...>> pattern, const Values&... values) {
  return format_values(pattern.text, {FormatValue(values)...});
}

}  // namespace hvd
