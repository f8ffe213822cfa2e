/// @file streams.h — a job's streams: output to the terminal, --stdin to one rank, --results to a program.
#pragma once
#include <poll.h>

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "launcher/control/rank_input.h"
#include "launcher/control/result_stream.h"
#include "launcher/control/session.h"
#include "launcher/options/settings.h"
#include "launcher/output/printer.h"

namespace hvd::launcher {

/// Thread: the event loop's.
class Streams {
 public:
  /// Opens --results.  Throws Error{unavailable}.
  Streams(const Settings& settings, Printer& printer);
  /// Writes the number of ranks to the results.  With --stdin, sends pieces of the input to its rank, once the rank
  /// runs.
  void begin(const Settings& settings, Session& session);

  bool collects_results() const { return results_ != nullptr; }
  const Results* results() const { return results_.get(); }

  // Events:
  void rank_started(int rank);
  void rank_ended(int rank) { input_taken(rank, UINT64_MAX); }
  void rank_wrote(int rank, int stream, std::string_view bytes) {
    printer_.rank_bytes(rank, stream == 2 ? Printer::err : Printer::out, bytes);
  }
  void input_taken(int rank, std::uint64_t bytes);
  void result_came(int rank, std::string_view piece);

  void add_fds(std::vector<pollfd>& fds) const;
  /// Reads hvdrun's input for the rank, and prints lines whose time has come.
  void turn();
  /// Writes what can be written without waiting.
  void flush();
  /// True when no output, result or held line waits.
  bool is_quiet() const { return printer_.pending_bytes() == 0 && pending_results() == 0 && printer_.is_quiet(); }
  /// Output or results have piled up: guards, and so ranks, have to wait for the reader.
  bool is_full() const;
  /// errno of standard output's failure; 0: none.
  int write_error() { return printer_.stdout_outlet().closed_by(); }
  /// Writes the end of the results, for as long as somebody reads.
  void finish_results(const std::optional<wire::DeathRecord>& first_cause, const std::string& verdict, int exit_code);

 private:
  std::size_t pending_results() const { return results_ ? results_->pending_bytes() : 0; }

  Printer& printer_;
  std::unique_ptr<Results> results_;  ///< --results
  std::unique_ptr<Input> input_;      ///< --stdin
};

}  // namespace hvd::launcher
