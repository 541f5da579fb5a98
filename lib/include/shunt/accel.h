/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * accel: the same functions by the processor's instructions where the module of lib/kmod is loaded, in plain BPF everywhere else. One
 * object serves both; results never differ.
 *
 * A word of capabilities in .rodata decides. The loader sets it before loading (lib/capability for Go; with libbpf,
 * skeleton->rodata->shunt_capabilities), the verifier knows its value and drops the branches that are not taken, so what is not used costs
 * nothing, and a kernel without the functions never sees a call to them. The word alone guards: bpf_ksym_exists() would ask the kernel, but
 * cilium/ebpf up to 0.22.0 writes an instruction for it that the verifier refuses as soon as the module is loaded (its issue 2056). A word
 * that claims what is not there makes the load fail ("unknown kfunc"); 0 is right always.
 *
 * Memory handed to these functions has to be memory that the program may write (stack, a map's value, a packet of XDP), although it is only
 * read: the verifier asks that of every memory argument of a kernel function. Length and alignment are as for the plain function.
 *
 * Cost: plain, that of crc32c.h, match.h and hash8.h; with the module, a call, and for match and hash8 a section that may use vector
 * registers. Any kernel; 6.12 and later for the module. Include <bpf_helpers.h> first or not at all: nothing of it is needed.
 */
#ifndef SHUNT_LIB_ACCEL_H
#define SHUNT_LIB_ACCEL_H

#include "crc32c.h"
#include "hash8.h"
#include "match.h"

/* Bits of the word. They and the functions' prototypes keep their meaning for ever: what changes gets a new name and a new bit. */
#define SHUNT_CAP_CRC32C 1ULL
#define SHUNT_CAP_MATCH16X16 2ULL
#define SHUNT_CAP_HASH8 4ULL

/* Sixteen fingerprints of 16 bits. */
struct shunt_lanes16 {
	__u64 word[4];
};

#ifdef __bpf__
/* Weak, so that several sources linked into one object share it. */
volatile const __u64 shunt_capabilities __attribute__((weak, section(".rodata"))) = 0;

#define SHUNT_KFUNC __attribute__((weak, section(".ksyms")))
extern __u32 shunt_kmod_crc32c(const void *data, __u32 data__sz, __u32 crc) SHUNT_KFUNC;
extern __u32 shunt_kmod_match16x16(const struct shunt_lanes16 *lanes, __u32 v) SHUNT_KFUNC;
extern void shunt_kmod_hash8(struct shunt_hash8 *out, const void *key, __u32 key__sz, __u32 seed) SHUNT_KFUNC;

/* shunt_crc32c() */
SHUNT_FN __u32 shunt_crc32c_any(const void *data, __u32 len, __u32 crc)
{
	if (shunt_capabilities & SHUNT_CAP_CRC32C)
		return shunt_kmod_crc32c(data, len, crc);
	return shunt_crc32c(data, len, crc);
}

/* shunt_match16x16() */
SHUNT_FN __u32 shunt_match16x16_any(const __u64 word[4], __u16 v)
{
	if (shunt_capabilities & SHUNT_CAP_MATCH16X16)
		return shunt_kmod_match16x16((const struct shunt_lanes16 *)word, v);
	return shunt_match16x16(word, v);
}

/* shunt_hash8() */
SHUNT_FN void shunt_hash8_any(struct shunt_hash8 *out, const void *key, __u32 len, __u32 seed)
{
	if (shunt_capabilities & SHUNT_CAP_HASH8)
		shunt_kmod_hash8(out, key, len, seed);
	else
		shunt_hash8(out, key, len, seed);
}
#endif

#endif
