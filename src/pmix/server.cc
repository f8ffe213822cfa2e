#include "pmix/server.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "pmix/gate.h"

namespace hvd::pmix {

namespace {

/// A random name for the server's own namespace, which no other process knows.
std::string random_name(const char* prefix) { return prefix + random_letters(26); }

/// Sets variables, and restores their earlier values in the destructor.  Only while this process has one thread.
class EnvironmentChange {
 public:
  explicit EnvironmentChange(const std::map<std::string, std::string>& set) {
    for (const auto& [name, value] : set) {
      const char* const before = environment_value(name.c_str());
      before_[name] = before ? std::optional<std::string>(before) : std::nullopt;
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~EnvironmentChange() {
    for (const auto& [name, value] : before_)
      if (value)
        ::setenv(name.c_str(), value->c_str(), 1);
      else
        ::unsetenv(name.c_str());
  }
  EnvironmentChange(const EnvironmentChange&) = delete;
  EnvironmentChange& operator=(const EnvironmentChange&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

/// A call that libpmix completes on its own thread.  The caller may have stopped waiting before that.  libpmix
/// therefore owns a std::shared_ptr of this object.
struct CallCompletion {
  explicit CallCompletion(InfoArray given) : info(std::move(given)) {}
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<pmix_status_t> status;
  InfoArray info;  ///< libpmix reads this array until it calls done()

  /// @param share  libpmix's std::shared_ptr; done() deletes it
  static void done(pmix_status_t status, void* share) {
    const std::unique_ptr<std::shared_ptr<CallCompletion>> kept(static_cast<std::shared_ptr<CallCompletion>*>(share));
    const std::lock_guard lock((*kept)->mutex);
    (*kept)->status = status;
    (*kept)->changed.notify_all();
  }
};

}  // namespace

struct Server::State {
  const PmixLibrary* library = nullptr;
  std::string nspace;  ///< the job's namespace
  std::mutex mutex;    ///< guards events, replies and last_token, which libpmix's thread uses too
  std::deque<Event> events;
  struct Reply {
    pmix_modex_cbfunc_t function = nullptr;
    void* data = nullptr;
  };
  std::map<std::uint64_t, Reply> replies;  ///< the callbacks of open fences and requests, by token
  std::uint64_t last_token = 0;
  Fd wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  void add(Event event) {
    {
      const std::lock_guard lock(mutex);
      events.push_back(std::move(event));
    }
    ::eventfd_write(wake.get(), 1);
  }
  std::uint64_t keep(pmix_modex_cbfunc_t function, void* data) {
    const std::lock_guard lock(mutex);
    replies[++last_token] = {function, data};
    return last_token;
  }
  std::optional<Reply> take(std::uint64_t token) {
    const std::lock_guard lock(mutex);
    const auto it = replies.find(token);
    if (it == replies.end()) return std::nullopt;
    const Reply reply = it->second;
    replies.erase(it);
    return reply;
  }
  // ---- callbacks on libpmix's thread, which return at once ----
  static State* current;  ///< the process's only server; libpmix's callbacks have no parameter for it
  static pmix_status_t on_connected(const pmix_proc_t* process, void*, pmix_op_cbfunc_t, void*);
  static pmix_status_t on_finalized(const pmix_proc_t*, void*, pmix_op_cbfunc_t, void*) {
    return PMIX_OPERATION_SUCCEEDED;
  }
  static pmix_status_t on_abort(const pmix_proc_t* process, void*, int status, const char* message, pmix_proc_t*,
                                std::size_t, pmix_op_cbfunc_t, void*);
  static pmix_status_t on_fence(const pmix_proc_t* processes, std::size_t count, const pmix_info_t*, std::size_t,
                                char* data, std::size_t bytes, pmix_modex_cbfunc_t reply, void* reply_data);
  static pmix_status_t on_request(const pmix_proc_t* process, const pmix_info_t*, std::size_t,
                                  pmix_modex_cbfunc_t reply, void* reply_data);
  static pmix_status_t on_spawn(const pmix_proc_t* process, const pmix_info_t*, std::size_t, const pmix_app_t*,
                                std::size_t, pmix_spawn_cbfunc_t, void*);
  static void on_published(pmix_status_t status, char* data, std::size_t bytes, void* token);

  /// Makes a call that completes on libpmix's thread, and waits for its completion.
  /// @param call  called with (info, done, share).  libpmix calls done(status, share) only if the call returns
  ///   PMIX_SUCCESS
  template <class Call>
  void finish(const char* what, InfoArray info, std::chrono::milliseconds limit, Call call) const {
    const auto completion = std::make_shared<CallCompletion>(std::move(info));
    auto share = std::make_unique<std::shared_ptr<CallCompletion>>(completion);
    pmix_status_t status = call(completion->info, CallCompletion::done, share.get());
    if (status == PMIX_SUCCESS) {
      static_cast<void>(share.release());
      std::unique_lock lock(completion->mutex);
      if (!completion->changed.wait_for(lock, limit, [&] { return completion->status.has_value(); }))
        throw Error(Code::timeout, "libpmix", std::string(what) + " did not end in time");
      status = *completion->status;
    }
    if (status != PMIX_SUCCESS && status != PMIX_OPERATION_SUCCEEDED)
      throw Error(Code::unavailable, "libpmix", std::string(what) + ": " + library->error_string(status));
  }
};

Server::State* Server::State::current = nullptr;

namespace {

pmix_status_t refuse_connect(const pmix_proc_t*, std::size_t, const pmix_info_t*, std::size_t, pmix_op_cbfunc_t,
                             void*) {
  return PMIX_ERR_NOT_SUPPORTED;
}
pmix_status_t accept_events(pmix_status_t*, std::size_t, const pmix_info_t*, std::size_t, pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}
pmix_status_t forget_events(pmix_status_t*, std::size_t, pmix_op_cbfunc_t, void*) { return PMIX_OPERATION_SUCCEEDED; }
pmix_status_t drop_event(pmix_status_t, const pmix_proc_t*, pmix_data_range_t, pmix_info_t*, std::size_t,
                         pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}
pmix_status_t refuse_query(pmix_proc_t*, pmix_query_t*, std::size_t, pmix_info_cbfunc_t, void*) {
  return PMIX_ERR_NOT_SUPPORTED;
}
/// With this function, libpmix accepts registrations of files and removes them after a client has ended.  Open MPI 5
/// registers its segments in /dev/shm.
pmix_status_t refuse_job_control(const pmix_proc_t*, const pmix_proc_t*, std::size_t, const pmix_info_t*, std::size_t,
                                 pmix_info_cbfunc_t, void*) {
  return PMIX_ERR_NOT_SUPPORTED;
}
void refuse_tool(pmix_info_t*, std::size_t, pmix_tool_connection_cbfunc_t reply, void* data) {
  pmix_proc_t nobody{};
  reply(PMIX_ERR_NOT_SUPPORTED, &nobody, data);
}

void delete_text(void* text) { delete static_cast<std::string*>(text); }

/// The data must live until libpmix calls delete_text().
void send_reply(pmix_modex_cbfunc_t function, void* function_data, std::string data, bool failed) {
  auto* const kept = new std::string(std::move(data));
  function(failed ? PMIX_ERR_UNREACH : PMIX_SUCCESS, kept->data(), kept->size(), function_data, delete_text, kept);
}

}  // namespace

pmix_status_t Server::State::on_connected(const pmix_proc_t* process, void*, pmix_op_cbfunc_t, void*) {
  current->add({.kind = Event::Kind::connected, .rank = static_cast<int>(process->rank)});
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_status_t Server::State::on_abort(const pmix_proc_t* process, void*, int status, const char* message, pmix_proc_t*,
                                      std::size_t, pmix_op_cbfunc_t, void*) {
  current->add({.kind = Event::Kind::abort,
                .rank = static_cast<int>(process->rank),
                .data = message ? message : "",
                .status = status});
  return PMIX_OPERATION_SUCCEEDED;
}

/// Copies the data, which libpmix owns (pmix_server.h).
pmix_status_t Server::State::on_fence(const pmix_proc_t* processes, std::size_t count, const pmix_info_t*, std::size_t,
                                      char* data, std::size_t bytes, pmix_modex_cbfunc_t reply, void* reply_data) {
  Event event{.kind = Event::Kind::fence};
  for (std::size_t i = 0; i < count; ++i) {
    if (current->nspace != processes[i].nspace) return PMIX_ERR_NOT_SUPPORTED;
    if (processes[i].rank != PMIX_RANK_WILDCARD) event.ranks.push_back(static_cast<int>(processes[i].rank));
  }
  std::sort(event.ranks.begin(), event.ranks.end());
  if (data) event.data.assign(data, bytes);
  event.token = current->keep(reply, reply_data);
  current->add(std::move(event));
  return PMIX_SUCCESS;
}

pmix_status_t Server::State::on_request(const pmix_proc_t* process, const pmix_info_t*, std::size_t,
                                        pmix_modex_cbfunc_t reply, void* reply_data) {
  if (current->nspace != process->nspace) return PMIX_ERR_NOT_FOUND;
  Event event{.kind = Event::Kind::request, .rank = static_cast<int>(process->rank)};
  event.token = current->keep(reply, reply_data);
  current->add(std::move(event));
  return PMIX_SUCCESS;
}

pmix_status_t Server::State::on_spawn(const pmix_proc_t* process, const pmix_info_t*, std::size_t, const pmix_app_t*,
                                      std::size_t, pmix_spawn_cbfunc_t, void*) {
  current->add({.kind = Event::Kind::spawn, .rank = static_cast<int>(process->rank)});
  return PMIX_ERR_NOT_SUPPORTED;
}

void Server::State::on_published(pmix_status_t status, char* data, std::size_t bytes, void* token) {
  Event event{.kind = Event::Kind::published, .token = reinterpret_cast<std::uintptr_t>(token)};
  if (data) event.data.assign(data, bytes);
  event.failed = status != PMIX_SUCCESS;
  current->add(std::move(event));
}

Server::Server(const PmixLibrary& library, const std::string& folder, const std::string& host, pid_t ranks_below)
    : state_(std::make_unique<State>()) {
  if (State::current) throw Error(Code::internal, "PMIx", "a process can have one server only");
  state_->library = &library;
  guard_accept(ranks_below);

  static pmix_server_module_t upcalls{};
  upcalls.client_connected = State::on_connected;
  upcalls.client_finalized = State::on_finalized;
  upcalls.abort = State::on_abort;
  upcalls.fence_nb = State::on_fence;
  upcalls.direct_modex = State::on_request;
  upcalls.spawn = State::on_spawn;
  upcalls.connect = refuse_connect;
  upcalls.disconnect = refuse_connect;
  upcalls.register_events = accept_events;
  upcalls.deregister_events = forget_events;
  upcalls.notify_event = drop_event;
  upcalls.query = refuse_query;
  upcalls.job_control = refuse_job_control;
  upcalls.tool_connected = refuse_tool;

  InfoArray info;
  info.add_text(PMIX_SERVER_TMPDIR, folder);
  info.add_text(PMIX_SYSTEM_TMPDIR, folder);
  info.add_bool(PMIX_SERVER_TOOL_SUPPORT, false);
  info.add_bool(PMIX_SERVER_SYSTEM_SUPPORT, false);
  info.add_text(PMIX_SERVER_NSPACE, random_name("server-"));
  info.add_text(PMIX_HOSTNAME, host);
  // By default hwloc loads every plugin and reads every PCI device's configuration: 110 ms instead of 4 ms.  hwloc's
  // x86 component runs on each processor in turn, and waits if another process occupies it.  The default store (gds)
  // writes 8 MB to shared files for each job.
  const EnvironmentChange quick(
      {{"HWLOC_PLUGINS_PATH", folder}, {"HWLOC_COMPONENTS", "-linuxio,-x86"}, {"PMIX_MCA_gds", "hash"}});
  State::current = state_.get();
  const pmix_status_t status = library.init(&upcalls, info.data(), info.size());
  if (status == PMIX_SUCCESS) return;
  State::current = nullptr;
  throw Error(Code::unavailable, library.path,
              std::string("its PMIx server does not start: ") + library.error_string(status));
}

Server::~Server() {
  state_->library->finalize();
  State::current = nullptr;
}

void Server::add(const PmixJob& job, std::chrono::milliseconds limit) {
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    s.nspace = job.name;
  }
  const auto num_local = static_cast<int>(job.local_ranks().size());
  s.finish("register_nspace", describe(*s.library, job), limit,
           [&](InfoArray& info, pmix_op_cbfunc_t done, void* share) {
             return s.library->register_nspace(job.name.c_str(), num_local, info.data(), info.size(), done, share);
           });
  s.finish("setup_local_support", {}, limit, [&](InfoArray&, pmix_op_cbfunc_t done, void* share) {
    return s.library->setup_local_support(job.name.c_str(), nullptr, 0, done, share);
  });
  for (const int rank : job.local_ranks())
    s.finish("register_client", {}, limit, [&](InfoArray&, pmix_op_cbfunc_t done, void* share) {
      pmix_proc_t process{};
      std::strncpy(process.nspace, job.name.c_str(), PMIX_MAX_NSLEN);
      process.rank = static_cast<pmix_rank_t>(rank);
      return s.library->register_client(&process, ::geteuid(), ::getegid(), nullptr, done, share);
    });
}

std::vector<std::string> Server::environment(int rank) const {
  pmix_proc_t process{};
  std::strncpy(process.nspace, state_->nspace.c_str(), PMIX_MAX_NSLEN);
  process.rank = static_cast<pmix_rank_t>(rank);
  char** lines = static_cast<char**>(std::calloc(1, sizeof(char*)));
  const pmix_status_t status = state_->library->setup_fork(&process, &lines);
  std::vector<std::string> out;
  for (char** line = lines; line && *line; ++line) {
    out.emplace_back(*line);
    std::free(*line);
  }
  std::free(lines);
  if (status != PMIX_SUCCESS)
    throw Error(Code::unavailable, "libpmix", std::string("setup_fork: ") + state_->library->error_string(status));
  return out;
}

int Server::fd() const { return state_->wake.get(); }

std::optional<Event> Server::next() {
  const std::lock_guard lock(state_->mutex);
  if (state_->events.empty()) {
    eventfd_t count = 0;
    ::eventfd_read(state_->wake.get(), &count);
    return std::nullopt;
  }
  Event event = std::move(state_->events.front());
  state_->events.pop_front();
  return event;
}

void Server::finish_fence(std::uint64_t token, std::string data, bool failed) {
  answer(token, std::move(data), failed);
}

void Server::answer(std::uint64_t token, std::string data, bool failed) {
  if (const auto reply = state_->take(token)) send_reply(reply->function, reply->data, std::move(data), failed);
}

void Server::ask(int rank, std::uint64_t token) {
  pmix_proc_t process{};
  std::strncpy(process.nspace, state_->nspace.c_str(), PMIX_MAX_NSLEN);
  process.rank = static_cast<pmix_rank_t>(rank);
  const pmix_status_t status =
      state_->library->dmodex_request(&process, State::on_published, reinterpret_cast<void*>(token));
  if (status != PMIX_SUCCESS) state_->add({.kind = Event::Kind::published, .token = token, .failed = true});
}

}  // namespace hvd::pmix
