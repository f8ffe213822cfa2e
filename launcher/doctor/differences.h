/// @file differences.h — what differs between the hosts of a job: packages, builds, system software.  Pure.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "launcher/doctor/checkup.h"

namespace hvd::launcher {

/// Versions of Python packages, by name.
using Packages = std::map<std::string, std::string>;

/// The packages of a host; empty: it did not tell.
Packages packages_of(const Answers& answers);
/// The packages that most of the hosts have, in the version that most of them have.  This host decides a tie.
Packages usual_packages(const std::vector<Answers>& all);

struct PackageDifference {
  std::string name, version, usual;  ///< an empty version: the package is missing
};
/// Sorted by name.  Empty for a host that did not tell its packages.
std::vector<PackageDifference> package_differences(const Answers& answers, const Packages& usual);

/// A problem for each difference, none of them fatal.  A host's packages are one problem, which names a few of them.
std::vector<Problem> find_differences(const std::vector<Answers>& all, const std::string& python);

}  // namespace hvd::launcher
