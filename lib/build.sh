#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh [CLANG [OUTDIR]]: compile every *.bpf.c below the folder it is run in into OUTDIR, or testdata/ beside each source's folder.
#
# The library's own tests, examples and benchmarks are compiled ahead of time and committed, as shunt's data path is;
# `make generate` runs this by way of go:generate.
set -euo pipefail
shopt -s nullglob
top=$(cd "$(dirname "$0")/.." && pwd)
clang=${1:-clang-19}
out=${2:-}
strip=llvm-strip-${clang##*-}
command -v "$strip" >/dev/null || strip=llvm-strip
failed=0
for source in bpf/*.bpf.c; do
	object=${out:-testdata}/$(basename "${source%.c}").o
	mkdir -p "$(dirname "$object")"
	if ! "$clang" -target bpfel -mcpu=v3 -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare \
		-I"$top/lib/include" -I"$top/bpf/third_party/libbpf" -I"/usr/include/$(uname -m)-linux-gnu" \
		-fdebug-prefix-map="$top=." -c "$source" -o "$object"; then
		failed=1 # and on, so that one run tells all that a compiler dislikes
		continue
	fi
	"$strip" -g "$object"
done
exit "$failed"
