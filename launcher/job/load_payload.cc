#include "launcher/job/load_payload.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/files/sha256.h"
#include "base/files/trust.h"
#include "base/format.h"
#include "base/text.h"
#include "launcher/process/find_program.h"

namespace hvd::launcher {

namespace {

namespace fs = std::filesystem;
using wire::PayloadKind;

constexpr std::size_t most_pickle_bytes = std::size_t{16} << 30;
constexpr std::size_t most_payload_bytes = 64u << 20;
constexpr int newest_pickle_protocol = 5;

std::string pickle_hint() { return "write one with cloudpickle.dump(function, open(\"job.pkl\", \"wb\"))"; }

void need_file(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    throw Error(Code::usage, path, "there is no such file",
                fs::path(path).is_absolute() ? "check the path" : "looked in " + fs::current_path(error).string());
  if (status.type() == fs::file_type::directory && !fs::exists(fs::path(path) / wire::folder_program, error))
    throw Error(Code::usage, path, "is a folder, not a file to run");
  if (::access(path.c_str(), R_OK) != 0)
    throw Error(Code::usage, path, "cannot be read: " + errno_text(errno), "check its permissions: ls -l " + path);
}

/// Checks a file's first and last bytes, before gigabytes of it are read.
void check_ends(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!fd || ::fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode)) return;  // reading the file will tell the error
  const auto size = static_cast<std::uint64_t>(about.st_size);
  std::string ends(std::min<std::uint64_t>(size, 4096), '\0');
  char last = 0;
  if (::pread(fd.get(), ends.data(), ends.size(), 0) != static_cast<ssize_t>(ends.size())) return;
  if (size > ends.size() && ::pread(fd.get(), &last, 1, about.st_size - 1) == 1) ends += last;
  const PickleFault fault = pickle_fault(ends, size);
  if (!fault.what.empty()) throw Error(Code::usage, path, fault.what, fault.hint);
}

/// The way to run @p name, which is no program in PATH.
std::string hint_for_absent(const std::string& name) {
  std::error_code error;
  if (fs::is_regular_file(name, error))
    return ::access(name.c_str(), X_OK) == 0
               ? "to run the file in this folder, write ./" + name
               : "the file in this folder is not executable: put its interpreter in front, or chmod +x " + name +
                     " and write ./" + name;
  if (fs::is_regular_file(name + ".py", error)) return "did you mean " + name + ".py?";
  if (fs::is_directory(name, error))
    return std::string("the folder ") + name + " has no " + wire::folder_program + ": name the script in it";
  return "a Python script ends in .py, a pickled function in .pkl; anything else is a program";
}

void need_command(const std::string& name, const std::string& search_path) {
  if (name.ends_with(".ipynb"))
    throw Error(Code::usage, name, "is a notebook, not a program",
                "make a script of it: jupyter nbconvert --to script");
  if (name == "-")
    throw Error(Code::usage, name, "ranks do not share a program on standard input", "save the program as a file");
  if (name.find('/') == std::string::npos) {
    if (find_program(name, search_path).empty())
      throw Error(Code::usage, name, "not found in PATH", hint_for_absent(name));
    return;
  }
  need_file(name);
  if (::access(name.c_str(), X_OK) != 0)
    throw Error(Code::usage, name, "is not a program that can be executed",
                "chmod +x " + name + ", or put its interpreter in front");
}

}  // namespace

wire::Payload classify(PayloadPrefix prefix, const std::vector<std::string>& words) {
  if (words.empty() || words[0].empty()) {
    if (prefix == PayloadPrefix::module) throw Error(Code::usage, "-m", "the module's name is missing");
    throw Error(Code::usage, "", "nothing to run", "name a .pkl, a .py, -m module or a command; hvdrun --help");
  }
  wire::Payload payload;
  payload.name = words[0];
  payload.args.assign(words.begin() + 1, words.end());
  if (prefix == PayloadPrefix::module)
    payload.kind = PayloadKind::module;
  else if (prefix == PayloadPrefix::plain && payload.name.ends_with(".pkl"))
    payload.kind = PayloadKind::pickle;
  else if (prefix == PayloadPrefix::plain && (payload.name.ends_with(".py") || payload.name.ends_with(".pyz")))
    payload.kind = PayloadKind::script;
  else
    payload.kind = PayloadKind::command;
  return payload;
}

bool is_python_program(const std::string& name, const std::string& search_path) {
  const bool has_folder = name.find('/') != std::string::npos;
  if (!has_folder && !find_program(name, search_path).empty()) return false;
  std::error_code error;
  if (fs::is_directory(name, error)) return fs::exists(fs::path(name) / wire::folder_program, error);
  if (!fs::is_regular_file(name, error) || (has_folder && ::access(name.c_str(), X_OK) == 0)) return false;
  const Fd fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string begin(4096, '\0');
  const ssize_t size = fd ? ::read(fd.get(), begin.data(), begin.size()) : -1;
  if (size < 0) return false;
  begin.resize(static_cast<std::size_t>(size));
  if (name.ends_with(".zip") && begin.starts_with("PK\3\4")) return true;
  if (!begin.starts_with("#!")) return !fs::path(name).has_extension() && begin.find('\0') == std::string::npos;
  // "#!/usr/bin/env -S python3 -u", "#!/usr/bin/python3"
  const std::vector<std::string> words = split(begin.substr(2, begin.find('\n') - 2), ' ');
  return std::ranges::any_of(words, [](const std::string& word) { return wire::is_python(trim(word)); });
}

PickleFault pickle_fault(const std::string& bytes, std::uint64_t size) {
  if (bytes.empty()) return {"is empty", pickle_hint()};
  const auto first = static_cast<unsigned char>(bytes[0]);
  if (first == 0x80) {
    const int protocol = bytes.size() > 1 ? static_cast<unsigned char>(bytes[1]) : 0;
    if (protocol > newest_pickle_protocol)
      return {formatted("uses pickle protocol {}, which this version does not know", protocol),
              "write it with protocol=5"};
    if (bytes.back() != '.') return {"is cut off: a pickle ends with a full stop", "copy or write it again"};
    // From protocol 4 on a pickle consists of frames: opcode, u64 length, as many bytes.
    constexpr std::size_t frame_at = 2, frame_header_bytes = 9;
    if (protocol >= 4 && bytes.size() > frame_at + frame_header_bytes && bytes[frame_at] == '\x95') {
      std::uint64_t frame = 0;
      std::memcpy(&frame, bytes.data() + frame_at + 1, sizeof frame);
      if (frame > size - frame_at - frame_header_bytes)
        return {"is damaged: its first frame is longer than the file", "copy or write it again"};
    } else if (protocol >= 4 && bytes.size() > frame_at && bytes[frame_at] == '\0') {
      return {"is not a pickle", pickle_hint()};
    }
    return {};
  }
  if (bytes.starts_with("PK\x03\x04"))
    return {"is not a pickle but a zip archive, as torch.save() writes for weights", pickle_hint()};
  if (bytes.starts_with("\x1f\x8b")) return {"is not a pickle but gzip data", "unpack it first: gunzip"};
  if (bytes.starts_with("\x7f"
                        "ELF"))
    return {"is not a pickle but a program", "start it with: hvdrun -np 2 -- ./program"};
  // Protocols 0 and 1 have no header: one of their opcodes, and the full stop at the end.
  if (std::string_view("(]})cIFLVSN").find(bytes[0]) != std::string_view::npos && bytes.back() == '.') return {};
  const bool text = bytes.find('\0') == std::string::npos && bytes.back() == '\n';
  return {"is not a pickle", text ? "if it is Python source, name it .py" : pickle_hint()};
}

LoadedPayload load_payload(wire::Payload payload, bool all_local, const std::string& search_path, bool by_anybody) {
  LoadedPayload loaded;
  if (payload.kind == PayloadKind::pickle) {
    need_file(payload.name);
    const PathCheck found = look_at(payload.name);
    if (!by_anybody) found.need_trust(payload.name);
    check_ends(payload.name);
    loaded.bytes = read_found(found, payload.name, most_pickle_bytes);
    const PickleFault fault = pickle_fault(loaded.bytes);
    if (!fault.what.empty()) throw Error(Code::usage, payload.name, fault.what, fault.hint);
    payload.sha256 = sha256_hex(loaded.bytes);
    payload.bytes = loaded.bytes.size();
  } else if (payload.kind == PayloadKind::script && all_local) {
    need_file(payload.name);
  } else if (payload.kind == PayloadKind::command && all_local) {
    need_command(payload.name, search_path);
  }
  // Each host runs its own file at this path.  The path that is right here is right on all hosts.
  if (const std::string file = wire::python_file(payload); !file.empty() && !by_anybody) {
    const PathCheck found = look_at(file);
    if (found.fd) found.need_trust(file);
    if (found.is_folder)
      look_at(fs::path(file) / wire::folder_program).need_trust(fs::path(file) / wire::folder_program);
    if (found.is_file) payload.sha256 = sha256_hex(read_found(found, file, most_payload_bytes));
  }
  loaded.wire = std::move(payload);
  return loaded;
}

std::string choose_python(const std::string& wanted, const Environment& environment, const std::string& own_folder) {
  const char* path = environment("PATH");
  const std::string search_path = path ? path : "/usr/local/bin:/usr/bin:/bin";
  if (!wanted.empty()) {
    if (wanted.find('/') == std::string::npos) {
      const std::string found = find_program(wanted, search_path);
      if (found.empty()) throw Error(Code::unavailable, "--python", wanted + " is not in PATH");
      return found;
    }
    std::error_code ignored;
    fs::path given = wanted;
    if (fs::is_directory(given, ignored)) given /= "bin/python";  // the user may name a venv's folder
    if (::access(given.c_str(), X_OK) != 0)
      throw Error(Code::unavailable, "--python", wanted + ": " + errno_text(errno));
    return fs::absolute(given);
  }
  const char* venv = environment("VIRTUAL_ENV");
  if (venv && *venv) {
    const std::string program = std::string(venv) + "/bin/python";
    if (::access(program.c_str(), X_OK) == 0) return program;
  }
  if (::access((own_folder + "/../pyvenv.cfg").c_str(), R_OK) == 0 &&
      ::access((own_folder + "/python").c_str(), X_OK) == 0)
    return own_folder + "/python";
  for (const char* name : {"python3", "python"}) {
    const std::string found = find_program(name, search_path);
    if (!found.empty()) return found;
  }
  throw Error(Code::unavailable, "python3", "not found in PATH", "apt install python3, or name one with --python PATH");
}

}  // namespace hvd::launcher
