# What the steps of scripts/setup are made of (POSIX sh, sourced; the working folder is the checkout).

log=.cache/setup.log
started=$(date +%s)

# One line for the reader: the step, and what it finds or does.
step() { printf '[%3ds] %-9s %s\n' $(($(date +%s) - started)) "$1" "$2"; }

fail() {
  echo "setup: $*" >&2
  exit 1
}

# Runs a command under a time limit, its output in the log; on failure shows the end of that and stops.
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
  [ $status -ne 124 ] || fail "no end within $limit seconds: $*"
  fail "exit code $status from: $* (all of its output: $log)"
}

# An environment of the tests' own at .cache/NAME with some packages; `behind`: what it lacks (torch, scikit-learn) it
# takes from .venv, `alone`: it does not.  Where it cannot be had, the tests that need it are skipped, and say so.
# What is to be installed is installed in the background: the script waits for all of it at its end.
test_environment() { # NAME behind|alone REQUIREMENTS [WITHOUT-DEPENDENCIES]
  wanted="$3${4:+ $4}"
  if [ "$(cat .cache/$1/made-with 2>/dev/null)" = "$wanted" ]; then
    step $1 "$(shorten $wanted) there, for the tests"
  elif [ "$(cat .cache/$1.absent 2>/dev/null)" = "$wanted" ]; then
    step $1 "could not be installed before; its tests are skipped (rm .cache/$1.absent to try again)"
  else
    step $1 "installing $(shorten $wanted) into .cache/$1, for the tests, meanwhile"
    make_environment "$@" &
  fi
}

make_environment() {
  into=.cache/$1
  rm -rf $into
  set -f
  if { timeout 120 "$python" -m venv $into && install_into $into $3 &&
    { [ -z "${4:-}" ] || install_into $into --no-deps $4; }; } >.cache/$1.log 2>&1 </dev/null; then
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

# More packages in an environment that test_environment made; tests that lack them are skipped.
extend_environment() { # NAME REQUIREMENTS
  if [ ! -x .cache/$1/bin/python ] || [ "$(cat .cache/$1/extended-with 2>/dev/null)" = "$2" ]; then
    return 0
  fi
  step $1 "installing $(shorten $2) into .cache/$1, for the long form of the tests"
  set -f
  if install_into .cache/$1 $2 >.cache/$1-more.log 2>&1 </dev/null; then
    echo "$2" >.cache/$1/extended-with
  else
    step $1 "$(shorten $2) cannot be installed here: tests are skipped (.cache/$1-more.log says why)"
  fi
  set +f
}

install_into() {
  at=$1
  shift
  timeout --kill-after=20 900 $at/bin/pip install --disable-pip-version-check --progress-bar off "$@"
}

# A list file without its comments. "a|b" is b where a is not to be had.
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
  [ "$(id -u)" -eq 0 ] || ! command -v sudo >/dev/null || sudo -v
  apt="DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3"
  quietly_as_root 600 $apt update
  chosen=
  for name in "$@"; do
    pick=
    for choice in $(echo "$name" | tr '|' ' '); do
      if [ -z "$pick" ] && [ -n "$(apt-cache --quiet=2 madison "$choice" 2>/dev/null)" ]; then pick=$choice; fi
    done
    case $name in
    *'|') [ -n "$pick" ] || echo "setup: no package $name here; the tests that need it are skipped" >&2 ;;
    *) [ -n "$pick" ] || fail "apt knows no package $name (scripts/packages.txt); is this Debian 12, Ubuntu 22.04 or newer?" ;;
    esac
    chosen="$chosen $pick"
  done
  quietly_as_root 1800 $apt install --no-install-recommends $chosen
}

# As quietly, but as root.
quietly_as_root() {
  limit=$1
  shift
  if [ "$(id -u)" -eq 0 ]; then
    quietly "$limit" env "$@"
  elif command -v sudo >/dev/null; then
    quietly "$limit" sudo -n env "$@"
  else
    fail "installing packages needs root or sudo; as root: apt-get install$missing"
  fi
}

# The first few words of a long list.
shorten() {
  if [ $# -le 5 ]; then echo "$*"; else echo "$1, $2, $3 and $(($# - 3)) more Python packages"; fi
}

# A hash of all that goes into the wheel, and of what it was built with.
source_state() {
  {
    find include src runtime launcher tools man pyproject.toml meson.build meson_options.txt scripts/lib/hvd_backend.py \
      -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum
    c++ --version 2>&1 | head -n 1
    .venv/bin/python --version
  } | sha256sum | cut -c1-64
}
