#!/usr/bin/env bash
# check_no_shared_code.sh OBJECT...: fails when an object compiled with AVX2 defines a function that the linker could pick for code that
# must run without AVX2 (a weak symbol: an inline function or a template instance that was not inlined). See kernels/isa.h.
set -euo pipefail
checked=0
bad=0
for object in "$@"; do
  case "$object" in *_avx2.cc.o) ;; *) continue ;; esac
  checked=$((checked + 1))
  if weak=$(nm -C --defined-only "$object" | grep ' W '); then
    echo "$object shares code:"
    echo "$weak"
    bad=1
  fi
done
[ "$checked" -gt 0 ] || { echo "no *_avx2.cc.o among the arguments"; exit 1; }
echo "$checked objects checked"
exit "$bad"
