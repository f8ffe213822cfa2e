#include "negotiate/mismatch.h"

#include <cstdio>
#include <functional>
#include <map>

namespace hvd::negotiate {
namespace {

std::string shape_text(const Signature& s) {
  std::string text = "[";
  for (int i = 0; i < s.ndim; ++i) {
    if (i) text += ", ";
    text += s.dims[i] < 0 ? "*" : std::to_string(s.dims[i]);
  }
  return text + "]";
}

std::string number(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%g", x);
  return text;
}

struct Field {
  const char* name;
  std::string (*value)(const Signature&);
};

/// The first field that differs is reported.  The kind of operation is first, since it explains all other differences.
const Field fields[] = {
    {"operation", [](const Signature& s) -> std::string { return name_of(s.operation()); }},
    {"dtype", [](const Signature& s) -> std::string { return name_of(s.type()); }},
    {"shape", shape_text},
    {"reduce op", [](const Signature& s) -> std::string { return name_of(s.reduction()); }},
    {"root rank", [](const Signature& s) { return std::to_string(s.root); }},
    {"device", [](const Signature& s) { return std::string(s.device < 0 ? "cpu" : "cuda"); }},
    {"prescale factor", [](const Signature& s) { return number(s.before); }},
    {"postscale factor", [](const Signature& s) { return number(s.after); }},
    {"group",
     [](const Signature& s) {
       return s.group_size == 0 ? std::string("none")
                                : std::to_string(s.group_size) + " tensors (#" + std::to_string(s.group % 10000) + ")";
     }},
};

}  // namespace

std::string describe(const Signature& signature) {
  const std::string kind = name_of(signature.operation());
  if (signature.operation() == Kind::barrier || signature.operation() == Kind::join) return kind;
  return kind + " of " + shape_text(signature) + " " + name_of(signature.type());
}

std::string disagreement(const std::string& name, const std::vector<Announcement>& claims) {
  for (const Field& field : fields) {
    std::map<std::string, RankSet> by_value;
    std::vector<std::string> order;
    for (const Announcement& claim : claims) {
      auto& ranks = by_value[field.value(claim.signature)];
      if (ranks.empty()) order.push_back(field.value(claim.signature));
      ranks.merge(claim.ranks);
    }
    if (order.size() < 2) continue;
    std::string text = std::string(name_of(claims.front().signature.operation())) + " '" + name +
                       "': ranks disagree on " + field.name + ": ";
    constexpr std::size_t most = 4;
    for (std::size_t i = 0; i < order.size() && i < most; ++i) {
      if (i) text += ", ";
      text += order[i] + " on " + by_value[order[i]].text();
    }
    if (order.size() > most) text += ", and " + std::to_string(order.size() - most) + " more values";
    return text;
  }
  return {};
}

}  // namespace hvd::negotiate
