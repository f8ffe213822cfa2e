/// The map as a picture.  Sizes are in pixels; every word from outside is escaped.
#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "launcher/place/gpu_ways.h"
#include "launcher/place/map.h"
#include "place/ways.h"

namespace hvd::launcher {

namespace {

constexpr int cell = 22, gap = 4, margin = 16, per_row = 16, line = 18;
constexpr const char* colours[] = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759",
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

std::string colour_of(int rank) {
  return rank < 0 ? "#e4e4e4" : colours[static_cast<std::size_t>(rank) % std::size(colours)];
}

std::string number(int n) { return std::to_string(n); }

/// The nearer, the greener.
const char* colour_of_way(const std::string& way) {
  if (way.starts_with("NV")) return "#76b900";
  if (way == "PIX" || way == "PXB") return "#b8d98a";
  return way == "PHB" || way == "NODE" ? "#edc948" : way == "SYS" ? "#f2a58e" : "#e4e4e4";
}

std::string words_at(int x, int y, const std::string& text, const char* more = "") {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\"" + more + ">" + escaped(text) + "</text>\n";
}

/// A box with a word in it; the whole story shows when the mouse rests on it.
std::string box(int x, int y, int width, const std::string& fill, const std::string& word, const std::string& story,
                int size = 11) {
  std::string out = "<g><title>" + escaped(story) + "</title><rect x=\"" + number(x) + "\" y=\"" + number(y) +
                    "\" width=\"" + number(width) + "\" height=\"" + number(cell) + "\" rx=\"3\" fill=\"" + fill +
                    "\"/>";
  if (!word.empty())
    out += "<text x=\"" + number(x + width / 2) + "\" y=\"" + number(y + 15) +
           "\" text-anchor=\"middle\" font-size=\"" + number(size) + "\">" + escaped(word) + "</text>";
  return out + "</g>\n";
}

/// One host's picture, growing downwards.
class HostPicture {
 public:
  HostPicture(const Plan& plan, int host, const place::Machine& machine) : machine_(machine) {
    for (const RankPlace& p : plan.ranks) {
      if (p.host != host || !p.share) continue;
      for (const int cpu : p.share->cpus) rank_of_cpu_.try_emplace(cpu, p.rank);
      if (p.share->gpu) rank_of_gpu_.try_emplace(p.share->gpu->index, p.rank);
    }
  }

  std::string draw(int top) {
    y_ = top;
    std::set<int> nodes;
    for (const place::Core& c : machine_.cores) nodes.insert(c.node);
    for (const place::Gpu& g : machine_.gpus) nodes.insert(g.node);
    for (const int node : nodes) draw_node(node);
    draw_ways();
    return std::move(out_);
  }
  int bottom() const { return y_; }

 private:
  void draw_node(int node) {
    out_ += words_at(margin * 2, y_ + 14, node < 0 ? "node not known" : "NUMA node " + number(node));
    y_ += line + gap;
    int column = 0;
    for (const place::Core& c : machine_.cores) {
      if (c.node != node) continue;
      const auto owner = rank_of_cpu_.find(c.cpus[0]);
      const int rank = owner == rank_of_cpu_.end() ? -1 : owner->second;
      place_box(column, 1, colour_of(rank), rank < 0 ? "" : number(rank),
                "CPUs " + ranges(c.cpus) + (rank < 0 ? ", free" : ", rank " + number(rank)));
    }
    if (column) y_ += cell + gap;
    column = 0;
    for (const place::Gpu& g : machine_.gpus) {
      if (g.node != node) continue;
      const auto owner = rank_of_gpu_.find(g.index);
      const int rank = owner == rank_of_gpu_.end() ? -1 : owner->second;
      place_box(column, 4, colour_of(rank), "GPU " + number(g.index) + (rank < 0 ? "" : " → " + number(rank)),
                (g.pci.empty() ? g.uuid : g.pci) + " " + g.name);
    }
    for (const place::Nic& n : machine_.nics)
      if (n.node == node) place_box(column, 4, "#ffffff", n.name, "network card " + n.name);
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
    y_ += line + gap;
    for (const place::Gpu& from : machine_.gpus) {
      if (!any) break;
      int x = margin * 2;
      for (const place::Gpu& to : machine_.gpus) {
        const std::string way = &from == &to ? number(from.index) : place::way_between(machine_, from, to);
        const std::string story = &from == &to ? "GPU " + way
                                               : "GPU " + number(from.index) + " and GPU " + number(to.index) + ": " +
                                                     place::way_in_words(way);
        out_ += box(x, y_, cell, &from == &to ? "#ffffff" : colour_of_way(way), way, story, 8);
        x += cell + gap;
      }
      y_ += cell + gap;
    }
    y_ += gap;
  }

  void place_box(int& column, int cells, const std::string& fill, const std::string& word, const std::string& story) {
    if (column + cells > per_row) column = 0, y_ += cell + gap;
    out_ += box(margin * 2 + column * (cell + gap), y_, cells * cell + (cells - 1) * gap, fill, word, story);
    column += cells;
  }

  const place::Machine& machine_;
  std::map<int, int> rank_of_cpu_, rank_of_gpu_;
  std::string out_;
  int y_ = 0;
};

}  // namespace

std::string map_svg(const Plan& plan, const Machines& machines) {
  const int width = margin * 4 + per_row * (cell + gap);
  std::string body;
  int y = margin;
  for (std::size_t h = 0; h < plan.hosts.size(); ++h) {
    const std::string what = machines[h] ? machine_text(*machines[h]) : "not looked at; it decides by itself";
    const int top = y;
    std::string inside = words_at(margin * 2, top + line + 2, plan.hosts[h].name, " font-weight=\"bold\"") +
                         words_at(margin * 2, top + 2 * line, count_of(plan.hosts[h].ranks, "rank") + "; " + what);
    int bottom = top + 2 * line + margin;
    if (machines[h]) {
      HostPicture picture(plan, static_cast<int>(h), *machines[h]);
      inside += picture.draw(bottom);
      bottom = picture.bottom();
    }
    body += "<rect x=\"" + number(margin) + "\" y=\"" + number(top) + "\" width=\"" + number(width - 2 * margin) +
            "\" height=\"" + number(bottom - top) + "\" rx=\"6\" fill=\"#fafafa\" stroke=\"#888888\"/>\n" + inside;
    y = bottom + margin;
  }
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(width) + "\" height=\"" + number(y) +
         "\" font-family=\"sans-serif\" font-size=\"13\">\n" + body + "</svg>\n";
}

}  // namespace hvd::launcher
