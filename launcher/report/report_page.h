/// @file report_page.h — the report as one page for a browser, without other files.  Pure.
#pragma once
#include <string>

namespace hvd::launcher {

/// @param json  of report_json()
std::string report_page(const std::string& json);

}  // namespace hvd::launcher
