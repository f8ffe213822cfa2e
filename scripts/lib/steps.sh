# Functions for the steps of scripts/setup (POSIX sh, sourced; the working folder is the checkout).

log=.cache/setup.log
started=$(date +%s)

# Prints one line: the step, and its state or action.
step() { printf '[%3ds] %-9s %s\n' $(($(date +%s) - started)) "$1" "$2"; }

fail() {
  echo "setup: $*" >&2
  exit 1
}

# Runs a command under a time limit, with its output in the log; after a failure shows the end of the log and stops.
quietly() {
  limit=$1
  shift
  mkdir -p .cache
  echo "== $*" >>$log
  status=0
  timeout --kill-after=20 "$limit" "$@" >.cache/step.log 2>&1 </dev/null || status=$?
  cat .cache/step.log >>$log
  [ $status -eq 0 ] && return 0
  tail -n 30 .cache/step.log >&2
  [ $status -ne 124 ] ||
    fail "stopped after $limit seconds: $* (run this again: it goes on where it was; all of its output: $log)"
  fail "exit code $status from: $* (all of its output: $log)"
}

# Like quietly, for commands that run ninja: prints the progress every ten seconds.
showing_progress() {
  shown_by=$$
  (
    while sleep 10 >/dev/null 2>&1 && kill -0 $shown_by 2>/dev/null; do
      done_of=$(tr '\r' '\n' <.cache/step.log 2>/dev/null | grep -o '^ *\[[0-9]*/[0-9]*\]' | tail -n 1)
      [ -z "$done_of" ] || step "" "$(echo $done_of | tr -d '[]' | sed 's|/| of |') files built"
    done
  ) &
  progress=$!
  quietly "$@"
  kill $progress 2>/dev/null || true
}

# Makes an environment for the tests at .cache/NAME with the packages of scripts/requirements/NAME.txt.  `behind`: it takes
# missing packages (torch, scikit-learn) from .venv; `alone`: it does not.  INSTEAD replaces the packages of NAME.in that it
# names differently.  If the environment cannot be made, the tests that need it are skipped with a message.  Packages are
# installed in the background; the script waits for them at its end.
test_environment() { # NAME behind|alone [INSTEAD]
  wanted=$(cat scripts/requirements/$1.txt $(more_of $1) | sha256sum | cut -c1-64)${3:+ $3}
  if [ "$(cat .cache/$1/made-with 2>/dev/null)" = "$wanted" ]; then
    step $1 ".cache/$1 there, for the tests"
  elif [ "$(cat .cache/$1.absent 2>/dev/null)" = "$wanted" ]; then
    step $1 "could not be installed before; its tests are skipped (rm .cache/$1.absent to try again)"
  else
    step $1 "installing $(direct scripts/requirements/$1.in) into .cache/$1, for the tests, meanwhile"
    make_environment "$@" &
  fi
}

make_environment() {
  into=.cache/$1
  rm -rf $into
  set -f
  if { timeout 120 "$python" -m venv $into && fill_environment "$@"; } >.cache/$1.log 2>&1 </dev/null; then
    [ $2 = alone ] || $into/bin/python -c 'import site, sys
print(sys.argv[1], file=open(site.getsitepackages()[0] + "/behind.pth", "w"))' \
      "$(.venv/bin/python -c 'import site; print(site.getsitepackages()[0])')"
    echo "$wanted" >$into/made-with
    step $1 "there, for the tests"
  else
    step $1 "cannot be installed here: its tests are skipped (.cache/$1.log says why)"
    rm -rf $into
    echo "$wanted" >.cache/$1.absent
  fi
}

fill_environment() {
  if [ -n "${3:-}" ]; then
    pip_into $into 900 "$3" $(sed 's/#.*//' scripts/requirements/$1.in | grep -v "^${3%%[<>=-]*}") || return
  else
    pip_into $into 900 --no-deps --require-hashes -r scripts/requirements/$1.txt || return # it lists all of them
  fi
  for more in $(more_of $1); do pip_into $into 900 --no-deps --require-hashes -r $more || return; done
}

# Installs further packages into an environment, without their dependencies.
more_of() {
  case $1 in
  classic) echo scripts/requirements/petastorm.txt ;;
  spark) echo scripts/requirements/lightning.txt ;;
  tensorflow) echo scripts/requirements/keras2.txt ;;
  esac
}

# Adds packages to an environment that test_environment made; tests that lack them are skipped.
extend_environment() { # NAME
  list=scripts/requirements/$1-nightly.txt
  if [ ! -x .cache/$1/bin/python ] || cmp -s $list .cache/$1/extended-with; then
    return 0
  fi
  step $1 "installing $(direct scripts/requirements/$1-nightly.in) into .cache/$1, for the long form of the tests"
  if pip_into .cache/$1 900 --require-hashes -r $list >.cache/$1-more.log 2>&1 </dev/null; then
    cp $list .cache/$1/extended-with
  else
    step $1 "they cannot be installed here: tests are skipped (.cache/$1-more.log says why)"
  fi
}

# pip in an environment, under a limit in seconds.
pip_into() { # ENVIRONMENT LIMIT ARGUMENT…
  at=$1 limit=$2
  shift 2
  timeout --kill-after=20 "$limit" $at/bin/pip install --disable-pip-version-check --progress-bar off "$@"
}

install_into() {  # like pip_into; the set-up fails if it fails
  at=$1 limit=$2
  shift 2
  quietly "$limit" $at/bin/pip install --disable-pip-version-check --progress-bar off "$@"
}

# Prints the name of a copy of a file of requirements without one package, and without CUDA's packages, which come with it.
without() { # NAME FILE
  awk -v name="$1==" '/^[a-z]/ { skip = index($0, name) == 1 || /^(nvidia|cuda|triton)/ } !skip' $2 >.cache/requirements.txt
  echo .cache/requirements.txt
}

# The names in a list, shortened.
direct() { shorten $(sed 's/#.*//; /^-/d' $1); }

# A list file without its comments. "a|b" is b if a is not available.
package_list() { sed 's/#.*//' "$1" | tr -s ' \n' ' '; }

missing_packages() {
  there=" $(dpkg-query -W -f '${Package}:${db:Status-Status} ' $(echo "$*" | tr '|' ' ') 2>/dev/null || true) "
  for name in "$@"; do
    found=
    for choice in $(echo "$name" | tr '|' ' '); do
      case $there in *" $choice:installed "*) found=yes ;; esac
    done
    [ -n "$found" ] || printf '%s ' "$name"
  done
}

install_packages() {
  command -v apt-get >/dev/null ||
    fail "this is not Debian or Ubuntu; install what scripts/packages.txt lists, then run this again"
  if [ "$(id -u)" -eq 0 ]; then
    as_root=
  elif command -v sudo >/dev/null; then
    sudo -v
    as_root="sudo -n"
  else
    fail "installing packages needs root or sudo. As root, run:
  apt-get update && apt-get install --no-install-recommends $(choose_packages "$@")"
  fi
  apt="env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3"
  quietly 600 $as_root $apt update
  chosen=$(choose_packages "$@") || exit 1
  quietly 1800 $as_root $apt install --no-install-recommends $chosen
}

# Prints one package for each argument "a|b": the first that apt knows. "a|" prints nothing if apt does not know a. Without
# apt's lists, prints the first name.
choose_packages() {
  apt_knows() { [ -n "$(apt-cache --quiet=2 madison "$1" 2>/dev/null)" ]; }
  chosen=
  for name in "$@"; do
    pick=
    for choice in $(echo "$name" | tr '|' ' '); do
      if [ -z "$pick" ] && { apt_knows "$choice" || ! apt_knows ca-certificates; }; then pick=$choice; fi
    done
    case $name in
    *'|') [ -n "$pick" ] || echo "setup: no package ${name%|} here; the tests that need it are skipped" >&2 ;;
    *) [ -n "$pick" ] || fail "apt knows no package $name (scripts/packages.txt); is this Debian 12, Ubuntu 22.04 or newer?" ;;
    esac
    chosen="$chosen${pick:+ $pick}"
  done
  echo $chosen
}

# The first few words of a long list.
shorten() {
  if [ $# -le 5 ]; then echo "$*"; else echo "$1, $2, $3 and $(($# - 3)) more"; fi
}

# A hash of all contents of the wheel, and of its build tools.
source_state() {
  {
    find include src runtime launcher tools man pyproject.toml meson.build meson_options.txt LICENSE THIRD-PARTY-NOTICES \
      scripts/lib/hvd_backend.py scripts/lib/sbom.py \
      -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum
    c++ --version 2>&1 | head -n 1
    .venv/bin/python --version
  } | sha256sum | cut -c1-64
}
