#!/usr/bin/env bash
# Build llama.cpp's own programs, to measure them side by side with spec-cpu:
#
#     bench/build_llama_cpp.sh DEST
#
# The source is the one inside llama-cpp-python's source package, in the version installed: what is
# compared is the same llama.cpp, and differences are the callers'. DEST gets programs without
# libraries to go with them, and their paths are printed, one a line. When they are there already,
# nothing is built; a build that broke off is taken up again. About 10 minutes on 2 cores.
#
# Environment:
#     PYTHON      the interpreter with llama-cpp-python (default: .venv's of this project, or python3)
#     CMAKE_ARGS  more options for cmake: those llama-cpp-python was installed with, if any
#     JOBS        how many compilers run at once (default: one a processor)

set -euo pipefail

readonly PROGRAMS=(llama-speculative-simple llama-completion llama-lookup llama-bench llama-server)

main() {
    if [[ $# -ne 1 || $1 == -* ]]; then
        echo "usage: ${BASH_SOURCE[0]} DEST" >&2
        exit 2
    fi
    local dest python version
    mkdir -p "$1"
    dest=$(cd "$1" && pwd)
    python=$(find_python)
    version=$(installed_version "$python")
    if ! is_built "$dest" "$version"; then
        check_tools
        build "$dest" "$python" "$version"
    fi
    printf '%s\n' "${PROGRAMS[@]/#/$dest/}"
}

fail() {
    echo "${BASH_SOURCE[0]##*/}: $*" >&2
    exit 1
}

find_python() {
    local own
    own=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.venv/bin/python
    if [[ -n ${PYTHON:-} ]]; then
        command -v "$PYTHON" || fail "there is no $PYTHON, which PYTHON names"
    elif [[ -x $own ]]; then
        echo "$own"
    else
        command -v python3 || fail "there is no python3; install it, or name one in PYTHON"
    fi
}

installed_version() {
    "$1" -c 'from importlib.metadata import version; print(version("llama-cpp-python"))' \
        2>/dev/null || fail "$1 has no llama-cpp-python; name another interpreter in PYTHON"
}

check_tools() {
    local missing=()
    command -v cmake >/dev/null || missing+=("cmake")
    command -v "${CXX:-c++}" >/dev/null || missing+=("a C++ compiler (${CXX:-c++})")
    command -v "${CC:-cc}" >/dev/null || missing+=("a C compiler (${CC:-cc})")
    command -v ninja >/dev/null || command -v make >/dev/null || missing+=("ninja or make")
    command -v tar >/dev/null || missing+=("tar")
    [[ ${#missing[@]} -eq 0 ]] || fail "missing: $(join ", " "${missing[@]}")"
}

join() { # SEPARATOR WORD...
    local separator=$1 line=$2
    shift 2
    for word in "$@"; do line+=$separator$word; done
    echo "$line"
}

is_built() { # DEST VERSION
    local program
    [[ -f $1/VERSION && $(<"$1/VERSION") == "$2" ]] || return 1
    for program in "${PROGRAMS[@]}"; do
        [[ -x $1/$program ]] || return 1
    done
}

build() { # DEST PYTHON VERSION
    local dest=$1 python=$2 version=$3
    local work=$dest/build-$version
    mkdir -p "$work"
    rm -f "$dest/VERSION"
    fetch_source "$work" "$python" "$version"
    compile "$work"
    local program
    for program in "${PROGRAMS[@]}"; do
        cp "$work/build/bin/$program" "$dest/"
    done
    echo "$version" >"$dest/VERSION"
    rm -rf "$work"
}

fetch_source() { # WORK PYTHON VERSION
    local work=$1 python=$2 version=$3
    local package=llama_cpp_python-$version
    [[ -d $work/llama.cpp ]] && return
    echo "Downloading the source of llama-cpp-python $version ..." >&2
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps \
        --no-binary llama-cpp-python --dest "$work" "llama-cpp-python==$version" >&2
    tar -xzf "$work/$package.tar.gz" -C "$work" "$package/vendor/llama.cpp"
    # Moved in one step, so that an unpacking that broke off does not pass for a whole one.
    mv "$work/$package/vendor/llama.cpp" "$work/llama.cpp"
}

compile() { # WORK
    local work=$1
    if command -v ninja >/dev/null; then export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}; fi
    echo "Building llama.cpp's programs; output in $work/build.log ..." >&2
    # Native code and OpenMP are ggml's defaults, and so llama-cpp-python's. Static libraries make
    # programs that can be moved. Nothing is downloaded by them, and nobody looks at the server: no
    # SSL, no web page.
    # shellcheck disable=SC2086 # CMAKE_ARGS is a list of words
    {
        cmake -S "$work/llama.cpp" -B "$work/build" \
            -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON \
            -DLLAMA_BUILD_COMMON=ON -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_EXAMPLES=ON \
            -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_APP=OFF \
            -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
            -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF ${CMAKE_ARGS:-} &&
            nice cmake --build "$work/build" --target "${PROGRAMS[@]}" \
                --parallel "${JOBS:-$(getconf _NPROCESSORS_ONLN)}"
    } >"$work/build.log" 2>&1 || {
        tail -n 20 "$work/build.log" >&2
        fail "the build failed; the whole output is in $work/build.log"
    }
}

main "$@"
