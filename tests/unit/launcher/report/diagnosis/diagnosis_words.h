/// @file diagnosis_words.h — the common parts of the tests of the diagnosis.
#pragma once
#include <map>
#include <string>

#include "base/text.h"
#include "launcher/report/diagnosis/diagnosis.h"

namespace hvd::launcher {

/// node0 has the first ranks, and so on.
inline std::map<int, RankPlace> places(int ranks, int a_host) {
  std::map<int, RankPlace> p;
  for (int r = 0; r < ranks; ++r) p[r] = {"node" + std::to_string(r / a_host), 8};
  return p;
}

inline std::string words_of(const Diagnosis& d) { return join(diagnosis_lines(d), "\n"); }

}  // namespace hvd::launcher
