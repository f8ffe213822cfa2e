#include "launcher/report/report_page.h"

namespace hvd::launcher {

extern const char report_page_text[];  // report_page.html

std::string report_page(const std::string& json) {
  constexpr std::string_view place = "REPORT_AS_JSON";
  std::string harmless;  // JSON that cannot end the <script> around it
  for (const char c : json) harmless += c == '<' ? std::string("\\u003c") : std::string(1, c);
  std::string page = report_page_text;
  return page.replace(page.find(place), place.size(), harmless);
}

}  // namespace hvd::launcher
