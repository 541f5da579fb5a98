/* SPDX-License-Identifier: GPL-2.0 */
/*
 * simd: the part of the module that is compiled to use vector registers. Call it between kernel_fpu_begin() and kernel_fpu_end() on a
 * processor with AVX2 only; nothing else may be in simd.c, since the compiler is free to use the registers anywhere in it.
 */
#ifndef SHUNT_KMOD_SIMD_H
#define SHUNT_KMOD_SIMD_H

#include <shunt/accel.h>

__u32 shunt_simd_match16x16(const struct shunt_lanes16 *lanes, __u16 v);
void shunt_simd_hash8(struct shunt_hash8 *out, const void *key, __u32 len, __u32 seed);

#endif
