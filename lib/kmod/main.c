// SPDX-License-Identifier: GPL-2.0
/*
 * shunt_lib: functions for BPF programs that BPF itself cannot express: the CRC32c instruction, and comparing and hashing eight to sixteen
 * values at once in vector registers. XDP and TC programs call them by way of lib/include/shunt/accel.h, which says what each does.
 *
 * Nothing depends on this module: accel.h has every function in plain BPF with the same results. Where the processor lacks an
 * instruction, or vector registers may not be used right now (in an interrupt that hit a section which uses them), the very same plain C
 * answers here. "capabilities" says what the processor can do; what is not in it would be no faster than BPF.
 *
 * The module loads only where programs can then really call it, and says why elsewhere: before Linux 6.12 XDP programs cannot, and a kernel
 * that has no type information (BTF) of the module registers nothing and reports success.
 */
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/module.h>
#include <linux/version.h>

#include <shunt/accel.h>

#include "simd.h"

#undef pr_fmt
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

static unsigned long capabilities = ~0UL;
module_param(capabilities, ulong, 0444);
MODULE_PARM_DESC(capabilities, "functions to offer (1 crc32c, 2 match16x16, 4 hash8); reads as those that this processor can do");

#if defined(CONFIG_X86_64) && LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0) && defined(CONFIG_DEBUG_INFO_BTF_MODULES)
#include <asm/cpufeature.h>
#include <asm/fpu/api.h>

/* Memory arguments come with a size, a struct or __sz, which the verifier holds against the memory at hand. */
__bpf_kfunc_start_defs();

__bpf_kfunc u32 shunt_kmod_crc32c(const void *data, u32 data__sz, u32 crc)
{
	const u8 *at = data;
	u64 c = (u32)~crc;

	if (!(capabilities & SHUNT_CAP_CRC32C))
		return shunt_crc32c(data, data__sz, crc);
	/* General registers only: this needs no section. */
	for (; data__sz >= 8; data__sz -= 8, at += 8)
		asm("crc32q %1, %0" : "+r"(c) : "m"(*(const u64 *)at));
	if (data__sz & 4) {
		asm("crc32l %1, %k0" : "+r"(c) : "m"(*(const u32 *)at));
		at += 4;
	}
	for (data__sz &= 3; data__sz; data__sz--, at++)
		asm("crc32b %1, %k0" : "+r"(c) : "m"(*at));
	return ~(u32)c;
}

__bpf_kfunc u32 shunt_kmod_match16x16(const struct shunt_lanes16 *lanes, u32 v)
{
	u32 mask;

	if (!(capabilities & SHUNT_CAP_MATCH16X16) || !irq_fpu_usable())
		return shunt_match16x16(lanes->word, v);
	kernel_fpu_begin();
	mask = shunt_simd_match16x16(lanes, v);
	kernel_fpu_end();
	return mask;
}

__bpf_kfunc void shunt_kmod_hash8(struct shunt_hash8 *out, const void *key, u32 key__sz, u32 seed)
{
	if (!(capabilities & SHUNT_CAP_HASH8) || !irq_fpu_usable()) {
		shunt_hash8(out, key, key__sz, seed);
		return;
	}
	kernel_fpu_begin();
	shunt_simd_hash8(out, key, key__sz, seed);
	kernel_fpu_end();
}

__bpf_kfunc_end_defs();

BTF_KFUNCS_START(shunt_kfuncs)
BTF_ID_FLAGS(func, shunt_kmod_crc32c)
BTF_ID_FLAGS(func, shunt_kmod_match16x16)
BTF_ID_FLAGS(func, shunt_kmod_hash8)
BTF_KFUNCS_END(shunt_kfuncs)

static const struct btf_kfunc_id_set shunt_kfunc_set = {
	.owner = THIS_MODULE,
	.set = &shunt_kfuncs,
};

/* What this processor can do, as bits of the word. */
static unsigned long processor(void)
{
	unsigned long can = 0;

	if (boot_cpu_has(X86_FEATURE_XMM4_2))
		can |= SHUNT_CAP_CRC32C;
	/* AVX2 alone is not enough: the kernel has to save the upper halves of the registers. */
	if (boot_cpu_has(X86_FEATURE_AVX2) && cpu_has_xfeatures(XFEATURE_MASK_SSE | XFEATURE_MASK_YMM, NULL))
		can |= SHUNT_CAP_MATCH16X16 | SHUNT_CAP_HASH8;
	return can;
}

static int __init shunt_lib_init(void)
{
	int err;

	if (!THIS_MODULE->btf_data_size) {
		pr_err("not loaded: this file has no type information (BTF), so no program could call it; build it with pahole and the kernel's vmlinux at hand\n");
		return -ENOENT;
	}
	capabilities &= processor();
	if (!capabilities) {
		pr_err("not loaded: there is nothing to offer: the processor has neither SSE4.2 nor AVX2, or capabilities= leaves nothing\n");
		return -ENODEV;
	}
	err = register_btf_kfunc_id_set(BPF_PROG_TYPE_XDP, &shunt_kfunc_set);
	if (!err)
		err = register_btf_kfunc_id_set(BPF_PROG_TYPE_SCHED_CLS, &shunt_kfunc_set);
	if (err) {
		pr_err("not loaded: the kernel refused the functions: error %d\n", err);
		return err;
	}
	pr_info("functions for XDP and TC programs:%s%s%s\n", capabilities & SHUNT_CAP_CRC32C ? " crc32c" : "",
		capabilities & SHUNT_CAP_MATCH16X16 ? " match16x16" : "", capabilities & SHUNT_CAP_HASH8 ? " hash8" : "");
	return 0;
}
#else
static int __init shunt_lib_init(void)
{
	capabilities = 0;
#ifndef CONFIG_X86_64
	pr_err("not loaded: built for a processor other than x86-64, on which there is nothing to gain; programs use plain BPF\n");
#elif LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
	pr_err("not loaded: built for Linux %u.%u; XDP and TC programs can call it from 6.12 on and use plain BPF here\n",
	       LINUX_VERSION_CODE >> 16, LINUX_VERSION_CODE >> 8 & 255);
#else
	pr_err("not loaded: this kernel is configured without CONFIG_DEBUG_INFO_BTF_MODULES, so no program could call it; programs use plain BPF\n");
#endif
	return -EOPNOTSUPP;
}
#endif

/* Programs that call the module hold it; there is nothing to undo. */
static void __exit shunt_lib_exit(void)
{
}

module_init(shunt_lib_init);
module_exit(shunt_lib_exit);
MODULE_DESCRIPTION("crc32c, 16-way compare and 8-way hash for BPF programs");
MODULE_LICENSE("GPL");
