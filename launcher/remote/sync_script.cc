#include "launcher/remote/sync_script.h"

#include <set>

#include "base/format.h"
#include "base/text.h"
#include "launcher/remote/preflight.h"

namespace hvd::launcher {

namespace {

/// Sets hvd_u (the user), hvd_above and hvd_name (of the folder hvd_d).  Ends at a link of another user.
/// hvd_trust() sets variables with short names.
constexpr const char* look_at_path = R"sh(LC_ALL=C; export LC_ALL; unset TAR_OPTIONS CDPATH; set -f
hvd_u=$(id -u)
hvd_owner() { set -- $(ls -nd -- "$1"); echo "$3"; }
hvd_above=${hvd_d%/*}; hvd_name=${hvd_d##*/}; hvd_at=$hvd_above
while [ -n "$hvd_at" ]; do
  if [ -L "$hvd_at" ]; then
    case $(hvd_owner "$hvd_at") in 0 | "$hvd_u") ;; *) hvd_fail "has a link of another user: $hvd_at" 'remove it there, or use another folder' ;; esac
  fi
  hvd_at=${hvd_at%/*}
done
hvd_at=$hvd_above; while [ -n "$hvd_at" ] && [ ! -e "$hvd_at" ]; do hvd_at=${hvd_at%/*}; done
[ -z "$hvd_at" ] || hvd_trust "$hvd_at"
[ -z "$hvd_above" ] || mkdir -p -- "$hvd_above" || hvd_fail "cannot make $hvd_above" 'make it there, or use another folder'
cd -P -- "${hvd_above:-/}" || hvd_fail "cannot enter $hvd_above" 'look at its modes there'
hvd_real=$(readlink -f .)
[ ! -L "./$hvd_name" ] || hvd_fail "has a symbolic link in place of $hvd_d" 'remove it there, or use another folder'
)sh";

/// Makes the folder if there is none, enters it, and checks that it is ours.
constexpr const char* enter_folder = R"sh(made=
[ -e "./$hvd_name" ] || { mkdir -m $hvd_mode -- "./$hvd_name" && made=1; } || hvd_fail "cannot make $hvd_d" 'look at the modes and the room there'
cd -P -- "./$hvd_name" || hvd_fail "cannot enter $hvd_d" 'look at its modes there'
[ "$(readlink -f .)" = "${hvd_real%/}/$hvd_name" ] || hvd_fail "has another folder in place of $hvd_d now" 'find the program that changes it'
if [ -z "$made" ] && [ "$(stat -c '%i %Z' . 2>/dev/null)" = "$hvd_identity" ]; then echo 'hvd-sync same'; exit 0; fi
[ "$(hvd_owner .)" = "$hvd_u" ] || hvd_fail "has a folder $hvd_d of another user" 'remove it there, or use another folder'
hvd_trust "$hvd_d"
hvd_mark=./.hvdrun-sync
if [ -n "$made" ]; then
  (set -C; umask 077; echo "$hvd_line" >"$hvd_mark") || hvd_fail "cannot write to $hvd_d" 'look at the room there'
fi
l=; [ -L "$hvd_mark" ] || [ ! -f "$hvd_mark" ] || [ "$(hvd_owner "$hvd_mark")" != "$hvd_u" ] || read -r l <"$hvd_mark"
[ "$l" = "$hvd_line" ] || hvd_fail "has a folder $hvd_d that hvdrun did not make" 'nothing was changed: move it away there, and hvdrun makes a new one'
f=$(find . -name .venv -prune -o ! -user "$hvd_u" -print 2>/dev/null | head -n 1)
[ -z "$f" ] || hvd_fail "has a file of another user in $hvd_d: $f" 'nothing was changed: remove it there'
command -v tar >/dev/null || hvd_fail 'has no tar' 'install it there'
echo 'hvd-sync list'; cat "$hvd_mark"; echo 'hvd-sync end'
)sh";

/// hvd_plain NAME: no folder above the name is a link.  hvd_gone NAME STAMP: removes a file that is as it was copied.
constexpr const char* functions = R"sh(hvd_plain() {
  c=$1
  while :; do case $c in */*) c=${c%/*}; [ ! -L "./$c" ] || return 1 ;; *) return 0 ;; esac; done
}
hvd_gone() {
  hvd_plain "$1" && [ "$(stat -c '%s %Y' -- "./$1" 2>/dev/null)" = "$2" ] || return 0
  if [ -L "./$1" ] || [ -f "./$1" ]; then rm -f -- "./$1"; fi
}
hvd_empty() { if hvd_plain "$1" && [ ! -L "./$1" ] && [ -d "./$1" ]; then rmdir -- "./$1" 2>/dev/null; fi; }
hvd_folder() {
  [ ! -L "./$1" ] || hvd_fail "has a symbolic link in place of the folder $hvd_d/$1" 'nothing was copied there: remove it'
}
)sh";

/// One command, which the shell reads to its end before it runs tar: the archive follows in the same stream.
constexpr const char* unpack = R"sh({
echo 'hvd-sync go'
e=$(tar -xof - 2>&1) || {
  case $e in
    *'No space left'* | *'Wrote only'*) v='its disk is full' ;;
    *) v=$(printf '%s\n' "$e" | head -n 1) ;;
  esac
  hvd_fail "cannot write the copy of $hvd_d: $v" 'look at the room and the modes there'
}
mv -f -- ./.hvdrun-sync.new "$hvd_mark" || hvd_fail "cannot write to $hvd_d" 'look at the room there'
hvd_uv=
if [ -f ./uv.lock ]; then
  hvd_uv=$(command -v uv) || { hvd_uv=$HOME/.local/bin/uv; [ -x "$hvd_uv" ] || hvd_uv=; }
fi
case $hvd_uv in /*)
  hvd_trust "$hvd_uv"
  echo 'hvd-sync uv'
  e=$("$hvd_uv" sync --frozen </dev/null 2>&1) || {
    v=$(printf '%s\n' "$e" | tail -n 1)
    hvd_fail "uv sync --frozen failed in $hvd_d: $v" 'run it there by hand'
  } ;;
esac
echo 'hvd-sync done'
exit 0
}
)sh";

}  // namespace

std::string sync_opening(const SyncSource& source) {
  std::string script = trust_script({}, source.software_owners.value_or(std::vector<uid_t>{}));
  if (!source.software_owners) script += "hvd_trust() { :; }\n";
  script += "hvd_d=" + shell_quote(source.folder) + "\nhvd_identity='" + source.identity + "'\nhvd_line='" +
            sync_mark_line + "'\nhvd_mode=";
  for (const int shift : {6, 3, 0}) script += std::to_string((source.mode >> shift) & 7);
  return script + "\n" + look_at_path + enter_folder;
}

std::string sync_unpacking(const std::vector<SyncEntry>& old_ones, const std::vector<SyncEntry>& now) {
  std::string script = functions, removals, later;
  std::set<std::string> replaced;
  for (const SyncEntry& e : old_ones) {
    replaced.insert(e.name);
    removals += e.kind == 'd' ? "hvd_empty " + shell_quote(e.name) + "\n"
                              : "hvd_gone " + shell_quote(e.name) + " " + shell_quote(e.stamp) + "\n";
  }
  for (const SyncEntry& e : now)  // a link of an earlier copy may be in place of a folder, until it is removed
    if (e.kind == 'd') (replaced.contains(e.name) ? later : script) += "hvd_folder " + shell_quote(e.name) + "\n";
  script += removals + later;
  return script + unpack;
}

}  // namespace hvd::launcher
