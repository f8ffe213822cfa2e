#include "launcher/job/outer_job.h"

#include <stdlib.h>

#include "base/environment.h"
#include "base/text.h"
#include "options/variable.h"

namespace hvd::launcher {

std::string set_by_hvdrun(const std::map<std::string, std::string>& env, const std::vector<std::string>& names) {
  std::vector<std::string> lines;
  for (const std::string& name : names)
    if (const auto set = env.find(name); set != env.end() && set->second.find('\n') == std::string::npos)
      lines.push_back(name + "=" + set->second);
  return join(lines, "\n");
}

void forget_outer_job() {
  const char* listed = options::value_of("HVD_SET_BY_HVDRUN");
  if (!listed) return;
  for (const std::string& line : split(listed, '\n')) {
    const std::string name = line.substr(0, line.find('='));
    const char* value = name.empty() ? nullptr : environment_value(name.c_str());
    if (value && line == name + "=" + value) ::unsetenv(name.c_str());
  }
  ::unsetenv("HVD_SET_BY_HVDRUN");
}

}  // namespace hvd::launcher
