#include "base/format.h"

#include <algorithm>
#include <cstdio>

namespace hvd {

namespace {

template <class Number>
void append_printed(std::string& out, const std::string& spec, Number number) {
  char digits[512];  // the largest double has 309 digits before its point
  const int length = std::snprintf(digits, sizeof digits, spec.c_str(), number);
  out.append(digits, static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(sizeof digits) - 1)));
}

}  // namespace

void FormatValue::append_to(std::string& out, std::string_view spec) const {
  const bool hexadecimal = spec.ends_with('x');
  if (hexadecimal) spec.remove_suffix(1);
  const std::string percent = '%' + std::string(spec);
  switch (kind_) {
    case Kind::text:
      out += text_;
      break;
    case Kind::integer:
      append_printed(out, percent + (hexadecimal ? "llx" : "lld"), integer_);
      break;
    case Kind::natural:
      append_printed(out, percent + (hexadecimal ? "llx" : "llu"), natural_);
      break;
    case Kind::floating:
      append_printed(out, percent, floating_);
      break;
  }
}

std::string format_values(std::string_view pattern, std::initializer_list<FormatValue> values) {
  std::string out;
  for (const FormatValue& value : values) {
    const std::size_t open = pattern.find('{'), close = pattern.find('}');
    out += pattern.substr(0, open);
    const std::string_view spec = pattern.substr(open + 1, close - open - 1);
    value.append_to(out, spec.empty() ? spec : spec.substr(1));
    pattern.remove_prefix(close + 1);
  }
  return out += pattern;
}

}  // namespace hvd
