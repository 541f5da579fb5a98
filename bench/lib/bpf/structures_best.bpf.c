/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The same structures, the best plain way. */
#define BEST
#include "structures.bpf.c"
