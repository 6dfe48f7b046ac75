#!/usr/bin/env bash
# Sets up whatever this checkout is missing.
#
#     tools/setup.sh        for training; also repairs, and tries again what failed or was skipped
#     tools/setup.sh dev    for the tests and checks too
#
# The other tools source this file and call `ensure run` or `ensure dev` before their job.
#
# Every step leaves a stamp in .venv/.setup with the hash of what it was made from, so that a step
# is done again when its inputs change and only then, and interrupted work goes on where it was.
# When everything is there, `ensure` costs one hash and prints nothing. All messages go to stderr;
# stdout belongs to the job. One set-up at a time runs in a checkout (flock); the compiled football
# engine is shared by all checkouts of a user, and a failure to build it stops nothing else; nor
# does a failure to install what only some tests need.

root=$(readlink -f -- "${BASH_SOURCE[0]}")
root=${root%/*/*}
venv=$root/.venv
stamps=$venv/.setup
logs=$root/.cache/setup

# Football's own needs; its GUI ones (pygame, gym, OpenCV with windows) are left out on purpose.
football_needs=(absl-py opencv-python-headless psutil six)
steps_run=(system venv packages football)
# shellcheck disable=SC2034 # read through its name
steps_dev=("${steps_run[@]}" dev toolchains browser modules)

say() { printf '%s\n' "$*" >&2; }

# --- what is there ------------------------------------------------------------------------------

hash_of() {
    local digest
    digest=$(printf '%s\n' "$@" | sha256sum)
    printf '%s' "${digest%% *}"
}

stamp() { printf '%s' "$2" > "$stamps/$1"; }

stamped() { [[ -f $stamps/$1 && $(<"$stamps/$1") == "$2" ]]; }

inputs() {
    hash_of "$root" "$(<"$root/setup.py")" "$(<"$root/tools/constraints.txt")" \
        "$(<"$root/tools/system-packages.txt")" "$(<"$root/tools/setup.sh")" \
        "$(<"$root/tools/football.sh")" "$(<"$root/hts/remote/js/package-lock.json")" \
        "$root"/hts/remote/js/*
}

is_ready() { # LEVEL
    local recorded='' python=''
    [[ -f $stamps/ready-$1 ]] || return 1
    { read -r recorded; read -r python; } < "$stamps/ready-$1"
    [[ -x $python && $recorded == "$(inputs)" ]] || return 1
    # Football waits for system packages: try again once somebody has installed them.
    [[ ! -f $stamps/football-waits ]] || [[ -n $(missing_packages) ]]
}

record_ready() {
    printf '%s\n%s\n' "$(inputs)" "$(readlink -f "$venv/bin/python")" > "$stamps/ready-$level"
}

wanted_packages() { # [dev|browser]: what everybody needs, or what only developers need
    local group names
    while IFS=: read -r group names; do
        # shellcheck disable=SC2086 # a list of words
        case $group in
            '#'*) ;;
            dev | browser) [[ ${1-} != "$group" ]] || printf '%s ' $names ;;
            *) [[ -n ${1-} ]] || printf '%s ' $names ;;
        esac
    done < "$root/tools/system-packages.txt"
}

has_apt() { type -P apt-get dpkg-query > /dev/null; }

missing_packages() { # [dev|browser]
    local installed name
    installed=" $(dpkg-query -W -f '${db:Status-Status}:${Package} ' 2> /dev/null) "
    for name in $(wanted_packages "$@"); do
        [[ $installed == *" installed:$name "* ]] || is_elsewhere "$name" || printf '%s ' "$name"
    done
}

is_elsewhere() { # PACKAGE: Node, its npm and a browser often come from somebody else than Debian
    case $1 in
        nodejs | npm) type -P node npm > /dev/null ;;
        chromium) type -P chromium > /dev/null ;;
        *) return 1 ;;
    esac
}

pinned() { sed -n "s/^$1==//p" "$root/tools/constraints.txt"; }

usable_python='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'

find_python() { # sets $python; Debian's own first, because Boost.Python is built for it
    local name
    for name in /usr/bin/python3 python3 python3.{11..14}; do
        python=$(type -P "$name") || continue
        "$python" -I -c "$usable_python" > /dev/null 2>&1 && return
    done
    return 1
}

venv_is_sound() { # an interpreter that starts, its pip, and made at this very place
    "$venv/bin/python" -I -c "$usable_python; import pip" > /dev/null 2>&1 &&
        head -n 3 "$venv/bin/pip" 2> /dev/null | grep -qF "$venv/bin/python"
}

# --- the steps ------------------------------------------------------------------------------------

in_venv() { "$venv/bin/python" -I -m pip --no-input --disable-pip-version-check "$@"; }

pip_install() { in_venv install --progress-bar off -c "$root/tools/constraints.txt" "$@"; }

do_system() { # PACKAGE...; only a refused or interrupted first try pays for fresh lists
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=300
        -o Dpkg::Options::=--force-confold)
    "${as_root[@]}" "${apt[@]}" install --no-install-recommends "$@" || {
        "${as_root[@]}" dpkg --configure -a
        "${as_root[@]}" "${apt[@]}" update
        "${as_root[@]}" "${apt[@]}" install --no-install-recommends "$@"
    }
}

do_venv() {
    venv_is_sound || { rm -rf -- "$venv" && "$python" -m venv "$venv"; } || return
    mkdir -p "$stamps" && pip_install pip setuptools wheel
}

do_packages() { # REQUIREMENT...
    local half
    # What an interrupted pip left without its last file counts as installed, but is not.
    for half in "$venv"/lib/python3*/site-packages/*.dist-info; do
        [[ -f $half/INSTALLER ]] || rm -rf -- "$half"
    done
    cd "$root" && pip_install --no-build-isolation "$@"
}

do_modules() { # beside links to the client: Node looks for modules where a file lies
    mkdir -p "$root/.cache/js" && cd "$root/.cache/js" || return
    rm -f -- *.mjs *.json
    ln -s "$root"/hts/remote/js/*.mjs "$root"/hts/remote/js/*.json . || return
    npm ci --ignore-scripts --no-audit --no-fund --no-progress --no-update-notifier &&
        node --input-type=module -e 'import "zeromq"; import "@msgpack/msgpack"'
}

football_runs() {
    "$venv/bin/python" -W ignore -c 'import sys, gfootball_engine
from importlib.metadata import version
sys.exit(version("gfootball") != sys.argv[1])' "$(pinned gfootball)"
}

# --- running a step -------------------------------------------------------------------------------

seconds_since() { # MICROSECONDS, as EPOCHREALTIME counts them
    local tenths=$(((${EPOCHREALTIME//[.,]/} - $1) / 100000))
    ((tenths < 100)) && printf '%d.%d s' $((tenths / 10)) $((tenths % 10)) || printf '%d s' $((tenths / 10))
}

number() { # STEP: "[2/4]" among the steps of this level
    local -n all=steps_$level
    local i
    for i in "${!all[@]}"; do
        [[ ${all[i]} != "$1" ]] || printf '[%d/%d]' $((i + 1)) ${#all[@]}
    done
}

news() { # LOG: what the step is at, from the end of its log
    tail -c 4000 "$1" 2> /dev/null | tr '\r' '\n' | grep -oE \
        '^ *\[ *[0-9]+%\]|^ *(Collecting|Downloading|Unpacking|Setting up) [^ ]+|^Installing' |
        tail -n 1 | tr -d '[]' | tr -s ' ' | cut -c 1-40
}

run_step() { # NAME TITLE COMMAND...: in its own process group, so that all of it can be ended
    local name=$1 title log=$logs/$1.log since=${EPOCHREALTIME//[.,]/} status=0 detail='' line turn=0
    title="$(number "$1") $2"
    shift 2
    running=$title
    [[ -t 2 ]] || printf '%s ... ' "$title" >&2
    set -m
    (
        trap 'exit 130' INT # even where a command takes the signal and ends as if it failed
        unset PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX PIP_USER
        "$@"
    ) > "$log" 2>&1 < /dev/null 9>&- &
    child=$!
    set +m
    while [[ -t 2 ]] && kill -0 "$child" 2> /dev/null; do
        ((turn++ % 5)) || detail=$(news "$log")
        line="$title $(seconds_since "$since") $detail"
        printf '\r\033[K%s' "${line:0:${COLUMNS:-80}-1}" >&2
        sleep 0.1
    done
    wait "$child" || status=$?
    child=''
    [[ ! -t 2 ]] || printf '\r\033[K%s ' "$title" >&2
    if ((status == 0)); then
        say "$(seconds_since "$since")"
    else
        say "failed after $(seconds_since "$since"). The end of $log:"
        tail -n 15 "$log" | sed 's/^/    /' >&2
        explain_log "$log"
    fi
    return "$status"
}

unreachable='Max retries exceeded|Temporary failure resolving|Could not connect to|EAI_AGAIN'

explain_log() { # LOG: the two causes that the tools' own words hide
    if grep -qF 'No space left on device' "$1"; then
        say "The disk is full: $(df -h --output=avail,target "$root" | tail -n 1)"
    elif grep -qE "$unreachable" "$1"; then
        say "Packages could not be fetched: is the network there, and is all set up for it?"
    fi
}

interrupted() { # EXIT_CODE
    trap '' INT TERM HUP
    if [[ -n $child ]]; then
        signal_step INT
        for _ in $(seq "$patience"); do
            kill -0 -- "-$child" 2> /dev/null || break
            sleep 0.1
        done
        signal_step KILL
        say
        say "Interrupted in $running. The same command goes on from there."
    fi
    exit "$1"
}

signal_step() { # SIGNAL: to its whole process group, with sudo where parts of it are root's
    kill "-$1" -- "-$child" 2> /dev/null
    ((!${#as_root[@]})) || "${as_root[@]}" sh -c "kill -$1 -- -$child" 2> /dev/null
}

give_up() {
    say "Set-up stopped here. To go on:"
    say "    $root/tools/setup.sh"
    exit 1
}

# --- what root has to do --------------------------------------------------------------------------

gain_root() { # sets $as_root to what makes a command root's; asks for a password only at a terminal
    as_root=()
    ((EUID != 0)) || return 0
    type -P sudo > /dev/null || return 1
    as_root=(sudo -n)
    sudo -n true 2> /dev/null && return
    if [[ -t 0 && -t 2 && " $(id -nG) " =~ \ (sudo|wheel|admin)\  ]]; then
        say "System packages are missing. With your password sudo installs them now;"
        say "without it, what needs them is left out."
        sudo -v && return
    fi
    as_root=()
    return 1
}

explain_system() { # MISSING...: nobody here is root
    if has_apt; then
        say "System packages are missing, and installing them needs root. Somebody with root runs:"
        say "    apt-get update && apt-get install -y --no-install-recommends $*"
    else
        say "This is no Debian, so system packages are not installed from here. Needed is what Debian"
        say "calls: $(wanted_packages)"
    fi
}

explain_python() {
    say "Python 3.11 or newer with its venv module is needed and was not found."
    # shellcheck disable=SC2046 # a list of words
    explain_system $(has_apt && missing_packages)
    say "Or put a python3.11, 3.12, 3.13 or 3.14 into PATH."
    exit 1
}

system_step() { # sets $lacking to the packages that football has to wait for
    lacking=''
    if ! has_apt; then
        # Nobody can know what is there; whoever asks explicitly gets a try.
        [[ -n $again ]] || lacking=unknown
        return
    fi
    lacking=$(missing_packages)
    # shellcheck disable=SC2086 # a list of words
    if [[ -n $lacking ]] && gain_root; then
        patience=600 # breaking off a package in the middle costs more than it saves
        run_step system "system packages" do_system $lacking || refused=yes
        patience=50 as_root=() lacking=$(missing_packages)
    fi
}

# --- all of it ------------------------------------------------------------------------------------

football_waits() { # explained once, and again when asked explicitly
    stamp football-waits "$lacking"
    [[ -z $again ]] && stamped football-explained "$lacking" && return
    stamp football-explained "$lacking"
    # shellcheck disable=SC2086 # a list of words
    [[ -n $refused ]] || explain_system $lacking
    say "Until they are there football is left out; everything else works. To try again:"
    say "    $root/tools/setup.sh"
}

football_step() { # never fails: every other family goes on without it
    local folder title='football engine'
    rm -f "$stamps/football-waits"
    if [[ -n $lacking ]]; then
        football_runs 2> /dev/null || football_waits
        return
    fi
    [[ -n $again ]] && football_runs 2> /dev/null && return
    # shellcheck source=tools/football.sh
    source "$root/tools/football.sh"
    folder=$(wheel_cache)/$(football_key)
    if [[ -z $again ]]; then
        stamped football "$folder" && return
        stamped football-failed "$folder" && return
    fi
    compgen -G "$folder/*.whl" > /dev/null || title+=' (compiled once, about three minutes)'
    if run_step football "$title" do_football "$folder"; then
        rm -f "$stamps/football-failed"
        stamp football "$folder"
    else
        stamp football-failed "$folder"
        say "Football is left out; everything else works. To try again:"
        say "    $root/tools/setup.sh"
    fi
}

package_step() { # NAME TITLE REQUIREMENT...
    local name=$1 title=$2 made_from
    shift 2
    made_from=$(hash_of "$root" "$(<"$root/setup.py")" "$(<"$root/tools/constraints.txt")" "$@")
    [[ -z $again ]] && stamped "$name" "$made_from" && return
    run_step "$name" "$title" do_packages "$@" || give_up
    stamp "$name" "$made_from"
}

clients_wait() {
    say "The tests that need them (clients in C++ and JavaScript, networks) are left out;"
    say "everything else works. To try again:"
    say "    $root/tools/setup.sh dev"
}

pages_wait() {
    say "The tests that look at pages in a browser are left out; everything else works."
    say "To try again:"
    say "    $root/tools/setup.sh dev"
}

apart_step() { # NAME GROUP TITLE WAIT: never fails; tried once, and again when asked explicitly
    local missing
    has_apt || return 0
    missing=$(missing_packages "$2")
    [[ -n $missing ]] || return 0
    [[ -z $again ]] && stamped "$1-missing" "$missing" && return
    stamp "$1-missing" "$missing"
    if gain_root; then
        patience=600
        # shellcheck disable=SC2086 # a list of words
        run_step "$1" "$3" do_system $missing || "$4"
        patience=50 as_root=()
    else
        # shellcheck disable=SC2086 # a list of words
        explain_system $missing
        "$4"
    fi
}

toolchains_step() {
    apart_step toolchains dev "packages for clients in C++ and JavaScript" clients_wait
}

browser_step() { # by itself: Debian's relatives lack the package, and the clients need no browser
    apart_step browser browser "a browser for the tests of pages" pages_wait
}

modules_step() { # never fails; tried once, and again when asked explicitly
    local client=$root/hts/remote/js made_from
    type -P node npm > /dev/null || return 0
    made_from=$(hash_of "$(<"$client/package-lock.json")" "$client"/*)
    if [[ -z $again ]]; then
        stamped modules "$made_from" && return
        stamped modules-failed "$made_from" && return
    fi
    if run_step modules "modules for the client in JavaScript" do_modules; then
        rm -f "$stamps/modules-failed"
        stamp modules "$made_from"
    else
        stamp modules-failed "$made_from"
        clients_wait
    fi
}

all_steps() {
    system_step
    if ! stamped venv "$root" || ! venv_is_sound; then
        find_python || explain_python
        run_step venv "virtual environment ($("$python" -V))" do_venv || give_up
        stamp venv "$root"
    fi
    package_step packages "Python packages" -e '.[atari,mujoco,plots,video]' "${football_needs[@]}"
    football_step
    if [[ $level == dev ]]; then
        package_step dev "development tools" -e '.[dev,envpool]'
        toolchains_step
        browser_step
        modules_step
    fi
    record_ready
}

ensure() { # LEVEL (run or dev) [again]
    level=$1 again=${2-} child='' running='' refused='' as_root=() patience=50
    [[ -z $again ]] && is_ready "$level" && return
    mkdir -p "$logs" && exec 9> "$logs/lock" || exit 1
    trap 'interrupted 130' INT
    trap 'interrupted 143' TERM HUP
    if ! flock -n 9; then
        say "Another set-up of this checkout is at work; waiting for it."
        flock 9 &
        wait $!
    fi
    if [[ -n $again ]] || ! is_ready "$level"; then all_steps; fi
    trap - INT TERM HUP
    exec 9>&-
}

main() {
    case $* in
        '') ensure run again ;;
        dev) ensure dev again ;;
        *) sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
    if football_runs 2> /dev/null; then
        say "Everything is set up."
    else
        say "Everything but football is set up."
    fi
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    set -u
    main "$@"
fi
