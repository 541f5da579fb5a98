/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The same structures, the common way. */
#define COMMON
#include "structures.bpf.c"
