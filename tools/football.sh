# shellcheck shell=bash disable=SC2154 # what setup.sh sets
# Part of setup.sh: the football engine, which is compiled on the machine that uses it.
#
# The wheel is kept outside the checkout, under a name that says what it depends on, and built by
# one set-up at a time. Its sources and objects stay in the checkout's .cache until that worked, so
# that an interrupted build goes on; a failed one starts afresh. It is built in an environment of
# its own, where two small programs stand before make and cmake: the engine's script counts the
# machine's memory and cores but not the limits set on us, and CMake takes the newest Python.

# --- how much may be built at once ----------------------------------------------------------------

limit_of() { # FILE: its number, or nothing when there is no limit
    local number=''
    [[ ! -r $1 ]] || read -r number _ < "$1"
    [[ $number =~ ^[0-9]+$ ]] && ((number < 1 << 60)) && printf '%s' "$number"
}

control_groups() { # SYSTEM_ROOT: every directory whose limits hold for this process
    local line path
    printf '%s\n' "$1/sys/fs/cgroup" "$1/sys/fs/cgroup/memory" "$1/sys/fs/cgroup/cpu"
    while read -r line; do
        path=${line#*:*:}
        while [[ -n ${path%/} ]]; do
            printf '%s\n' "$1/sys/fs/cgroup$path" "$1/sys/fs/cgroup/memory$path" \
                "$1/sys/fs/cgroup/cpu$path"
            path=${path%/*}
        done
    done 2> /dev/null < "$1/proc/self/cgroup"
}

memory_available() { # SYSTEM_ROOT: MiB, of the machine and of every control group around us
    local group limit used cached least free
    least=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' "$1/proc/meminfo")
    least=${least:-2048}
    while read -r group; do
        limit=$(limit_of "$group/memory.max" || limit_of "$group/memory.limit_in_bytes") || continue
        used=$(limit_of "$group/memory.current" || limit_of "$group/memory.usage_in_bytes")
        cached=$(awk '$1 == "inactive_file" { print $2 }' "$group/memory.stat" 2> /dev/null)
        free=$(((limit - ${used:-0} + ${cached:-0}) >> 20))
        ((free >= least)) || least=$free
    done < <(control_groups "$1")
    printf '%s' "$least"
}

cores_available() { # SYSTEM_ROOT CORES: no more than the quotas around us, rounded up
    local group quota period least=$2
    while read -r group; do
        if quota=$(limit_of "$group/cpu.max"); then
            read -r _ period < "$group/cpu.max"
        elif quota=$(limit_of "$group/cpu.cfs_quota_us"); then
            period=$(limit_of "$group/cpu.cfs_period_us")
        else
            continue
        fi
        quota=$(((quota + period - 1) / period))
        ((quota >= least)) || least=$quota
    done < <(control_groups "$1")
    printf '%s' "$least"
}

# shellcheck disable=SC2120 # the arguments are for its tests
build_jobs() { # [SYSTEM_ROOT CORES]: a compiler takes up to 660 MiB; 500 are left to others
    local cores jobs
    jobs=$((($(memory_available "${1-}") - 500) / 700))
    cores=$(cores_available "${1-}" "${2:-$(nproc)}")
    ((jobs <= cores)) || jobs=$cores
    ((jobs >= 1)) || jobs=1
    printf '%s' "$jobs"
}

# --- the wheel ------------------------------------------------------------------------------------

football_key() { # what a compiled engine depends on
    local tag system boost
    tag=$("$venv/bin/python" -I -c 'import sys; print("cp%d%d-%s" % (*sys.version_info[:2],
        "system" if sys.base_prefix == "/usr" else "other"))')
    # shellcheck disable=SC1091
    system=$(. /etc/os-release 2> /dev/null && printf '%s' "$ID${VERSION_ID-}")
    boost=$(dpkg-query -W -f '${Version}' libboost-python-dev 2> /dev/null)
    printf 'gfootball-%s-%s-%s-%s-boost%s' "$(pinned gfootball)" "$tag" "$(uname -m)" \
        "$system" "${boost:-unknown}"
}

wheel_cache() { # the directory, outside the checkout where that can be written
    local folder=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/hts/wheels
    mkdir -p "$folder" 2> /dev/null && [[ -w $folder ]] || folder=$root/.cache/wheels
    mkdir -p "$folder" && printf '%s' "$folder"
}

do_football() { # WHEEL_DIRECTORY
    football_runs 2> /dev/null && return
    exec 8> "$1.lock" && flock 8 # another checkout may be compiling the same engine
    install_football "$1" && return
    # None was there, or it does not fit this system any more.
    rm -rf -- "$1" && build_football "$1" && install_football "$1"
}

install_football() { # WHEEL_DIRECTORY
    compgen -G "$1/*.whl" > /dev/null &&
        in_venv install --no-deps --force-reinstall "$1"/*.whl && football_runs
}

build_football() { # WHEEL_DIRECTORY
    local build=$root/.cache/setup/football status=0
    make_builder "$build" && fetch_football "$build" || return
    rm -rf -- "$build/wheel"
    "$build/venv/bin/python" -m pip wheel --verbose --no-deps --no-build-isolation --no-cache-dir \
        -w "$build/wheel" "$build/source" || status=$?
    if ((status)); then # an interruption has ended this shell; after a failure start afresh
        rm -rf -- "$build/source"
        return "$status"
    fi
    rm -rf -- "$1" "$1.new" && mkdir -p "$1.new" &&
        cp "$build"/wheel/*.whl "$1.new/" && mv "$1.new" "$1" && rm -rf -- "$build"
}

make_builder() { # DIRECTORY: an environment of its own, for the build imports setuptools late
    local build=$1 bin=$1/venv/bin
    [[ -f $build/venv/complete ]] || {
        rm -rf -- "$build/venv" && "$venv/bin/python" -m venv "$build/venv" &&
            "$bin/python" -m pip install -c "$root/tools/constraints.txt" \
                pip setuptools wheel psutil six && touch "$build/venv/complete"
    } || return
    # shellcheck disable=SC2119
    printf '#!/bin/sh\nexec "%s" "$@" -j %s\n' "$(type -P make)" "$(build_jobs)" > "$bin/make"
    printf '#!/bin/sh\ncase "$*" in .) set -- . %s ;; esac\nexec "%s" "$@"\n' \
        "$("$bin/python" -c "$cmake_python")" "$(type -P cmake)" > "$bin/cmake"
    chmod +x "$bin/make" "$bin/cmake"
    export PATH=$bin:$PATH CMAKE_POLICY_VERSION_MINIMUM=3.5
}

# shellcheck disable=SC2016 # Python, not shell
cmake_python='import sysconfig
from pathlib import Path
found = sysconfig.get_config_var
library = Path(found("LIBDIR"), found("LDLIBRARY"))
if not library.exists():  # Debian keeps it in the folder of the architecture
    library = Path(found("LIBDIR"), found("MULTIARCH") or "", found("LDLIBRARY"))
include = sysconfig.get_path("include")
if library.exists() and Path(include, "Python.h").exists():
    print(f"\"-DPython_INCLUDE_DIR={include}\" \"-DPython_LIBRARY={library}\"")'

fetch_football() { # DIRECTORY
    local build=$1 name
    name=gfootball-$(pinned gfootball)
    [[ ! -d $build/source ]] || return 0
    rm -rf -- "$build/download" &&
        "$build/venv/bin/python" -m pip download --no-deps --no-build-isolation \
            --no-binary gfootball -d "$build/download" "${name/-/==}" &&
        tar -xzf "$build/download/$name.tar.gz" -C "$build/download" &&
        mv "$build/download/$name" "$build/source"
}
