/// @file printer.h — prints the ranks' output: whole lines, each with [rank host] in front.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "launcher/output/collapse.h"
#include "launcher/output/lines.h"
#include "launcher/output/live_area.h"
#include "launcher/output/outlet.h"
#include "launcher/output/output_folder.h"

namespace hvd::launcher {

struct PrinterOptions {
  std::vector<std::string> hosts;  ///< [np], by rank
  std::string folder;              ///< --output-filename; empty: none
  bool timestamps = false;
  std::optional<bool> collapse;  ///< nothing: only where stdout is a terminal
  bool may_colour = true;        ///< false for NO_COLOR and TERM=dumb; a pipe never gets an escape byte anyway
  bool may_redraw = true;        ///< false for TERM=dumb
  int reader = -1;               ///< the rank that reads the keyboard (--stdin)
  bool verbose = false;
};

/// "[3 beta]", with the escapes of its colour when @p colour.  Pure.
std::string tag_of(int rank, const std::string& host, bool colour);

/// An error as hvdrun's last lines: "hvdrun: " and the error, then its other lines and the hint, indented.  Other
/// programs' text in the error is escaped, so that it cannot begin a new line.  Pure.
std::string spoken(const Error& error);

/// Thread: the event loop's.
class Printer {
 public:
  enum OutputStream { out = 0, err = 1 };

  /// Creates the ranks' files, and removes those of an earlier job (OutputFolder).  Throws Error{unavailable} that
  /// names the folder.
  explicit Printer(PrinterOptions options);

  /// Adds a rank with the next number.  If the rank's files cannot be made, prints a message, and the rank has no
  /// files.
  void add_rank(const std::string& host);
  void rank_bytes(int rank, OutputStream stream, std::string_view bytes);
  /// One turn of the event loop: prints lines that were held for collapsing, draws unended lines on a terminal.
  void turn();
  /// True if no line waits for a later turn().
  bool is_quiet() const { return !(live_ && live_->has_changed()) && !(collapser_ && !collapser_->empty()); }
  /// The number of lines of other ranks that were printed after the last line of @p rank.
  long long lines_since(int rank) const { return lines_ - last_line_[static_cast<std::size_t>(rank)]; }
  /// Both streams of the rank have ended.
  void rank_ended(int rank);
  /// No more text will come for the rank's files.
  void close_files(int rank);
  /// Prints @p text of a rank to stderr at once, each line tagged and escaped.  With @p to_file, also writes it to the
  /// rank's file.
  void rank_text(int rank, std::string_view text, bool to_file);
  /// Writes @p text to the rank's stderr file only.
  void rank_file(int rank, std::string_view text) { to_file(rank, err, text); }
  /// Prints a line of hvdrun's own to stderr.  Control characters are escaped, so that other programs' text in the line
  /// cannot begin a new one.
  void say(std::string_view line);
  /// Like say(), after "hvdrun: ", and only with --verbose.
  void detail(std::string_view line) {
    if (options_.verbose) say("hvdrun: " + std::string(line));
  }
  bool is_verbose() const { return options_.verbose; }
  /// The user has typed a line at the keyboard.
  void line_was_typed() {
    if (live_) live_->line_was_typed();
  }

  Outlet& stdout_outlet() { return outlets_[out]; }
  Outlet& stderr_outlet() { return outlets_[err]; }
  std::size_t pending_bytes() const { return outlets_[out].pending_bytes() + outlets_[err].pending_bytes(); }
  void flush_all(int limit_ms);

 private:
  void rank_line(int rank, OutputStream stream, std::string_view line);
  std::string tag_of_ranks(const std::vector<int>& ranks, OutputStream stream) const;
  struct RankStream {
    Lines lines;
    Fd file;
    std::string tag;
  };

  void open_rank(std::size_t rank);
  std::string folder_name(std::size_t rank) const;
  void draw_unended();
  void print(OutputStream stream, const std::string& tag, std::string_view line);
  void to_file(int rank, OutputStream stream, std::string_view bytes);
  void file_fails(const std::string& why);
  RankStream& at(int rank, OutputStream stream) { return ranks_[static_cast<std::size_t>(rank)][stream]; }

  PrinterOptions options_;
  std::array<Outlet, 2> outlets_;
  std::optional<OutputFolder> folder_;  ///< only with --output-filename
  std::vector<std::array<RankStream, 2>> ranks_;
  bool file_failed_ = false, cut_told_ = false;
  std::optional<LiveArea> live_;  ///< only where both outlets are the same terminal
  std::optional<Collapser> collapser_;
  Collapser::Take take_;
  long long lines_ = 0;
  std::vector<long long> last_line_;
};

}  // namespace hvd::launcher
