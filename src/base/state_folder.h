/// @file state_folder.h — the folder of hvdrun's files that outlive a job.
#pragma once
#include <string>

#include "base/environment.h"

namespace hvd {

/// $XDG_STATE_HOME/hvdrun/NAME, else $HOME/.local/state/hvdrun/NAME.  Empty if neither variable is an absolute path.
inline std::string state_folder(const std::string& name) {
  const auto absolute = [](const char* variable) -> std::string {
    const char* value = environment_value(variable);
    return value && value[0] == '/' ? value : "";
  };
  if (const std::string state = absolute("XDG_STATE_HOME"); !state.empty()) return state + "/hvdrun/" + name;
  const std::string home = absolute("HOME");
  return home.empty() ? "" : home + "/.local/state/hvdrun/" + name;
}

}  // namespace hvd
