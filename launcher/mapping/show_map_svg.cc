/// The map as a picture.  Sizes are in pixels; every word from outside is escaped.
#include <algorithm>
#include <map>
#include <set>

#include "base/format.h"
#include "base/text.h"
#include "launcher/mapping/gpu_ways.h"
#include "launcher/mapping/show_map.h"
#include "placement/gpu_paths.h"

namespace hvd::launcher {

namespace {

constexpr int cell = 22, wide = 52, gap = 4, margin = 16, per_row = 16, line_height = 18;
constexpr const char* fills[] = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759",
                                 "#b07aa1", "#76b7b2", "#edc948", "#9c755f"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
    }
  return out;
}

constexpr const char* nobody = "#e4e4e4";

/// That of the first.
std::string colour_of(const std::set<int>& ranks) {
  return ranks.empty() ? nobody : fills[static_cast<std::size_t>(*ranks.begin()) % std::size(fills)];
}

std::string digits(int n) { return std::to_string(n); }

/// The nearer, the greener.
const char* colour_of_way(const std::string& way) {
  if (way.starts_with("NV")) return "#76b900";
  if (way == "PIX" || way == "PXB") return "#b8d98a";
  return way == "PHB" || way == "NODE" ? "#edc948" : way == "SYS" ? "#f2a58e" : "#e4e4e4";
}

std::string words_at(int x, int y, const std::string& text, const char* more = "") {
  return formatted("<text x=\"{}\" y=\"{}\"{}>{}</text>\n", digits(x), digits(y), more, escaped(text));
}

/// A box with a word in it; the whole story shows when the mouse rests on it.
std::string box(int x, int y, int width, const std::string& fill, const std::string& word, const std::string& story,
                int size = 11) {
  std::string out =
      formatted("<g><title>{}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\" fill=\"{}\"/>",
                escaped(story), digits(x), digits(y), digits(width), digits(cell), fill);
  if (!word.empty())
    out += formatted("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-size=\"{}\">{}</text>", digits(x + width / 2),
                     digits(y + 15), digits(size), escaped(word));
  return out + "</g>\n";
}

/// "rank 3", "ranks 0-3"; empty for none.
std::string ranks_in_words(const std::set<int>& ranks) {
  if (ranks.empty()) return {};
  return (ranks.size() == 1 ? "rank " : "ranks ") + hvd::ranges({ranks.begin(), ranks.end()});
}

/// What the colours mean.
std::string legend(const JobMap& map, int y) {
  std::string out;
  int x = margin;
  const auto entry = [&](const char* fill, const std::string& word) {
    out += box(x, y, wide, fill, word, word);
    x += wide + gap;
  };
  const std::size_t shown = std::min(map.ranks.size(), std::size(fills));
  for (std::size_t rank = 0; rank < shown; ++rank) entry(fills[rank], formatted("rank {}", rank));
  entry(nobody, "free");
  out += words_at(margin, y + cell + line_height,
                  "A box is a core; below it GPUs and network cards." +
                      std::string(map.ranks.size() > shown ? " Further ranks take the colours in turn." : ""));
  return out;
}

/// One host's picture, growing downwards.
class HostPicture {
 public:
  /// @param first  subtracted from all ranks
  HostPicture(const JobMap& map, int host, const placement::Machine& machine, int first) : machine_(machine) {
    for (const MappedRank& p : map.ranks) {
      if (p.host != host || !p.share) continue;
      for (const int cpu : p.share->cpus) ranks_of_cpu_[cpu].insert(p.rank - first);
      if (p.share->cpus.empty()) unbound_.insert(p.rank - first);
      if (p.share->gpu) ranks_of_gpu_[p.share->gpu->index].insert(p.rank - first);
      if (!p.share->nic.empty()) ranks_of_nic_[p.share->nic].insert(p.rank - first);
    }
  }

  std::string draw(int top) {
    y_ = top;
    std::set<int> nodes;
    for (const placement::Core& c : machine_.cores) nodes.insert(c.node);
    for (const placement::GpuInfo& g : machine_.gpus) nodes.insert(g.node);
    for (const placement::Nic& n : machine_.nics) nodes.insert(n.node);
    if (!unbound_.empty()) {
      out_ +=
          words_at(margin * 2, y_ + 14, ranks_in_words(unbound_) + ": on any core, since cores are fewer than ranks");
      y_ += line_height + gap;
    }
    for (const int node : nodes) draw_node(node);
    draw_ways();
    return std::move(out_);
  }
  int bottom() const { return y_; }

 private:
  void draw_node(int node) {
    out_ += words_at(margin * 2, y_ + 14, node < 0 ? "node not known" : "NUMA node " + digits(node));
    y_ += line_height + gap;
    int column = 0;
    for (const placement::Core& c : machine_.cores) {
      if (c.node != node) continue;
      std::set<int> ranks;
      for (const int cpu : c.cpus)
        if (const auto owners = ranks_of_cpu_.find(cpu); owners != ranks_of_cpu_.end())
          ranks.insert(owners->second.begin(), owners->second.end());
      const std::string words = ranks_in_words(ranks);
      place_box(column, 1, colour_of(ranks), words,
                formatted("CPUs {}, {}", ranges(c.cpus), words.empty() ? "free" : words));
    }
    if (column) y_ += cell + gap;
    column = 0;
    for (const placement::GpuInfo& g : machine_.gpus) {
      if (g.node != node) continue;
      const std::string words = ranks_in_words(ranks_of_gpu_[g.index]);
      place_box(column, 2, colour_of(ranks_of_gpu_[g.index]), joined("GPU " + digits(g.index), words),
                (g.pci.empty() ? g.uuid : g.pci) + " " + g.name);
    }
    for (const placement::Nic& n : machine_.nics)
      if (n.node == node)
        place_box(column, 2, "#dfe8f5", joined(n.name, ranks_in_words(ranks_of_nic_[n.name])),
                  "network card " + n.name);
    if (column) y_ += cell + gap;
    y_ += gap;
  }

  /// Each GPU a row and a column; its number is where they cross.
  void draw_ways() {
    const std::string versions = versions_text(machine_);
    if (machine_.gpus.empty() || (versions.empty() && machine_.ways.empty())) return;
    const bool any = machine_.gpus.size() > 1 && !machine_.ways.empty();
    out_ += words_at(margin * 2, y_ + 14,
                     join({any ? "between GPUs" : "GPUs", versions}, any && !versions.empty() ? "; " : " "));
    y_ += line_height + gap;
    for (const placement::GpuInfo& from : machine_.gpus) {
      if (!any) break;
      int x = margin * 2;
      for (const placement::GpuInfo& to : machine_.gpus) {
        const std::string way = &from == &to ? digits(from.index) : placement::gpu_path_between(machine_, from, to);
        const std::string story = &from == &to ? "GPU " + way
                                               : formatted("GPU {} and GPU {}: {}", digits(from.index),
                                                           digits(to.index), placement::gpu_path_in_words(way));
        out_ += box(x, y_, cell, &from == &to ? "#ffffff" : colour_of_way(way), way, story, 8);
        x += cell + gap;
      }
      y_ += cell + gap;
    }
    y_ += gap;
  }

  void place_box(int& column, int cells, const std::string& fill, const std::string& word, const std::string& story) {
    if (column + cells > per_row) column = 0, y_ += cell + gap;
    out_ += box(margin * 2 + column * (wide + gap), y_, cells * wide + (cells - 1) * gap, fill, word, story,
                static_cast<int>(word.size()) > 8 * cells ? 9 : 11);
    column += cells;
  }

  static std::string joined(const std::string& what, const std::string& ranks) {
    return ranks.empty() ? what : what + ": " + ranks;
  }

  const placement::Machine& machine_;
  std::map<int, std::set<int>> ranks_of_cpu_, ranks_of_gpu_;
  std::map<std::string, std::set<int>> ranks_of_nic_;
  std::set<int> unbound_;
  std::string out_;
  int y_ = 0;
};

/// The first rank of a host; they follow one another.
int first_rank(const JobMap& map, std::size_t host) {
  for (const MappedRank& p : map.ranks)
    if (p.host == static_cast<int>(host)) return p.rank;
  return 0;
}

/// How a host looks, whatever its name and the numbers of its ranks: hosts of one look share a picture.
std::string look_of(const JobMap& map, const Machines& machines, std::size_t host) {
  if (!machines[host]) return formatted("unknown {}", map.hosts[host].ranks);
  return formatted("{} {}{}", machine_text(*machines[host]), map.hosts[host].ranks,
                   HostPicture(map, static_cast<int>(host), *machines[host], first_rank(map, host)).draw(0));
}

std::string what_it_is(const JobMap& map, const Machines& machines, std::size_t host, std::size_t alike) {
  std::string text = count_of(map.hosts[host].ranks, "rank") + (alike > 1 ? " each; " : "; ") +
                     (machines[host] ? machine_text(*machines[host]) : "not looked at; it decides by itself");
  if (machines[host] && machines[host]->gpus.empty()) text += " (ranks run on CPUs)";
  if (alike > 1 && map.hosts[host].ranks > 0)
    text += formatted("; drawn with the ranks of {}, those of each next host are {} higher", map.hosts[host].name,
                      map.hosts[host].ranks);
  return text;
}

}  // namespace

std::string map_svg(const JobMap& map, const Machines& machines) {
  const int width = margin * 4 + per_row * (wide + gap);
  std::string body = legend(map, margin);
  int y = margin * 2 + cell + line_height;
  for (std::size_t h = 0; h < map.hosts.size();) {
    const std::string look = look_of(map, machines, h);
    std::size_t end = h + 1;
    while (end < map.hosts.size() && look_of(map, machines, end) == look) ++end;
    const std::string name = end - h == 1
                                 ? map.hosts[h].name
                                 : formatted("{} … {} ({} hosts)", map.hosts[h].name, map.hosts[end - 1].name, end - h);
    const int top = y;
    std::string inside = words_at(margin * 2, top + line_height + 2, name, " font-weight=\"bold\"") +
                         words_at(margin * 2, top + 2 * line_height, what_it_is(map, machines, h, end - h));
    int bottom = top + 2 * line_height + margin;
    if (machines[h]) {
      HostPicture picture(map, static_cast<int>(h), *machines[h], 0);
      inside += picture.draw(bottom);
      bottom = picture.bottom();
    }
    body += formatted(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"6\" fill=\"#fafafa\" stroke=\"#888888\"/>\n{}",
        digits(margin), digits(top), digits(width - 2 * margin), digits(bottom - top), inside);
    y = bottom + margin;
    h = end;
  }
  return formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" "
      "font-size=\"13\">\n{}</svg>\n",
      digits(width), digits(y), body);
}

}  // namespace hvd::launcher
