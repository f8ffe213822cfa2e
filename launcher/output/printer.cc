#include "launcher/output/printer.h"

#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/files/own_file.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

// Colours that show on dark and light backgrounds; red is left for errors.
constexpr const char* colours[] = {"36", "32", "35", "33", "34", "96", "92", "95", "93", "94"};

constexpr const char* indent = "        ";  // of a line that belongs to the line above

std::string time_of_day() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm local{};
  ::localtime_r(&now.tv_sec, &local);
  char text[32];
  const std::size_t n = std::strftime(text, sizeof text, "%H:%M:%S", &local);
  std::snprintf(text + n, sizeof text - n, ".%03ld ", now.tv_nsec / 1000000);
  return text;
}

[[noreturn]] void refuse(const Error& e) {
  throw Error(e.code, "", e.what(), e.hint.empty() ? "give --output-filename a folder that can be written" : e.hint);
}

/// Opens the rank's files.  Only their owner can read them, and folders that are made for them.
Fd create(const std::filesystem::path& folder, const char* name) {
  try {
    make_own_folder(folder);
    return open_own_file(folder / name, WriteMode::truncate, 0600);
  } catch (const Error& e) { refuse(e); }
}

bool one_terminal(const Outlet& a, const Outlet& b) {
  struct stat first, second;
  return a.is_terminal() && b.is_terminal() && ::fstat(a.fd(), &first) == 0 && ::fstat(b.fd(), &second) == 0 &&
         first.st_rdev == second.st_rdev;
}

LiveArea::TerminalSize size_of_terminal(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return {};
  return {size.ws_row, size.ws_col};
}

}  // namespace

std::string tag_of(int rank, const std::string& host, bool colour) {
  const std::string tag = formatted("[{} {}]", rank, host);
  if (!colour) return tag + " ";
  return std::string("\x1b[") + colours[static_cast<std::size_t>(rank) % std::size(colours)] + "m" + tag + "\x1b[0m ";
}

std::string spoken(const Error& e) {
  std::string what = e.what();
  if (what.starts_with(e.where)) what.replace(0, e.where.size(), printable(e.where));
  std::string out;
  const auto add = [&out](const std::string& line) {
    out += (out.empty() ? "hvdrun: " : line.starts_with(indent) ? "" : indent) + printable(line) + "\n";
  };
  for (const std::string& line : split(what, '\n')) add(line);
  if (!e.hint.empty())
    for (const std::string& line : split(e.hint, '\n')) add(line);
  return out;
}

Printer::Printer(PrinterOptions options)
    : options_(std::move(options)), outlets_{Outlet(1), Outlet(2)}, ranks_(options_.hosts.size()) {
  for (std::string& host : options_.hosts) host = printable(host);
  last_line_.resize(ranks_.size());
  if (ranks_.size() > 1 && options_.collapse.value_or(outlets_[out].is_terminal()))
    collapser_.emplace(static_cast<int>(ranks_.size()));
  if (options_.may_redraw && one_terminal(outlets_[out], outlets_[err])) {
    live_.emplace([this](std::string_view bytes) { outlets_[err].put(bytes); },
                  [this] { return size_of_terminal(outlets_[err].fd()); });
    live_->set_reader(options_.reader);
    for (auto& rank : ranks_)
      for (RankStream& stream : rank) stream.lines.draw_in_place();
  }
  take_ = [this](const std::vector<int>& ranks, int stream, const std::string& line) {
    const OutputStream s = stream == err ? err : out;
    print(s, tag_of_ranks(ranks, s), line);
  };
  if (!options_.folder.empty()) {
    std::vector<std::string> names;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) names.push_back(folder_name(rank));
    try {
      folder_.emplace(options_.folder, names);
    } catch (const Error& e) { refuse(e); }
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) open_rank(rank);
}

/// "rank.07" of up to 100 ranks.
std::string Printer::folder_name(std::size_t rank) const {
  const std::size_t digits = std::to_string(ranks_.size() - 1).size();
  std::string number = std::to_string(rank);
  number.insert(0, digits - number.size(), '0');
  return "rank." + number;
}

/// Makes the rank's tags and files.
void Printer::open_rank(std::size_t rank) {
  for (const OutputStream s : {out, err})
    ranks_[rank][s].tag =
        tag_of(static_cast<int>(rank), options_.hosts[rank], options_.may_colour && outlets_[s].is_terminal());
  if (!folder_) return;
  folder_->add(folder_name(rank));
  const std::filesystem::path folder = std::filesystem::path(options_.folder) / folder_name(rank);
  ranks_[rank][out].file = create(folder, "stdout");
  ranks_[rank][err].file = create(folder, "stderr");
}

void Printer::add_rank(const std::string& host) {
  options_.hosts.push_back(printable(host));
  ranks_.emplace_back();
  last_line_.push_back(lines_);
  if (live_)
    for (RankStream& stream : ranks_.back()) stream.lines.draw_in_place();
  try {
    open_rank(ranks_.size() - 1);
  } catch (const Error& e) { file_fails(e.what()); }
}

void Printer::close_files(int rank) {
  for (const OutputStream stream : {out, err}) at(rank, stream).file.reset();
}

void Printer::file_fails(const std::string& why) {
  if (!std::exchange(file_failed_, true)) say(formatted("hvdrun: {}; the ranks' files are not complete", why));
}

void Printer::print(OutputStream stream, const std::string& tag, std::string_view line) {
  if (live_) live_->erase();
  Outlet& to = outlets_[live_ ? err : stream];  // on one terminal a single queue keeps the order
  if (options_.timestamps) to.put(time_of_day());
  to.put(tag);
  to.put(line);
  to.put("\n");
}

void Printer::to_file(int rank, OutputStream stream, std::string_view bytes) {
  const Fd& file = at(rank, stream).file;
  if (file && !write_all(file.get(), bytes)) file_fails(options_.folder + ": " + errno_text(errno));
}

void Printer::rank_bytes(int rank, OutputStream stream, std::string_view bytes) {
  to_file(rank, stream, bytes);
  RankStream& s = at(rank, stream);
  s.lines.add(bytes, Lines::Clock::now(), [&](std::string_view line) { rank_line(rank, stream, line); });
  if (s.lines.was_cut() && !std::exchange(cut_told_, true))
    say(
        formatted("hvdrun: a line of rank {} is longer than {} KiB and shown in pieces (the files of --output-filename "
                  "have it whole)",
                  rank, Lines::most_line_bytes >> 10));
}

void Printer::rank_line(int rank, OutputStream stream, std::string_view line) {
  last_line_[static_cast<std::size_t>(rank)] = ++lines_;
  if (collapser_)
    collapser_->add(rank, stream, line, Collapser::Clock::now(), take_);
  else
    print(stream, at(rank, stream).tag, line);
}

std::string Printer::tag_of_ranks(const std::vector<int>& ranks, OutputStream stream) const {
  if (ranks.size() == 1) return ranks_[static_cast<std::size_t>(ranks[0])][stream].tag;
  std::string tag = "[" + ranges(ranks);
  const std::string& host = options_.hosts[static_cast<std::size_t>(ranks[0])];
  bool one_host = true;
  for (const int rank : ranks) one_host = one_host && options_.hosts[static_cast<std::size_t>(rank)] == host;
  tag += one_host ? " " + host + "]" : "]";
  const bool colour = options_.may_colour && outlets_[stream].is_terminal();
  return colour ? "\x1b[1m" + tag + "\x1b[0m " : tag + " ";
}

void Printer::turn() {
  if (live_) draw_unended();
  if (collapser_ && !collapser_->empty()) collapser_->flush(Collapser::Clock::now(), false, take_);
}

void Printer::draw_unended() {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankStream& shown = ranks_[rank][ranks_[rank][err].lines.unended().empty() ? out : err];
    live_->set(static_cast<int>(rank), shown.tag, shown.lines.unended());
  }
  live_->draw(LiveArea::Clock::now());
}

void Printer::rank_ended(int rank) {
  for (const OutputStream stream : {out, err}) {
    RankStream& s = at(rank, stream);
    s.lines.end([&](std::string_view line) { rank_line(rank, stream, line); });
  }
}

void Printer::rank_text(int rank, std::string_view text, bool also_to_file) {
  if (collapser_) collapser_->flush({}, true, take_);
  if (also_to_file) to_file(rank, err, text);
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  for (const std::string& line : split(text, '\n')) print(err, at(rank, err).tag, printable(line));
}

void Printer::say(std::string_view line) {
  if (collapser_) collapser_->flush({}, true, take_);
  if (live_) live_->erase();
  outlets_[err].put(printable(line));
  outlets_[err].put("\n");
}

void Printer::flush_all(int limit_ms) {
  if (collapser_) collapser_->flush({}, true, take_);
  if (live_) live_->erase();
  for (Outlet& o : outlets_) o.flush_all(limit_ms);
}

}  // namespace hvd::launcher
